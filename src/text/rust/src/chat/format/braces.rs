//! `'{} {name.attribute[0]!r:>{width}}'.format(...)`.

use super::super::arguments::Arguments;
use super::super::{python, values};
use super::spec::Spec;
use crate::limits::{check_size, refuse};
use minijinja::value::ValueKind;
use minijinja::{Error, Value};

struct Formatter<'a> {
    row: &'a [Value],
    named: &'a [(String, Value)],
    /// The next place without a number; nothing once numbers are given.
    next: Option<usize>,
    numbered: bool,
}

/// Behind an opening brace: what stands in front of the one that closes it.
fn take_field<'a>(text: &mut &'a str) -> Result<&'a str, Error> {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth == 0 {
            let field = &text[..at];
            *text = &text[at + 1..];
            return Ok(field);
        }
    }
    Err(refuse("a '{' in the format is not closed"))
}

/// "name!r:spec" in its parts. Neither '!' nor ':' counts inside [].
fn split_field(field: &str) -> Result<(&str, Option<char>, &str), Error> {
    let mut inside = false;
    let end = field.char_indices().find(|(_, c)| {
        inside = (inside || *c == '[') && *c != ']';
        !inside && (*c == '!' || *c == ':')
    });
    let Some((at, mark)) = end else { return Ok((field, None, "")) };
    let (name, rest) = (&field[..at], &field[at + 1..]);
    if mark == ':' {
        return Ok((name, None, rest));
    }
    let mut chars = rest.chars();
    match (chars.next(), chars.next()) {
        (Some(conversion), None) => Ok((name, Some(conversion), "")),
        (Some(conversion), Some(':')) => Ok((name, Some(conversion), chars.as_str())),
        _ => Err(refuse("':' is expected after the conversion of a format field")),
    }
}

impl Formatter<'_> {
    fn argument(&mut self, name: &str) -> Result<Value, Error> {
        let missing = || refuse(format!("the format has no argument '{name}'"));
        if !name.is_empty() && !name.bytes().all(|c| c.is_ascii_digit()) {
            let found = self.named.iter().find(|(given, _)| given == name);
            return found.map(|(_, value)| value.clone()).ok_or_else(missing);
        }
        let place = match (self.next, name.is_empty()) {
            (Some(next), true) if !self.numbered => {
                self.next = Some(next + 1);
                next
            }
            (next, false) if next == Some(0) || self.numbered => {
                self.numbered = true;
                name.parse().map_err(|_| missing())?
            }
            _ => return Err(refuse("a format numbers all of its fields, or none")),
        };
        self.row.get(place).cloned().ok_or_else(missing)
    }

    /// "0.name[key]".
    fn value(&mut self, name: &str) -> Result<Value, Error> {
        let end = name.find(['.', '[']).unwrap_or(name.len());
        let mut value = self.argument(&name[..end])?;
        let mut rest = &name[end..];
        while !rest.is_empty() {
            let (key, after) = if let Some(inner) = rest.strip_prefix('[') {
                inner.split_once(']').ok_or_else(|| refuse("a '[' in a format field is not closed"))?
            } else {
                let inner =
                    rest.strip_prefix('.').ok_or_else(|| refuse("a '.' or '[' is expected in a format field"))?;
                inner.split_at(inner.find(['.', '[']).unwrap_or(inner.len()))
            };
            if key.is_empty() {
                return Err(refuse("an attribute in a format field is empty"));
            }
            let is_index = rest.starts_with('[') && key.bytes().all(|c| c.is_ascii_digit());
            let key = key.parse::<i64>().ok().filter(|_| is_index).map_or_else(|| Value::from(key), Value::from);
            value = values::item(&value, &key)?;
            rest = after;
        }
        Ok(value)
    }

    fn field(&mut self, field: &str, depth: usize) -> Result<String, Error> {
        let (name, conversion, spec) = split_field(field)?;
        let value = self.value(name)?;
        let spec = if spec.contains(['{', '}']) { self.text(spec, depth + 1)? } else { spec.to_string() };
        let mut text = String::new();
        let value = match conversion {
            None => value,
            Some('s') => Value::from(python::text_of(&value)?),
            Some('r') => python::push_repr(&mut text, &value).map(|()| Value::from(text))?,
            Some('a') => python::push_ascii(&mut text, &value).map(|()| Value::from(text))?,
            Some(other) => return Err(refuse(format!("unknown conversion '{other}' of a format field"))),
        };
        match spec.is_empty() {
            true => python::text_of(&value).map(|text| text.into_owned()),
            false => Spec::parse(&spec)?.format(&value),
        }
    }

    fn text(&mut self, text: &str, depth: usize) -> Result<String, Error> {
        if depth > 1 {
            return Err(refuse("format fields inside fields inside fields are not supported"));
        }
        let (mut out, mut rest) = (String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            out.push_str(&rest[..at]);
            let (mark, after) = rest[at..].split_at(1);
            rest = after;
            if let Some(after) = rest.strip_prefix(mark) {
                out.push_str(mark);
                rest = after;
            } else if mark == "}" {
                return Err(refuse("a single '}' in the format"));
            } else {
                let field = take_field(&mut rest)?;
                out.push_str(&self.field(field, depth)?);
            }
            check_size(Some(out.len()))?;
        }
        out.push_str(rest);
        check_size(Some(out.len()))?;
        Ok(out)
    }
}

pub fn format(text: &str, args: &Arguments) -> Result<Value, Error> {
    let mut formatter = Formatter { row: &args.further, named: &args.named, next: Some(0), numbered: false };
    formatter.text(text, 0).map(Value::from)
}

/// `text.format_map(mapping)`.
pub fn format_map(text: &str, mapping: &Value) -> Result<Value, Error> {
    let named = values::pairs(mapping)?.into_iter().filter(|(key, _)| key.kind() == ValueKind::String);
    let named: Vec<_> = named.map(|(key, value)| (key.as_str().unwrap_or_default().to_string(), value)).collect();
    let mut formatter = Formatter { row: &[], named: &named, next: Some(0), numbered: false };
    formatter.text(text, 0).map(Value::from)
}
