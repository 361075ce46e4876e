//! `'%s and %(name)05.1f' % arguments`.

use super::super::numbers::{as_integer, as_number, truncated};
use super::super::python;
use super::super::values::{self, type_name};
use super::spec::{float_digits, integer_digits, pad, Spec};
use super::{bounded, take, take_count};
use crate::limits::{check_size, refuse};
use minijinja::value::ValueKind;
use minijinja::{Error, Value};

/// What the fields are filled with: values in a row, or a mapping.
struct Source<'a> {
    arguments: &'a Value,
    row: Vec<Value>,
    used: usize,
}

impl Source<'_> {
    fn next(&mut self) -> Result<Value, Error> {
        let next = self.row.get(self.used).cloned();
        self.used += 1;
        next.ok_or_else(|| refuse("not enough arguments for the format"))
    }

    fn named(&mut self, name: &str) -> Result<Value, Error> {
        if self.arguments.kind() != ValueKind::Map {
            return Err(refuse("the format requires a mapping"));
        }
        self.used = self.row.len();
        let value = self.arguments.get_item(&Value::from(name))?;
        match value.is_undefined() {
            true => Err(refuse(format!("the format has no argument '{name}'"))),
            false => Ok(value),
        }
    }

    fn width(&mut self) -> Result<i128, Error> {
        as_integer(&self.next()?).ok_or_else(|| refuse("* wants an integer"))
    }
}

/// Of the text in front of the closing bracket, which may hold pairs of brackets.
fn take_name<'a>(text: &mut &'a str) -> Result<&'a str, Error> {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if depth == 0 {
            let name = &text[..at];
            *text = &text[at + 1..];
            return Ok(name);
        }
    }
    Err(refuse("incomplete format key"))
}

fn number(spec: &Spec, kind: char, value: &Value) -> Result<String, Error> {
    let wrong = |what: &str| refuse(format!("%{kind} wants {what}, not a value of type {}", type_name(value)));
    let mut digits = match kind {
        'd' | 'i' | 'u' => {
            let number = as_integer(value).or_else(|| python::as_float(value).and_then(truncated));
            integer_digits(number.ok_or_else(|| wrong("a number"))?, 'd', false)
        }
        'o' | 'x' | 'X' => integer_digits(as_integer(value).ok_or_else(|| wrong("an integer"))?, kind, spec.alternate),
        _ => {
            let number = as_number(value).ok_or_else(|| wrong("a number"))?;
            return Ok(spec.assemble(float_digits(number, Some(kind), spec.precision, spec.alternate)));
        }
    };
    let missing = spec.precision.unwrap_or(0).saturating_sub(digits.whole.len());
    digits.whole.insert_str(0, &"0".repeat(missing));
    Ok(spec.assemble(digits))
}

fn field(spec: &Spec, kind: char, value: &Value) -> Result<String, Error> {
    let mut text = String::new();
    match kind {
        's' => python::push_str(&mut text, value)?,
        'r' => python::push_repr(&mut text, value)?,
        'a' => python::push_ascii(&mut text, value)?,
        'c' => {
            let code = as_integer(value).and_then(|code| u32::try_from(code).ok()).and_then(char::from_u32);
            let mut chars = value.as_str().unwrap_or_default().chars();
            let only = chars.next().filter(|_| chars.next().is_none());
            text.extend([code.or(only).ok_or_else(|| refuse("%c wants an integer or one character"))?]);
        }
        'd' | 'i' | 'u' | 'o' | 'x' | 'X' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G' => return number(spec, kind, value),
        _ => return Err(refuse(format!("unsupported format character '{kind}'"))),
    }
    let most = spec.precision.filter(|_| kind != 'c').unwrap_or(usize::MAX);
    let align = if spec.align == Some('<') { '<' } else { '>' };
    Ok(pad(&text.chars().take(most).collect::<String>(), align, ' ', spec.width))
}

fn take_spec(text: &mut &str, source: &mut Source) -> Result<Spec, Error> {
    let mut spec = Spec::default();
    while let Some(flag) = take(text, "#0- +") {
        match flag {
            '#' => spec.alternate = true,
            '0' => spec.zero = true,
            '-' => spec.align = Some('<'),
            // '+' wins over ' '.
            sign if spec.sign != Some('+') => spec.sign = Some(sign),
            _ => {}
        }
    }
    if take(text, "*").is_some() {
        let width = source.width()?;
        spec.align = spec.align.or((width < 0).then_some('<'));
        spec.width = bounded(Some(width.abs()))?;
    } else {
        spec.width = take_count(text)?.unwrap_or(0);
    }
    if take(text, ".").is_some() {
        let given = if take(text, "*").is_some() { bounded(Some(source.width()?.max(0)))? } else { 0 };
        spec.precision = Some(take_count(text)?.unwrap_or(given));
    }
    take(text, "hlL");
    // Zeros stand in front only.
    spec.zero &= spec.align.is_none();
    Ok(spec)
}

/// `text % arguments`: a tuple is a row of values, a mapping has names, anything else is one value.
pub fn format(text: &str, arguments: &Value) -> Result<Value, Error> {
    let row = if values::is_tuple(arguments) { values::items(arguments)? } else { vec![arguments.clone()] };
    let mut source = Source { arguments, row, used: 0 };
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        rest = after;
        let named = if take(&mut rest, "(").is_some() { Some(take_name(&mut rest)?) } else { None };
        let value = named.map(|name| source.named(name)).transpose()?;
        let spec = take_spec(&mut rest, &mut source)?;
        let mut chars = rest.chars();
        let kind = chars.next().ok_or_else(|| refuse("incomplete format"))?;
        rest = chars.as_str();
        if kind == '%' {
            out.push('%');
            continue;
        }
        let value = value.map_or_else(|| source.next(), Ok)?;
        out.push_str(&field(&spec, kind, &value)?);
        check_size(Some(out.len()))?;
    }
    out.push_str(rest);
    // Python lets lists pass too, which it takes for mappings.
    let may_be_left = matches!(arguments.kind(), ValueKind::Map | ValueKind::Seq) && !values::is_tuple(arguments);
    if source.used < source.row.len() && !may_be_left {
        return Err(refuse("not all arguments of the format are used"));
    }
    check_size(Some(out.len()))?;
    Ok(Value::from(out))
}
