//! Filters of texts. As in Jinja2, a value of another type is written first, and one that is not defined is empty.

use super::super::methods::{self, capitalized};
use super::super::{characters, format, python, values};
use super::Filter;
use crate::limits::refuse;
use minijinja::Value;

pub const FILTERS: &[Filter] = &[
    ("capitalize", &[], |_, value, _| Ok(Value::from(capitalized(&python::text_of(value)?)))),
    ("center", &["width"], |_, value, args| methods::padded(&python::text_of(value)?, '^', ' ', args.count(0, 80)?)),
    ("format", &["*"], |_, value, args| {
        let text = python::text_of(value)?;
        if args.named.is_empty() {
            return format::format_percent(&text, &values::tuple(args.further.clone()));
        }
        if !args.further.is_empty() {
            return Err(refuse("format() takes arguments with names or without, not both"));
        }
        format::format_percent(&text, &Value::from_pairs(args.named.clone()))
    }),
    ("join", &["d", "attribute"], |_, value, args| {
        let path = values::Path::new(args.some(1));
        let items = values::items(value)?.iter().map(|item| path.get(item, None)).collect::<Result<Vec<_>, _>>()?;
        methods::join(&items, &args.as_text(0, "")?, false)
    }),
    ("lower", &[], |_, value, _| Ok(Value::from(python::text_of(value)?.to_lowercase()))),
    ("replace", &["old", "new", "count"], |_, value, args| {
        args.required(0).and(args.required(1))?;
        let (old, new) = (args.as_text(0, "")?, args.as_text(1, "")?);
        methods::replace(&python::text_of(value)?, &old, &new, args.optional_integer(2)?)
    }),
    ("string", &[], |_, value, _| match value.as_str() {
        Some(_) => Ok(value.clone()),
        None => Ok(Value::from(python::text_of(value)?)),
    }),
    ("title", &[], |_, value, _| Ok(Value::from(titled(&python::text_of(value)?)))),
    ("trim", &["chars"], |_, value, args| {
        methods::strip_with(&python::text_of(value)?, args.optional_text(0)?, true, true)
    }),
    ("upper", &[], |_, value, _| Ok(Value::from(python::text_of(value)?.to_uppercase()))),
    ("wordcount", &[], |_, value, _| {
        let is_word = |c: char| c == '_' || characters::is_alphanumeric(c);
        let text = python::text_of(value)?;
        Ok(Value::from(text.split(|c| !is_word(c)).filter(|word| !word.is_empty()).count()))
    }),
];

/// Words begin after spaces, hyphens and opening brackets: not where the method of the same name has them begin.
fn titled(text: &str) -> String {
    let is_between = |c: char| characters::is_space(c) || "-({[<".contains(c);
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(is_between).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let first = word.chars().next().map_or(0, char::len_utf8);
        out.push_str(&word[..first].to_uppercase());
        out.push_str(&word[first..].to_lowercase());
        let end = after.find(|c| !is_between(c)).unwrap_or(after.len());
        out.push_str(&after[..end]);
        rest = &after[end..];
    }
    out
}
