//! Methods of texts: search, case, padding, tests of characters.

use super::super::arguments::Arguments;
use super::super::characters::{self, is_space};
use super::super::numbers::as_integer;
use super::super::values::{self, type_name};
use super::super::{format, python};
use super::Method;
use crate::limits::{check_size, refuse};
use minijinja::{Error, Value};

const BOUNDS: &[&str] = &["/sub", "/start", "/end"];

pub const METHODS: &[Method<str>] = &[
    ("capitalize", &[], |own, _| Ok(Value::from(capitalized(own)))),
    ("casefold", &[], |own, _| Ok(Value::from(unicase::UniCase::unicode(own).to_folded_case()))),
    ("center", &["/width", "/fillchar"], |own, args| pad(own, args, '^')),
    ("count", BOUNDS, count),
    ("endswith", BOUNDS, |own, args| affix(own, args, |text, end| text.ends_with(end))),
    ("expandtabs", &["tabsize"], expand_tabs),
    ("find", BOUNDS, |own, args| Ok(find(own, args, first)?.map_or(Value::from(-1), Value::from))),
    ("format", &["*"], |own, args| format::format_braces(own, args)),
    ("format_map", &["/mapping"], |own, args| format::format_map(own, args.required(0)?)),
    ("index", BOUNDS, |own, args| found(find(own, args, first)?)),
    ("isalnum", &[], |own, _| all(own, characters::is_alphanumeric)),
    ("isalpha", &[], |own, _| all(own, characters::is_letter)),
    ("isascii", &[], |own, _| Ok(Value::from(own.is_ascii()))),
    ("isdecimal", &[], |own, _| all(own, characters::is_decimal)),
    ("isdigit", &[], |own, _| all(own, characters::is_digit)),
    ("isidentifier", &[], |own, _| Ok(Value::from(characters::is_identifier(own)))),
    ("islower", &[], |own, _| Ok(Value::from(is_lower(own)))),
    ("isnumeric", &[], |own, _| all(own, characters::is_numeric)),
    ("isprintable", &[], |own, _| Ok(Value::from(own.chars().all(characters::is_printable)))),
    ("isspace", &[], |own, _| all(own, is_space)),
    ("istitle", &[], |own, _| Ok(Value::from(is_title(own)))),
    ("isupper", &[], |own, _| Ok(Value::from(is_upper(own)))),
    ("ljust", &["/width", "/fillchar"], |own, args| pad(own, args, '<')),
    ("lower", &[], |own, _| Ok(Value::from(own.to_lowercase()))),
    ("lstrip", &["/chars"], |own, args| strip(own, args, true, false)),
    ("maketrans", &["/from", "/to", "/without"], make_table),
    ("removeprefix", &["/prefix"], |own, args| Ok(Value::from(own.strip_prefix(args.text(0)?).unwrap_or(own)))),
    ("removesuffix", &["/suffix"], |own, args| Ok(Value::from(own.strip_suffix(args.text(0)?).unwrap_or(own)))),
    ("rfind", BOUNDS, |own, args| Ok(find(own, args, last)?.map_or(Value::from(-1), Value::from))),
    ("rindex", BOUNDS, |own, args| found(find(own, args, last)?)),
    ("rjust", &["/width", "/fillchar"], |own, args| pad(own, args, '>')),
    ("rstrip", &["/chars"], |own, args| strip(own, args, false, true)),
    ("startswith", BOUNDS, |own, args| affix(own, args, |text, start| text.starts_with(start))),
    ("strip", &["/chars"], |own, args| strip(own, args, true, true)),
    ("swapcase", &[], |own, _| Ok(Value::from(swapped(own)))),
    ("title", &[], |own, _| Ok(Value::from(titled(own)))),
    ("translate", &["/table"], translate),
    ("upper", &[], |own, _| Ok(Value::from(own.to_uppercase()))),
    ("zfill", &["/width"], zero_fill),
];

pub fn capitalized(text: &str) -> String {
    let mut out = String::new();
    if let Some(first) = text.chars().next() {
        characters::push_title(&mut out, first);
    }
    out.extend(lowered(text).skip(1));
    out
}

fn is_cased(c: char) -> bool {
    c.is_lowercase() || c.is_uppercase() || characters::is_title(c)
}

fn titled(text: &str) -> String {
    let (mut out, mut inside) = (String::new(), false);
    for (c, lower) in text.chars().zip(lowered(text)) {
        if inside {
            out.push_str(&lower);
        } else {
            characters::push_title(&mut out, c);
        }
        inside = is_cased(c);
    }
    out
}

fn is_lower(text: &str) -> bool {
    text.chars().any(char::is_lowercase) && !text.chars().any(|c| c.is_uppercase() || characters::is_title(c))
}

fn is_upper(text: &str) -> bool {
    text.chars().any(char::is_uppercase) && !text.chars().any(|c| c.is_lowercase() || characters::is_title(c))
}

fn is_title(text: &str) -> bool {
    let (mut inside, mut any) = (false, false);
    for c in text.chars() {
        let begins = c.is_uppercase() || characters::is_title(c);
        if (begins && inside) || (c.is_lowercase() && !inside) {
            return false;
        }
        inside = is_cased(c);
        any |= inside;
    }
    any
}

fn swapped(text: &str) -> String {
    let mut out = String::new();
    for (c, lower) in text.chars().zip(lowered(text)) {
        match (c.is_uppercase(), c.is_lowercase()) {
            (true, _) => out.push_str(&lower),
            (_, true) => out.extend(c.to_uppercase()),
            _ => out.push(c),
        }
    }
    out
}

/// Each character in lower case. A large sigma has two, by what stands around it.
fn lowered(text: &str) -> impl Iterator<Item = String> + '_ {
    let whole = text.to_lowercase();
    let mut at = 0;
    text.chars().map(move |c| {
        let size: usize = c.to_lowercase().map(char::len_utf8).sum();
        at += size;
        whole[at - size..at].to_string()
    })
}

fn all(text: &str, has: fn(char) -> bool) -> Result<Value, Error> {
    Ok(Value::from(!text.is_empty() && text.chars().all(has)))
}

/// `text[start:end]` and the place of its start, in characters. Nothing: it starts behind the end.
fn bounded<'a>(own: &'a str, args: &Arguments) -> Result<Option<(usize, &'a str)>, Error> {
    let size = own.chars().count() as i128;
    let place = |bound: i128| if bound < 0 { (bound + size).max(0) } else { bound };
    let start = place(args.optional_integer(1)?.unwrap_or(0));
    let end = place(args.optional_integer(2)?.unwrap_or(size)).min(size);
    if start > end {
        return Ok(None);
    }
    let byte = |place: i128| own.char_indices().nth(place as usize).map_or(own.len(), |(at, _)| at);
    Ok(Some((start as usize, &own[byte(start)..byte(end)])))
}

fn first(text: &str, sub: &str) -> Option<usize> {
    text.find(sub)
}

fn last(text: &str, sub: &str) -> Option<usize> {
    text.rfind(sub)
}

/// In characters.
fn find(own: &str, args: &Arguments, search: fn(&str, &str) -> Option<usize>) -> Result<Option<usize>, Error> {
    let sub = args.text(0)?;
    let Some((start, text)) = bounded(own, args)? else { return Ok(None) };
    Ok(search(text, sub).map(|at| start + text[..at].chars().count()))
}

fn found(place: Option<usize>) -> Result<Value, Error> {
    place.map(Value::from).ok_or_else(|| refuse("substring not found"))
}

fn count(own: &str, args: &Arguments) -> Result<Value, Error> {
    let sub = args.text(0)?;
    Ok(Value::from(bounded(own, args)?.map_or(0, |(_, text)| text.matches(sub).count())))
}

/// One text or a tuple of them.
fn affix(own: &str, args: &Arguments, has: fn(&str, &str) -> bool) -> Result<Value, Error> {
    let given = args.required(0)?;
    let wanted = if values::is_tuple(given) { values::items(given)? } else { vec![given.clone()] };
    let part = bounded(own, args)?;
    for one in &wanted {
        let Some(one) = one.as_str() else {
            return Err(refuse(format!("a text or a tuple of texts is expected, not {}", type_name(one))));
        };
        if part.is_some_and(|(_, text)| has(text, one)) {
            return Ok(Value::from(true));
        }
    }
    Ok(Value::from(false))
}

fn strip(own: &str, args: &Arguments, left: bool, right: bool) -> Result<Value, Error> {
    strip_with(own, args.optional_text(0)?, left, right)
}

/// Without chars: spaces.
pub fn strip_with(own: &str, chars: Option<&str>, left: bool, right: bool) -> Result<Value, Error> {
    let is_stripped = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if left { own.trim_start_matches(is_stripped) } else { own };
    Ok(Value::from(if right { text.trim_end_matches(is_stripped) } else { text }))
}

/// A text in the middle has the odd column on its right, or on its left where the width is odd.
pub fn padded(own: &str, align: char, fill: char, width: usize) -> Result<Value, Error> {
    let missing = width.saturating_sub(own.chars().count());
    let left = match align {
        '<' => 0,
        '^' => missing / 2 + (missing & width & 1),
        _ => missing,
    };
    let fill = |count: usize| fill.to_string().repeat(count);
    Ok(Value::from(format!("{}{own}{}", fill(left), fill(missing - left))))
}

fn pad(own: &str, args: &Arguments, align: char) -> Result<Value, Error> {
    args.required(0)?;
    let mut fill = args.given(1).map_or(Ok(" "), |_| args.text(1))?.chars();
    match (fill.next(), fill.next()) {
        (Some(only), None) => padded(own, align, only, args.count(0, 0)?),
        _ => Err(refuse("the fill character must be one character long")),
    }
}

fn zero_fill(own: &str, args: &Arguments) -> Result<Value, Error> {
    args.required(0)?;
    let missing = args.count(0, 0)?.saturating_sub(own.chars().count());
    let sign = own.len() - own.strip_prefix(['+', '-']).unwrap_or(own).len();
    Ok(Value::from(format!("{}{}{}", &own[..sign], "0".repeat(missing), &own[sign..])))
}

fn expand_tabs(own: &str, args: &Arguments) -> Result<Value, Error> {
    let size = args.count(0, 8)?;
    let (mut out, mut column) = (String::new(), 0);
    for c in own.chars() {
        match c {
            '\t' => {
                let missing = if size == 0 { 0 } else { size - column % size };
                out.push_str(&" ".repeat(missing));
                column += missing;
            }
            c => {
                out.push(c);
                column = if c == '\n' || c == '\r' { 0 } else { column + 1 };
            }
        }
        check_size(Some(out.len()))?;
    }
    Ok(Value::from(out))
}

/// A table for translate: from the numbers of characters.
fn make_table(_: &str, args: &Arguments) -> Result<Value, Error> {
    let code = |c: char| Value::from(c as u32);
    let Some(_) = args.given(1) else {
        let pairs = values::pairs(args.required(0)?)?.into_iter().map(|(key, value)| {
            let mut chars = key.as_str().unwrap_or_default().chars();
            match (chars.next(), chars.next()) {
                (Some(only), None) => Ok((code(only), value)),
                _ if as_integer(&key).is_some() => Ok((key, value)),
                _ => Err(refuse("maketrans(): a key must be an integer or one character")),
            }
        });
        return Ok(Value::from_pairs(pairs.collect::<Result<Vec<_>, _>>()?));
    };
    let (from, to) = (args.text(0)?, args.text(1)?);
    if from.chars().count() != to.chars().count() {
        return Err(refuse("maketrans(): the two texts must be of one length"));
    }
    let without = args.given(2).map_or(Ok(""), |_| args.text(2))?;
    let pairs = from.chars().zip(to.chars()).map(|(a, b)| (code(a), code(b)));
    Ok(Value::from_pairs(pairs.chain(without.chars().map(|c| (code(c), Value::from(()))))))
}

fn translate(own: &str, args: &Arguments) -> Result<Value, Error> {
    let (table, mut out) = (args.required(0)?, String::new());
    for c in own.chars() {
        let found = table.get_item(&Value::from(c as u32))?;
        match as_integer(&found).map(|code| u32::try_from(code).ok().and_then(char::from_u32)) {
            Some(Some(other)) => out.push(other),
            Some(None) => return Err(refuse("translate(): no character has such a number")),
            None if found.is_undefined() => out.push(c),
            None if found.is_none() => {}
            None => out.push_str(&python::text_of(&found)?),
        }
        check_size(Some(out.len()))?;
    }
    Ok(Value::from(out))
}
