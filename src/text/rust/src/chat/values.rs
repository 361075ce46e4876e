//! What Python does with values of any type: iterate, compare, add, look up.

use super::numbers::{as_integer, as_number};
use super::objects::Group;
use super::python;
use crate::limits::{self, refuse};
use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, Value};
use std::cmp::Ordering;

pub fn type_name(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::Undefined => "Undefined",
        ValueKind::None => "NoneType",
        ValueKind::Bool => "bool",
        ValueKind::Number if value.is_integer() => "int",
        ValueKind::Number => "float",
        ValueKind::String => "str",
        ValueKind::Seq if is_tuple(value) => "tuple",
        ValueKind::Seq => "list",
        ValueKind::Map => "dict",
        ValueKind::Iterable => "iterator",
        _ => "object",
    }
}

pub fn is_tuple(value: &Value) -> bool {
    value.is_tuple() || value.downcast_object_ref::<Group>().is_some()
}

/// `iter(value)`. What is not defined has no items.
pub fn iterate(value: &Value) -> Result<impl Iterator<Item = Result<Value, Error>>, Error> {
    limits::tick()?;
    // The engine itself would go over none as if it were empty.
    if value.is_none() {
        return Err(refuse("none is not iterable"));
    }
    let chars = value.as_str().map(|text| text.chars().map(Value::from).collect::<Vec<_>>());
    let others = if chars.is_none() && !value.is_undefined() { Some(value.try_iter()?.checked()) } else { None };
    Ok(chars.into_iter().flatten().map(Ok).chain(others.into_iter().flatten()))
}

/// `list(value)`.
pub fn items(value: &Value) -> Result<Vec<Value>, Error> {
    iterate(value)?.collect()
}

/// `len(value)`.
pub fn length(value: &Value) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    value.len().ok_or_else(|| refuse(format!("a value of type {} has no length", value.kind())))
}

/// The pairs of a mapping.
pub fn pairs(value: &Value) -> Result<Vec<(Value, Value)>, Error> {
    if value.kind() != ValueKind::Map {
        return Err(refuse(format!("a mapping is expected, not {}", type_name(value))));
    }
    let pair = |key: Value| Ok((key.clone(), value.get_item(&key)?));
    items(value)?.into_iter().map(pair).collect()
}

pub fn tuple(items: impl Into<Vec<Value>>) -> Value {
    Value::from(Tuple::from(items.into()))
}

pub fn equal(a: &Value, b: &Value) -> bool {
    match (as_integer(a), as_integer(b)) {
        (Some(a), Some(b)) => a == b,
        _ => match (as_number(a), as_number(b)) {
            (Some(a), Some(b)) => a == b,
            _ => a == b,
        },
    }
}

/// Error: Python has no order of the two.
pub fn compare(a: &Value, b: &Value) -> Result<Ordering, Error> {
    if let (Some(a), Some(b)) = (as_integer(a), as_integer(b)) {
        return Ok(a.cmp(&b));
    }
    if let (Some(a), Some(b)) = (as_number(a), as_number(b)) {
        return Ok(a.partial_cmp(&b).unwrap_or(Ordering::Equal));
    }
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        return Ok(a.cmp(b));
    }
    if a.kind() != ValueKind::Seq || b.kind() != ValueKind::Seq || is_tuple(a) != is_tuple(b) {
        let (a, b) = (type_name(a), type_name(b));
        return Err(refuse(format!("values of the types {a} and {b} have no order")));
    }
    let (a, b) = (items(a)?, items(b)?);
    for (a, b) in a.iter().zip(&b) {
        if !equal(a, b) {
            return compare(a, b);
        }
    }
    Ok(a.len().cmp(&b.len()))
}

/// `sorted(items, key=..., reverse=reverse)`: equal ones stay in their order, reversed or not.
pub fn sorted<T>(mut items: Vec<(Value, T)>, reverse: bool) -> Result<Vec<(Value, T)>, Error> {
    let mut failure = None;
    items.sort_by(|a, b| {
        let order = compare(&a.0, &b.0).unwrap_or_else(|error| {
            failure.get_or_insert(error);
            Ordering::Equal
        });
        if reverse {
            order.reverse()
        } else {
            order
        }
    });
    failure.map_or(Ok(items), Err)
}

/// A text that two values share when Python's sets hold them as one. Error: lists and mappings are in no set.
pub fn set_key(value: &Value) -> Result<String, Error> {
    Ok(match value.kind() {
        ValueKind::String => format!("s{}", value.as_str().unwrap_or_default()),
        ValueKind::Number | ValueKind::Bool => match (as_integer(value), as_number(value)) {
            (Some(integer), _) => format!("n{integer}"),
            (_, Some(number)) if number.fract() == 0.0 && number.abs() < 1e18 => format!("n{}", number as i64),
            (_, number) => format!("f{number:?}"),
        },
        ValueKind::Undefined | ValueKind::None => type_name(value).into(),
        ValueKind::Seq if is_tuple(value) => {
            let keys = items(value)?.iter().map(set_key).collect::<Result<Vec<_>, _>>()?;
            format!("t{}:{}", keys.len(), keys.iter().map(|key| format!("{}:{key}", key.len())).collect::<String>())
        }
        _ => return Err(refuse(format!("a value of type {} cannot be in a set", type_name(value)))),
    })
}

/// `a + b` of numbers, lists and tuples.
pub fn add(a: &Value, b: &Value) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (as_integer(a), as_integer(b)) {
        return a.checked_add(b).map(Value::from).ok_or_else(|| refuse("integer overflow"));
    }
    if let (Some(a), Some(b)) = (as_number(a), as_number(b)) {
        return Ok(Value::from(a + b));
    }
    if a.kind() != ValueKind::Seq || b.kind() != ValueKind::Seq || is_tuple(a) != is_tuple(b) {
        return Err(refuse(format!("unsupported operands for +: {} and {}", type_name(a), type_name(b))));
    }
    let sum = Value::from([items(a)?, items(b)?].concat());
    limits::weigh(&sum)?;
    Ok(if is_tuple(a) { tuple(items(&sum)?) } else { sum })
}

/// Jinja2's `environment.getitem`: what is not there is undefined.
pub fn item(value: &Value, key: &Value) -> Result<Value, Error> {
    if value.is_undefined() {
        return Err(refuse(format!("an undefined value has no '{}'", python::text_of(key)?)));
    }
    if let (Some(text), Some(at)) = (value.as_str(), as_integer(key)) {
        let size = text.chars().count() as i128;
        let at = usize::try_from(if at < 0 { at + size } else { at }).ok();
        return Ok(at.and_then(|at| text.chars().nth(at)).map_or(Value::UNDEFINED, Value::from));
    }
    Ok(value.get_item(key).unwrap_or(Value::UNDEFINED))
}

/// "a.0.b", 3 or none: what filters take as an attribute.
pub struct Path(Vec<Value>);

impl Path {
    pub fn new(attribute: Option<&Value>) -> Self {
        let part = |text: &str| match text.parse::<i64>() {
            Ok(index) if text.chars().all(|c| c.is_ascii_digit()) => Value::from(index),
            _ => Value::from(text),
        };
        match attribute {
            None => Path(Vec::new()),
            Some(value) => match value.as_str() {
                Some(text) => Path(text.split('.').map(part).collect()),
                None => Path(vec![value.clone()]),
            },
        }
    }

    /// default: in place of what is undefined.
    pub fn get(&self, value: &Value, default: Option<&Value>) -> Result<Value, Error> {
        self.0.iter().try_fold(value.clone(), |value, key| {
            let found = item(&value, key)?;
            Ok(default.filter(|_| found.is_undefined()).cloned().unwrap_or(found))
        })
    }
}

/// Jinja2 compares texts by their lower case, unless it is told to mind it.
pub fn folded(value: Value, case_sensitive: bool) -> Value {
    match value.as_str() {
        Some(text) if !case_sensitive => Value::from(text.to_lowercase()),
        _ => value,
    }
}
