//! Jinja2's tests (`x is odd`), where the engine's own differ or need a bound.

use super::numbers::{as_integer, as_number};
use super::python;
use super::values;
use crate::limits::{self, refuse};
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, State, Value};
use std::cmp::Ordering;

pub fn register(env: &mut Environment<'_>) {
    for (name, wanted) in [("in", true), ("notin", false)] {
        env.add_test(name, move |state: &State, value: &Value, other: &Value| {
            limits::tick()?;
            minijinja::tests::is_in(state, value, other).map(|found| found == wanted)
        });
    }
    for (names, wanted) in [(["eq", "equalto", "=="], true), (["ne", "ne", "!="], false)] {
        for name in names {
            env.add_test(name, move |a: &Value, b: &Value| limits::tick().map(|_| values::equal(a, b) == wanted));
        }
    }
    let orders: [(&[&str], fn(Ordering) -> bool); 4] = [
        (&["lt", "lessthan", "<"], Ordering::is_lt),
        (&["le", "<="], Ordering::is_le),
        (&["gt", "greaterthan", ">"], Ordering::is_gt),
        (&["ge", ">="], Ordering::is_ge),
    ];
    for (names, holds) in orders {
        for name in names {
            env.add_test(*name, move |a: &Value, b: &Value| values::compare(a, b).map(holds));
        }
    }
    for (name, rest) in [("odd", 1), ("even", 0)] {
        env.add_test(name, move |value: &Value| Ok::<_, Error>(remainder(value, &Value::from(2))? == f64::from(rest)));
    }
    env.add_test("divisibleby", |value: &Value, by: &Value| Ok::<_, Error>(remainder(value, by)? == 0.0));
    env.add_test("number", |value: &Value| as_number(value).is_some());
    env.add_test("integer", |value: &Value| value.is_integer() && value.kind() != ValueKind::Bool);
    env.add_test("float", |value: &Value| python::as_float(value).is_some());
    env.add_test("lower", |value: &Value| text_has(value, "islower"));
    env.add_test("upper", |value: &Value| text_has(value, "isupper"));
    // In Python texts and mappings have a length and items, so Jinja2 calls them sequences too.
    env.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Undefined | ValueKind::String | ValueKind::Seq | ValueKind::Map)
    });
    env.add_test("iterable", |value: &Value| value.kind() != ValueKind::None && value.try_iter().is_ok());
    env.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
    env.add_test("sameas", |a: &Value, b: &Value| {
        let is_alike = a.kind() == b.kind() && a.is_integer() == b.is_integer();
        if a.as_object().is_some() || !is_alike {
            return a.kind() == b.kind() && minijinja::tests::is_sameas(a, b);
        }
        a == b
    });
}

/// `value % by`.
fn remainder(value: &Value, by: &Value) -> Result<f64, Error> {
    match (as_integer(value), as_integer(by)) {
        (_, Some(0)) => Err(refuse("integer modulo by zero")),
        (Some(a), Some(b)) => Ok(a.rem_euclid(b) as f64),
        _ => match (as_number(value), as_number(by)) {
            (Some(a), Some(b)) => Ok(a.rem_euclid(b)),
            _ => Err(refuse(format!("a number is expected, not a value of type {}", values::type_name(value)))),
        },
    }
}

fn text_has(value: &Value, method: &str) -> Result<bool, Error> {
    let text = Value::from(python::text_of(value)?);
    super::methods::of_text(&text, method).map(|found| found.is_true())
}
