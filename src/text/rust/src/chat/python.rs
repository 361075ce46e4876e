//! Python's `str()`, `repr()` and `json.dumps()` of template values, because chat templates are written for Jinja2.

use super::{characters, objects, values};
use crate::limits;
use minijinja::value::ValueKind;
use minijinja::{Error, Value};
use std::borrow::Cow;
use std::fmt::Write;

/// The shortest decimal that reads back as the same number, in Python's notation: `1.0`, `1e-05`, `1e+16`.
pub fn float_text(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() {
            "nan"
        } else if number > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .into();
    }
    // Rust's debug form changes to an exponent at the same thresholds, but writes it without sign and padding.
    let text = format!("{number:?}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let exponent: i32 = exponent.parse().unwrap_or(0);
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", mantissa.strip_suffix(".0").unwrap_or(mantissa), exponent.abs())
        }
        None => text,
    }
}

pub fn as_float(value: &Value) -> Option<f64> {
    if value.kind() != ValueKind::Number || value.is_integer() {
        return None;
    }
    f64::try_from(value.clone()).ok()
}

fn scalar(value: &Value) -> Option<String> {
    Some(match value.kind() {
        ValueKind::None => "None".into(),
        ValueKind::Bool => if value.is_true() { "True" } else { "False" }.into(),
        ValueKind::Number => as_float(value).map_or_else(|| value.to_string(), float_text),
        _ => return None,
    })
}

/// Appends `str(value)`.
pub fn push_str(out: &mut String, value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) => out.push_str(text),
        None if value.is_undefined() => {}
        None => push_repr(out, value)?,
    }
    Ok(())
}

/// As `str(value)`.
pub fn text_of(value: &Value) -> Result<Cow<'_, str>, Error> {
    if let Some(text) = value.as_str() {
        return Ok(Cow::Borrowed(text));
    }
    let mut text = String::new();
    push_str(&mut text, value)?;
    Ok(Cow::Owned(text))
}

fn push_escaped(out: &mut String, c: char) {
    out.push_str(&match c as u32 {
        code @ 0..=0xff => format!("\\x{code:02x}"),
        code @ 0x100..=0xffff => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    });
}

/// Appends `ascii(value)`.
pub fn push_ascii(out: &mut String, value: &Value) -> Result<(), Error> {
    let mut text = String::new();
    push_repr(&mut text, value)?;
    for c in text.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            push_escaped(out, c);
        }
    }
    Ok(())
}

fn push_quoted(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote || c == '\\' => out.extend(['\\', c]),
            c if characters::is_printable(c) => out.push(c),
            c => push_escaped(out, c),
        }
    }
    out.push(quote);
}

/// Appends `repr(value)`.
pub fn push_repr(out: &mut String, value: &Value) -> Result<(), Error> {
    if let Some(text) = scalar(value) {
        out.push_str(&text);
        return Ok(());
    }
    if objects::push_repr(out, value)? {
        return Ok(());
    }
    match value.kind() {
        ValueKind::String => push_quoted(out, value.as_str().unwrap_or_default()),
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Seq | ValueKind::Iterable => {
            let tuple = values::is_tuple(value);
            out.push(if tuple { '(' } else { '[' });
            let mut count = 0;
            for item in value.try_iter()?.checked() {
                out.push_str(if count > 0 { ", " } else { "" });
                push_repr(out, &item?)?;
                count += 1;
            }
            out.push_str(if !tuple {
                "]"
            } else if count == 1 {
                ",)"
            } else {
                ")"
            });
        }
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter()?.checked().enumerate() {
                let key = key?;
                out.push_str(if index > 0 { ", " } else { "" });
                push_repr(out, &key)?;
                out.push_str(": ");
                push_repr(out, &value.get_item(&key)?)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

/// The arguments of `json.dumps` that templates use.
pub struct JsonStyle {
    pub ensure_ascii: bool,
    pub sort_keys: bool,
    /// One level of indentation; `None` writes a single line.
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
}

impl JsonStyle {
    fn new_line(&self, out: &mut String, depth: usize) -> Result<(), Error> {
        if let Some(indent) = &self.indent {
            limits::check_size(Some(out.len() + indent.len() * depth))?;
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
        Ok(())
    }

    fn push_text(&self, out: &mut String, text: &str) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if (c as u32) < 0x20 || (self.ensure_ascii && !(' '..='~').contains(&c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }

    fn scalar(&self, value: &Value) -> Option<String> {
        Some(match value.kind() {
            ValueKind::None => "null".into(),
            ValueKind::Bool => if value.is_true() { "true" } else { "false" }.into(),
            ValueKind::Number => match as_float(value) {
                Some(x) if x.is_nan() => "NaN".into(),
                Some(x) if x.is_infinite() => if x > 0.0 { "Infinity" } else { "-Infinity" }.into(),
                _ => scalar(value)?,
            },
            _ => return None,
        })
    }

    /// Appends `json.dumps(value)`.
    pub fn push(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        if let Some(text) = value.as_str() {
            self.push_text(out, text);
            return Ok(());
        }
        if let Some(text) = self.scalar(value) {
            out.push_str(&text);
            return Ok(());
        }
        let map = match value.kind() {
            ValueKind::Map => true,
            ValueKind::Seq if !objects::is_range(value) => false,
            ValueKind::Iterable => false,
            kind => return Err(limits::refuse(format!("a value of type {kind} is not JSON serializable"))),
        };
        let mut items: Vec<Value> = value.try_iter()?.checked().collect::<Result<_, _>>()?;
        if map && self.sort_keys {
            items.sort();
        }
        out.push(if map { '{' } else { '[' });
        for (index, item) in items.iter().enumerate() {
            out.push_str(if index > 0 { &self.item_separator } else { "" });
            self.new_line(out, depth + 1)?;
            if map {
                match item.as_str().map(str::to_string).or_else(|| self.scalar(item)) {
                    Some(key) => self.push_text(out, &key),
                    None => return Err(limits::refuse("a JSON key must be a text, a number, a bool or none")),
                }
                out.push_str(&self.key_separator);
                self.push(out, &value.get_item(item)?, depth + 1)?;
            } else {
                self.push(out, item, depth + 1)?;
            }
        }
        if !items.is_empty() {
            self.new_line(out, depth)?;
        }
        out.push(if map { '}' } else { ']' });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::float_text;

    #[test]
    fn floats_read_as_in_python() {
        for (number, text) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (1e-5, "1e-05"),
            (-0.0, "-0.0"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(float_text(number), text);
        }
    }
}
