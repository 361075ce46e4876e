//! Filters of HTML and addresses.

use super::super::{python, values};
use super::Filter;
use crate::limits::{check_size, refuse};
use minijinja::value::ValueKind;
use minijinja::{Error, Value};

pub const FILTERS: &[Filter] = &[
    ("e", &[], |_, value, _| escaped(value)),
    ("escape", &[], |_, value, _| escaped(value)),
    ("forceescape", &[], |_, value, _| escaped(&Value::from(python::text_of(value)?))),
    ("safe", &[], |_, value, _| Ok(Value::from_safe_string(python::text_of(value)?.into_owned()))),
    ("striptags", &[], |_, value, _| {
        Ok(Value::from(minijinja_contrib::filters::striptags(python::text_of(value)?.into_owned())))
    }),
    ("urlencode", &[], |_, value, _| url_encode(value)),
    ("xmlattr", &["autospace"], |_, value, args| {
        let mut out = String::new();
        for (name, value) in values::pairs(value)? {
            let name = python::text_of(&name)?.into_owned();
            if name.contains([' ', '\t', '\n', '\r', '\u{b}', '\u{c}', '/', '>', '=']) {
                return Err(refuse(format!("'{name}' is no name of an attribute")));
            }
            if !value.is_none() && !value.is_undefined() {
                out.push_str(if out.is_empty() { "" } else { " " });
                out.push_str(&format!("{}=\"{}\"", escaped(&Value::from(name))?, escaped(&value)?));
                check_size(Some(out.len()))?;
            }
        }
        let space = if args.flag(0, true) && !out.is_empty() { " " } else { "" };
        Ok(Value::from(format!("{space}{out}")))
    }),
];

/// What was escaped already stays.
pub fn escaped(value: &Value) -> Result<Value, Error> {
    if value.is_safe() {
        return Ok(value.clone());
    }
    let mut out = String::new();
    for c in python::text_of(value)?.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    check_size(Some(out.len()))?;
    Ok(Value::from_safe_string(out))
}

/// For a path; in a query, a slash is quoted too and a space is a plus.
fn quoted(value: &Value, in_query: bool) -> Result<String, Error> {
    let mut out = String::new();
    for byte in python::text_of(value)?.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' => out.push(byte.into()),
            b'/' if !in_query => out.push('/'),
            b' ' if in_query => out.push('+'),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    check_size(Some(out.len()))?;
    Ok(out)
}

/// A text, or names and values of a query as a mapping or as pairs.
fn url_encode(value: &Value) -> Result<Value, Error> {
    let pairs = match value.kind() {
        ValueKind::Map => values::pairs(value)?,
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Undefined => {
            let pair = |item: Value| match values::items(&item)?.as_slice() {
                [name, value] => Ok((name.clone(), value.clone())),
                _ => Err(refuse("urlencode() wants a text, a mapping or pairs")),
            };
            values::items(value)?.into_iter().map(pair).collect::<Result<Vec<_>, Error>>()?
        }
        _ => return quoted(value, false).map(Value::from),
    };
    let mut out = String::new();
    for (name, value) in pairs {
        out.push_str(if out.is_empty() { "" } else { "&" });
        out.push_str(&format!("{}={}", quoted(&name, true)?, quoted(&value, true)?));
        check_size(Some(out.len()))?;
    }
    Ok(Value::from(out))
}
