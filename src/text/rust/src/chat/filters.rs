//! Filters, tests and functions as Hugging Face templates expect them. Those whose result can be larger than
//! the sum of their inputs (replace, join, indent, ...) check the size of the result before they make it.

use super::operators::{as_integer, as_number, concat};
use super::python::{self, JsonStyle};
use super::{methods, operators};
use crate::limits::{self, check_size, refuse};
use minijinja::formatting::{format, FormatStyle};
use minijinja::value::{from_args, Kwargs, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, State, Value};

/// No template needs more columns, groups or digits than this.
const MAX_COUNT: usize = 10_000;

pub fn register(env: &mut Environment<'_>) {
    for unbounded in ["pprint", "sum", "zip", "chain"] {
        env.remove_filter(unbounded);
    }
    env.remove_global("debug");
    operators::register(env);
    env.add_filter("tojson", tojson);
    env.add_filter("string", string);
    env.add_filter("length", length);
    env.add_filter("count", length);
    env.add_filter("join", join);
    env.add_filter("replace", replace);
    env.add_filter("default", default);
    env.add_filter("d", default);
    env.add_filter("float", float);
    env.add_filter("int", int);
    env.add_filter("sort", sort);
    env.add_filter("indent", indent);
    env.add_filter("format", |text: &str, args: Rest<Value>| formatted(FormatStyle::Printf, text, &args));
    env.add_filter("batch", |state: &State, value: Value, count: usize, fill: Option<Value>| {
        limits::tick()?;
        minijinja::filters::batch(state, value, bounded(count)?, fill)
    });
    env.remove_filter("slice");
    for (name, wanted) in [("in", true), ("notin", false)] {
        env.add_test(name, move |state: &State, value: &Value, other: &Value| {
            limits::tick()?;
            minijinja::tests::is_in(state, value, other).map(|found| found == wanted)
        });
    }
    for name in ["eq", "equalto", "=="] {
        env.add_test(name, |a: &Value, b: &Value| limits::tick().map(|_| a == b));
    }
    for name in ["ne", "!="] {
        env.add_test(name, |a: &Value, b: &Value| limits::tick().map(|_| a != b));
    }
    // In Python texts and mappings have a length and items, so Jinja2 calls them sequences too.
    env.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Undefined | ValueKind::String | ValueKind::Seq | ValueKind::Map)
    });
    env.add_test("iterable", |value: &Value| value.kind() != ValueKind::None && value.try_iter().is_ok());
    env.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
    env.add_function("raise_exception", |message: &Value| -> Result<Value, Error> {
        let mut text = String::new();
        python::push_str(&mut text, message)?;
        Err(refuse(text))
    });
    env.add_function("strftime_now", strftime_now);
    env.set_unknown_method_callback(methods::method);
}

/// A width or precision has digits and a field can name the same argument again, so both are bounded from the text.
pub fn formatted(style: FormatStyle, text: &str, args: &[Value]) -> Result<Value, Error> {
    if text
        .split(|c: char| !c.is_ascii_digit())
        .any(|digits| digits.parse().unwrap_or(0) > MAX_COUNT || digits.len() > 9)
    {
        return Err(refuse(format!("a format width above {MAX_COUNT} is not supported")));
    }
    let fields = text.matches(['{', '%']).count();
    let mut weight = MAX_COUNT.min(text.len() * 8);
    for arg in args {
        weight += limits::weigh(arg)?;
    }
    check_size(weight.checked_mul(fields.max(1)).and_then(|n| n.checked_add(text.len())))?;
    format(style, text, args).map(Value::from)
}

fn bounded(count: usize) -> Result<usize, Error> {
    if count > MAX_COUNT {
        return Err(refuse(format!("{count} is more than the largest supported count, {MAX_COUNT}")));
    }
    Ok(count)
}

/// `value` spaces; none for a negative number, as in Python.
fn spaces(value: &Value) -> Result<String, Error> {
    let count = as_integer(value).ok_or_else(|| refuse("a number or a text is expected as the width"))?;
    Ok(" ".repeat(bounded(usize::try_from(count.max(0)).unwrap_or(usize::MAX))?))
}

fn string(value: &Value) -> Result<Value, Error> {
    concat(value, &Value::UNDEFINED)
}

fn length(value: &Value) -> Result<usize, Error> {
    limits::tick()?;
    if value.is_undefined() {
        return Ok(0);
    }
    value.len().ok_or_else(|| refuse(format!("a value of type {} has no length", value.kind())))
}

pub fn join(value: &Value, joiner: Option<&str>, attribute: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let joiner = joiner.or(kwargs.get("d")?).unwrap_or("");
    let attribute = attribute.or(kwargs.get("attribute")?);
    kwargs.assert_all_used()?;
    let mut text = String::new();
    if value.is_undefined() {
        return Ok(Value::from(text));
    }
    for (index, item) in value.try_iter()?.checked().enumerate() {
        let item = item?;
        text.push_str(if index > 0 { joiner } else { "" });
        match &attribute {
            Some(name) => python::push_str(&mut text, &item.get_item(name)?)?,
            None => python::push_str(&mut text, &item)?,
        }
        check_size(Some(text.len()))?;
    }
    Ok(Value::from(text))
}

pub fn replace(text: &str, from: &str, to: &str, count: Option<i64>, kwargs: Kwargs) -> Result<Value, Error> {
    let count = count.or(kwargs.get("count")?);
    kwargs.assert_all_used()?;
    let limit = count.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    let found = text.matches(from).take(limit).count();
    check_size(found.checked_mul(to.len()).and_then(|n| n.checked_add(text.len())))?;
    Ok(Value::from(text.replacen(from, to, limit)))
}

fn default(value: &Value, other: Option<Value>, boolean: Option<bool>, kwargs: Kwargs) -> Result<Value, Error> {
    let other = other.or(kwargs.get("default_value")?).unwrap_or(Value::from(""));
    let boolean = boolean.or(kwargs.get("boolean")?).unwrap_or(false);
    kwargs.assert_all_used()?;
    Ok(if value.is_undefined() || (boolean && !value.is_true()) { other } else { value.clone() })
}

fn parsed_float(value: &Value) -> Option<f64> {
    as_number(value).or_else(|| value.as_str()?.trim().parse().ok())
}

fn float(value: &Value, default: Option<Value>) -> Value {
    parsed_float(value).map(Value::from).or(default).unwrap_or(Value::from(0.0))
}

fn int(value: &Value, default: Option<Value>) -> Value {
    let text = value.as_str().and_then(|text| text.trim().parse::<i64>().ok());
    let exact = text.or_else(|| as_integer(value).and_then(|n| i64::try_from(n).ok()));
    let rounded = || parsed_float(value).filter(|x| x.abs() < 9e18).map(|x| x as i64);
    exact.or_else(rounded).map(Value::from).or(default).unwrap_or(Value::from(0))
}

/// The engine's sort takes its options by name only; Jinja2 also takes them in this order.
fn sort(state: &mut State, value: Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = args.into_values();
    let (reverse, case_sensitive, attribute, kwargs): (Option<bool>, Option<bool>, Option<Value>, Kwargs) =
        from_args(&args)?;
    let mut options: Vec<(String, Value)> = Vec::new();
    for name in kwargs.args() {
        options.push((name.to_string(), kwargs.get(name)?));
    }
    options.extend(reverse.map(|v| ("reverse".into(), Value::from(v))));
    options.extend(case_sensitive.map(|v| ("case_sensitive".into(), Value::from(v))));
    options.extend(attribute.map(|v| ("attribute".into(), v)));
    minijinja::filters::sort(state, value, Kwargs::from_iter(options))
}

/// `indent(width=4, first=False, blank=False)`; `width` is a number of spaces or the text itself.
fn indent(
    text: &str,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let width = width.or(kwargs.get("width")?).unwrap_or(Value::from(4));
    let first = first.or(kwargs.get("first")?).unwrap_or(false);
    let blank = blank.or(kwargs.get("blank")?).unwrap_or(false);
    kwargs.assert_all_used()?;
    let margin = match width.as_str() {
        Some(margin) => margin.to_string(),
        None => spaces(&width)?,
    };
    let lines = text.matches('\n').count() + 1;
    check_size(lines.checked_mul(margin.len()).and_then(|n| n.checked_add(text.len())))?;
    let mut out = String::new();
    for (index, line) in text.split('\n').enumerate() {
        out.push_str(if index > 0 { "\n" } else { "" });
        let wanted = if index == 0 { first } else { blank || !line.is_empty() };
        out.push_str(if wanted { &margin } else { "" });
        out.push_str(line);
    }
    Ok(Value::from(out))
}

/// `json.dumps`, with the defaults that Hugging Face sets; nothing is escaped for HTML.
fn tojson(value: &Value, ensure_ascii: Option<bool>, indent: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let indent = indent.or(kwargs.get::<Option<Value>>("indent")?).filter(|v| !v.is_none());
    let indent = indent.map(|v| v.as_str().map_or_else(|| spaces(&v), |text| Ok(text.to_string()))).transpose()?;
    let separators = kwargs.get::<Option<Value>>("separators")?.filter(|v| !v.is_none());
    let separator = |index: usize, default: &str| match &separators {
        Some(pair) => pair.get_item_by_index(index).map(|text| text.to_string()),
        None => Ok(default.to_string()),
    };
    let style = JsonStyle {
        ensure_ascii: ensure_ascii.or(kwargs.get("ensure_ascii")?).unwrap_or(false),
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        item_separator: separator(0, if indent.is_some() { "," } else { ", " })?,
        key_separator: separator(1, ": ")?,
        indent,
    };
    kwargs.assert_all_used()?;
    let mut out = String::new();
    style.push(&mut out, value, 0)?;
    Ok(Value::from(out))
}

/// The local time in C's `strftime` notation, which is what Python's `datetime.strftime` uses.
fn strftime_now(pattern: &str) -> Result<String, Error> {
    let pattern = std::ffi::CString::new(pattern).map_err(|_| refuse("strftime_now: the format holds a zero byte"))?;
    let mut buffer = [0u8; 1024];
    // Safety: the pointers are to live locals of the sizes given.
    let size = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut parts: libc::tm = std::mem::zeroed();
        libc::localtime_r(&now, &mut parts);
        libc::strftime(buffer.as_mut_ptr().cast(), buffer.len(), pattern.as_ptr(), &parts)
    };
    Ok(String::from_utf8_lossy(&buffer[..size]).into_owned())
}
