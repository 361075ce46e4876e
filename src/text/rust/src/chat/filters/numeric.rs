//! Filters of numbers.

use super::super::arguments::Arguments;
use super::super::numbers::{as_integer, as_number, parse_float, parse_integer, rounded, rounded_integer, truncated};
use super::super::python;
use super::super::values::{self, type_name, Path};
use super::Filter;
use crate::limits::{self, refuse};
use minijinja::{Error, Value};

pub const FILTERS: &[Filter] = &[
    ("abs", &[], |_, value, _| match (as_integer(value), python::as_float(value)) {
        (Some(number), _) => Ok(Value::from(number.abs())),
        (_, Some(number)) => Ok(Value::from(number.abs())),
        _ => Err(wrong("abs", value)),
    }),
    ("filesizeformat", &["binary"], |_, value, args| {
        let bytes = float_of(value).ok_or_else(|| wrong("filesizeformat", value))?;
        Ok(Value::from(file_size(bytes, args.flag(0, false))))
    }),
    ("float", &["default"], |_, value, args| {
        if value.is_undefined() {
            return Err(wrong("float", value));
        }
        Ok(float_of(value).map(Value::from).or(args.given(0).cloned()).unwrap_or(Value::from(0.0)))
    }),
    ("int", &["default", "base"], int),
    ("round", &["precision", "method"], |_, value, args| round(value, args)),
    ("sum", &["attribute", "start"], |_, value, args| {
        let path = Path::new(args.some(0));
        let start = args.given(1).cloned().unwrap_or(Value::from(0));
        values::items(value)?.iter().try_fold(start, |sum, item| {
            limits::tick()?;
            values::add(&sum, &path.get(item, None)?)
        })
    }),
];

fn wrong(filter: &str, value: &Value) -> Error {
    refuse(format!("{filter}() wants a number, not a value of type {}", type_name(value)))
}

/// `float(value)`.
fn float_of(value: &Value) -> Option<f64> {
    as_number(value).or_else(|| parse_float(value.as_str()?))
}

fn int(_: &mut minijinja::State, value: &Value, args: &Arguments) -> Result<Value, Error> {
    if value.is_undefined() {
        return Err(wrong("int", value));
    }
    let base = args.integer(1)?.unwrap_or(10);
    let exact = value.as_str().map_or_else(|| as_integer(value), |text| parse_integer(text, base));
    // "42.23" is 42.
    let number = exact.or_else(|| float_of(value).and_then(truncated));
    Ok(number.map(Value::from).or(args.given(0).cloned()).unwrap_or(Value::from(0)))
}

fn file_size(bytes: f64, binary: bool) -> String {
    let base: f64 = if binary { 1024.0 } else { 1000.0 };
    if bytes == 1.0 {
        return "1 Byte".into();
    }
    if bytes < base {
        return format!("{} Bytes", bytes as i64);
    }
    let letters = if binary { "KMGTPEZY" } else { "kMGTPEZY" };
    let mut unit = base;
    let mut chosen = ' ';
    for letter in letters.chars() {
        unit *= base;
        chosen = letter;
        if bytes < unit {
            break;
        }
    }
    format!("{:.1} {chosen}{}", base * bytes / unit, if binary { "iB" } else { "B" })
}

fn round(value: &Value, args: &Arguments) -> Result<Value, Error> {
    let precision = args.integer(0)?.unwrap_or(0).clamp(-400, 400) as i32;
    let method = args.given(1).map_or(Ok("common"), |_| args.text(1))?;
    let number = as_number(value).ok_or_else(|| wrong("round", value))?;
    if !["common", "ceil", "floor"].contains(&method) {
        return Err(refuse("method must be common, ceil or floor"));
    }
    if method == "common" {
        return Ok(match as_integer(value) {
            Some(integer) if precision < 0 => Value::from(rounded_integer(integer, precision.unsigned_abs())),
            Some(integer) => Value::from(integer),
            None => Value::from(rounded(number, precision)),
        });
    }
    let factor = 10f64.powi(precision);
    let scaled = number * factor;
    if !scaled.is_finite() {
        return Err(refuse("round(): the number is too large"));
    }
    let whole = if method == "ceil" { scaled.ceil() } else { scaled.floor() };
    // Python's ceil gives an integer, which has no -0.
    Ok(Value::from((whole + 0.0) / factor))
}
