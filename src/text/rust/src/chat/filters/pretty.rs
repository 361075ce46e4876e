//! Python's `pprint.pformat`: `repr()`, in several lines where one would have more than 80 columns.

use super::super::characters::{is_space, lines};
use super::super::{objects, python, values};
use super::Filter;
use crate::limits::check_size;
use minijinja::value::ValueKind;
use minijinja::{Error, Value};

const WIDTH: usize = 80;

pub const FILTERS: &[Filter] = &[("pprint", &[], |_, value, _| {
    let mut out = String::new();
    push(&mut out, value, 0, 0, 1)?;
    Ok(Value::from(out))
})];

/// Mappings are shown in the order of their keys.
fn sorted_pairs(value: &Value) -> Result<Vec<(Value, Value)>, Error> {
    let pairs = values::pairs(value)?;
    Ok(values::sorted(pairs.clone(), false).unwrap_or(pairs))
}

fn repr(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    match value.kind() {
        ValueKind::Map => {
            for (key, value) in sorted_pairs(value)? {
                let comma = if out.is_empty() { "" } else { ", " };
                out.push_str(&format!("{comma}{}: {}", repr(&key)?, repr(&value)?));
            }
            out = format!("{{{out}}}");
        }
        ValueKind::Seq if !objects::is_range(value) => {
            let items = values::items(value)?.iter().map(repr).collect::<Result<Vec<_>, _>>()?;
            let (open, close) = brackets(value, items.len());
            out = format!("{open}{}{close}", items.join(", "));
        }
        _ => python::push_repr(&mut out, value)?,
    }
    check_size(Some(out.len()))?;
    Ok(out)
}

fn brackets(value: &Value, items: usize) -> (&'static str, &'static str) {
    match (values::is_tuple(value), items) {
        (true, 1) => ("(", ",)"),
        (true, _) => ("(", ")"),
        _ => ("[", "]"),
    }
}

/// indent: the column where the value begins; after: how many columns stand behind its end.
fn push(out: &mut String, value: &Value, indent: usize, after: usize, depth: usize) -> Result<(), Error> {
    let line = repr(value)?;
    if line.chars().count() + indent + after <= WIDTH {
        out.push_str(&line);
        return Ok(());
    }
    check_size(Some(out.len() + indent))?;
    let next_line = format!(",\n{}", " ".repeat(indent + 1));
    match value.kind() {
        ValueKind::Map => {
            let pairs = sorted_pairs(value)?;
            out.push('{');
            for (place, (key, value)) in pairs.iter().enumerate() {
                let key = repr(key)?;
                out.push_str(if place > 0 { &next_line } else { "" });
                out.push_str(&format!("{key}: "));
                let after = if place + 1 == pairs.len() { after + 1 } else { 1 };
                push(out, value, indent + key.chars().count() + 3, after, depth + 1)?;
            }
            out.push('}');
        }
        ValueKind::Seq => {
            let items = values::items(value)?;
            let (open, close) = brackets(value, items.len());
            out.push_str(open);
            for (place, item) in items.iter().enumerate() {
                out.push_str(if place > 0 { &next_line } else { "" });
                let after = if place + 1 == items.len() { after + close.len() } else { 1 };
                push(out, item, indent + 1, after, depth + 1)?;
            }
            out.push_str(close);
        }
        ValueKind::String => push_text(out, value.as_str().unwrap_or_default(), indent, after, depth == 1)?,
        _ => out.push_str(&line),
    }
    Ok(())
}

/// A long text becomes several ones in a row, cut behind spaces; in brackets where it stands alone.
fn push_text(out: &mut String, text: &str, indent: usize, after: usize, alone: bool) -> Result<(), Error> {
    let (indent, after) = (indent + usize::from(alone), after + usize::from(alone));
    let room = WIDTH.saturating_sub(indent);
    let repr = |text: &str| repr(&Value::from(text));
    let mut chunks = Vec::new();
    let lines = lines(text, true);
    for (place, line) in lines.iter().enumerate() {
        let is_last = place + 1 == lines.len();
        let whole = repr(line)?;
        if whole.chars().count() <= room.saturating_sub(if is_last { after } else { 0 }) {
            chunks.push(whole);
            continue;
        }
        let words: Vec<&str> = words(line);
        let mut current = String::new();
        for (place, word) in words.iter().enumerate() {
            let room = room.saturating_sub(if is_last && place + 1 == words.len() { after } else { 0 });
            let candidate = format!("{current}{word}");
            if repr(&candidate)?.chars().count() <= room {
                current = candidate;
                continue;
            }
            if !current.is_empty() {
                chunks.push(repr(&current)?);
            }
            current = word.to_string();
        }
        if !current.is_empty() {
            chunks.push(repr(&current)?);
        }
    }
    let is_one = chunks.len() == 1;
    let text = chunks.join(&format!("\n{}", " ".repeat(indent)));
    out.push_str(&if alone && !is_one { format!("({text})") } else { text });
    Ok(())
}

/// Each with the spaces behind it.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let word = rest.find(is_space).unwrap_or(rest.len());
        let end = rest[word..].find(|c| !is_space(c)).map_or(rest.len(), |spaces| word + spaces);
        words.push(&rest[..end]);
        rest = &rest[end..];
    }
    words
}
