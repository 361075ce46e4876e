//! The operators that `rewrite.rs` puts in place of the engine's own: Python's meaning, sizes checked beforehand.

use super::numbers::{as_integer, as_number};
use super::{format, objects, python, rewrite, values};
use crate::limits::{self, check_size, refuse};
use minijinja::value::{Tuple, ValueKind};
use minijinja::{Environment, Error, Value};
use std::cmp::Ordering;

pub fn register(env: &mut Environment<'_>) {
    env.add_filter(rewrite::WEIGH, weigh);
    env.add_filter(rewrite::TICK, |value: &Value| limits::tick().map(|_| value.clone()));
    env.add_filter(rewrite::ITERATE, iterate);
    env.add_filter(rewrite::SLICE, slice);
    env.add_filter(rewrite::CONCAT, concat);
    env.add_filter(rewrite::MULTIPLY, multiply);
    env.add_filter(rewrite::REMAINDER, remainder);
    let orders: [(&str, fn(Ordering) -> bool); 4] = [
        (rewrite::LESS, Ordering::is_lt),
        (rewrite::LESS_EQUAL, Ordering::is_le),
        (rewrite::GREATER, Ordering::is_gt),
        (rewrite::GREATER_EQUAL, Ordering::is_ge),
    ];
    for (name, holds) in orders {
        env.add_filter(name, move |left: &Value, right: &Value| {
            limits::tick()?;
            values::compare(left, right).map(holds)
        });
    }
}

/// Passes a value on once it is known to be within the limits. A lazy sum of lists becomes a list, as in Python.
fn weigh(value: &Value) -> Result<Value, Error> {
    limits::weigh(value)?;
    let lazy_sum = |v: &Value| v.as_object().is_some_and(|o| o.type_name().ends_with("::MergeSeq"));
    if value.kind() == ValueKind::Iterable && lazy_sum(value) {
        let items = value.try_iter()?.checked().collect::<Result<Vec<_>, _>>()?;
        return Ok(Value::from(items));
    }
    Ok(value.clone())
}

/// What a for loop takes; the engine itself would run over none as if it were empty.
fn iterate(value: &Value) -> Result<Value, Error> {
    let _ = values::iterate(value)?;
    objects::for_loop(value)
}

/// `value[start:stop:step]` of a text, list or tuple.
fn slice(value: &Value, start: &Value, stop: &Value, step: &Value) -> Result<Value, Error> {
    limits::tick()?;
    let bound = |value: &Value| match as_integer(value) {
        None if !value.is_none() => Err(refuse("slice bounds must be integers")),
        bound => Ok(bound),
    };
    let (start, stop, step) = (bound(start)?, bound(stop)?, bound(step)?.unwrap_or(1));
    if step == 0 {
        return Err(refuse("slice step cannot be zero"));
    }
    if let Some(text) = value.as_str() {
        let chars: Vec<char> = text.chars().collect();
        return Ok(Value::from(indices(chars.len(), start, stop, step).map(|i| chars[i]).collect::<String>()));
    }
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
        return Err(refuse(format!("a value of type {} cannot be sliced", value.kind())));
    }
    let items = value.try_iter()?.checked().collect::<Result<Vec<_>, _>>()?;
    let items: Vec<Value> = indices(items.len(), start, stop, step).map(|i| items[i].clone()).collect();
    Ok(if value.is_tuple() { Value::from(Tuple::from(items)) } else { Value::from(items) })
}

/// The positions that Python's `slice(start, stop, step).indices(size)` names; every one is below `size`.
fn indices(size: usize, start: Option<i128>, stop: Option<i128>, step: i128) -> impl Iterator<Item = usize> {
    let size = size as i128;
    let (lowest, highest) = if step > 0 { (0, size) } else { (-1, size - 1) };
    let place = |bound: Option<i128>, default: i128| match bound {
        None => default,
        Some(b) if b < 0 => (b + size).max(lowest),
        Some(b) => b.min(highest),
    };
    let first = place(start, if step > 0 { lowest } else { highest });
    let last = place(stop, if step > 0 { highest } else { lowest });
    let inside = move |&i: &i128| if step > 0 { i < last } else { i > last };
    std::iter::successors(Some(first), move |&i| i.checked_add(step)).take_while(inside).map(|i| i as usize)
}

pub fn concat(left: &Value, right: &Value) -> Result<Value, Error> {
    let mut text = String::new();
    python::push_str(&mut text, left)?;
    python::push_str(&mut text, right)?;
    check_size(Some(text.len()))?;
    Ok(Value::from(text))
}

fn integer(number: Option<i128>) -> Result<Value, Error> {
    number.map(Value::from).ok_or_else(|| refuse("integer overflow"))
}

fn unsupported(operator: &str, left: &Value, right: &Value) -> Error {
    let (left, right) = (values::type_name(left), values::type_name(right));
    refuse(format!("unsupported operands for {operator}: {left} and {right}"))
}

fn multiply(left: &Value, right: &Value) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (as_integer(left), as_integer(right)) {
        return integer(a.checked_mul(b));
    }
    if let (Some(a), Some(b)) = (as_number(left), as_number(right)) {
        return Ok(Value::from(a * b));
    }
    let (value, times) = if as_integer(right).is_some() { (left, right) } else { (right, left) };
    let times = as_integer(times).ok_or_else(|| unsupported("*", left, right))?.clamp(0, usize::MAX as i128) as usize;
    if let Some(text) = value.as_str() {
        check_size(text.len().checked_mul(times))?;
        return Ok(Value::from(text.repeat(times)));
    }
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
        return Err(unsupported("*", left, right));
    }
    check_size(limits::weigh(value)?.checked_mul(times))?;
    let items = value.try_iter()?.checked().collect::<Result<Vec<_>, _>>()?;
    let items: Vec<Value> = std::iter::repeat(items).take(times).flatten().collect();
    Ok(if value.is_tuple() { Value::from(Tuple::from(items)) } else { Value::from(items) })
}

fn remainder(left: &Value, right: &Value) -> Result<Value, Error> {
    if let Some(text) = left.as_str() {
        return format::format_percent(text, right);
    }
    if let (Some(a), Some(b)) = (as_integer(left), as_integer(right)) {
        let rest = a.checked_rem(b).ok_or_else(|| refuse("integer modulo by zero"))?;
        return integer(Some(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }));
    }
    match (as_number(left), as_number(right)) {
        (Some(_), Some(0.0)) => Err(refuse("float modulo by zero")),
        (Some(a), Some(b)) => {
            let rest = a % b;
            Ok(Value::from(if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }))
        }
        _ => Err(unsupported("%", left, right)),
    }
}
