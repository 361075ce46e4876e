//! Python's three ways to write values into a text: `'%s' % x`, `'{}'.format(x)` and the specification behind a colon.

mod braces;
mod percent;
mod spec;

pub use braces::{format as format_braces, format_map};
pub use percent::format as format_percent;

use super::arguments::MAX_COUNT;
use crate::limits::refuse;
use minijinja::Error;

/// A width or precision.
fn bounded(count: Option<i128>) -> Result<usize, Error> {
    let count = count.and_then(|count| usize::try_from(count).ok()).filter(|count| *count <= MAX_COUNT);
    count.ok_or_else(|| refuse(format!("a format width above {MAX_COUNT} is not supported")))
}

/// Takes a number off the front.
fn take_count(text: &mut &str) -> Result<Option<usize>, Error> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, rest) = text.split_at(digits);
    *text = rest;
    if digits == 0 {
        return Ok(None);
    }
    bounded(number.parse().ok()).map(Some)
}

fn take(text: &mut &str, wanted: &str) -> Option<char> {
    let first = text.chars().next().filter(|c| wanted.contains(*c))?;
    *text = &text[first.len_utf8()..];
    Some(first)
}
