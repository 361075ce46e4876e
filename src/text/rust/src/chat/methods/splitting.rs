//! Methods of texts that take them apart, or put texts together.

use super::super::arguments::Arguments;
use super::super::characters::{is_space, lines};
use super::super::{python, values};
use super::Method;
use crate::limits::{check_size, refuse};
use minijinja::{Error, Value};

pub const METHODS: &[Method<str>] = &[
    ("join", &["/items"], |own, args| join(&values::items(args.required(0)?)?, own, true)),
    ("partition", &["/sep"], |own, args| partition(own, args, own.split_once(separator(args)?), false)),
    ("replace", &["/old", "/new", "count"], |own, args| {
        replace(own, args.text(0)?, args.text(1)?, args.optional_integer(2)?)
    }),
    ("rpartition", &["/sep"], |own, args| partition(own, args, own.rsplit_once(separator(args)?), true)),
    ("rsplit", &["sep", "maxsplit"], |own, args| split(own, args, true)),
    ("split", &["sep", "maxsplit"], |own, args| split(own, args, false)),
    ("splitlines", &["keepends"], |own, args| Ok(lines(own, args.flag(0, false)).into_iter().collect())),
];

/// only_texts: as the method, which refuses other items; the filter writes them.
pub fn join(items: &[Value], separator: &str, only_texts: bool) -> Result<Value, Error> {
    let mut out = String::new();
    for (place, item) in items.iter().enumerate() {
        if only_texts && item.as_str().is_none() {
            return Err(refuse(format!("join(): item {place} is no text but of type {}", values::type_name(item))));
        }
        out.push_str(if place > 0 { separator } else { "" });
        python::push_str(&mut out, item)?;
        check_size(Some(out.len()))?;
    }
    Ok(Value::from(out))
}

pub fn replace(text: &str, old: &str, new: &str, count: Option<i128>) -> Result<Value, Error> {
    let limit = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    let found = text.matches(old).take(limit).count();
    check_size(found.checked_mul(new.len()).and_then(|n| n.checked_add(text.len())))?;
    Ok(Value::from(text.replacen(old, new, limit)))
}

fn separator<'a>(args: &'a Arguments) -> Result<&'a str, Error> {
    match args.text(0)? {
        "" => Err(refuse("empty separator")),
        separator => Ok(separator),
    }
}

fn partition(own: &str, args: &Arguments, found: Option<(&str, &str)>, at_end: bool) -> Result<Value, Error> {
    let parts = match found {
        Some((before, after)) => [before, args.text(0)?, after],
        None if at_end => ["", "", own],
        None => [own, "", ""],
    };
    Ok(values::tuple(parts.map(Value::from)))
}

/// At runs of space. What is left when the limit is reached keeps the spaces at its far end.
fn split_at_spaces(own: &str, limit: usize, from_end: bool) -> Vec<&str> {
    let near =
        |text| if from_end { str::trim_end_matches(text, is_space) } else { str::trim_start_matches(text, is_space) };
    let mut parts = Vec::new();
    let mut rest = near(own);
    while !rest.is_empty() {
        let at = if from_end { rest.rfind(is_space) } else { rest.find(is_space) };
        let Some(at) = at.filter(|_| parts.len() < limit) else {
            parts.push(rest);
            break;
        };
        let (before, after) = rest.split_at(at);
        let (part, other) = if from_end { (after, before) } else { (before, after) };
        parts.push(part.trim_matches(is_space));
        rest = near(other);
    }
    parts
}

fn split(own: &str, args: &Arguments, from_end: bool) -> Result<Value, Error> {
    let limit = args.integer(1)?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let mut parts: Vec<&str> = match args.some(0) {
        None => split_at_spaces(own, limit, from_end),
        Some(_) if from_end => own.rsplitn(limit.saturating_add(1), separator(args)?).collect(),
        Some(_) => own.splitn(limit.saturating_add(1), separator(args)?).collect(),
    };
    if from_end {
        parts.reverse();
    }
    Ok(parts.into_iter().collect())
}
