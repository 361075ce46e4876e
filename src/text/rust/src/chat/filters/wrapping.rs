//! Filters that cut a text or break its lines.

use super::super::arguments::Arguments;
use super::super::characters::{is_letter, is_numeric, is_space, lines};
use super::super::values;
use super::super::values::type_name;
use super::Filter;
use crate::limits::{check_size, refuse};
use minijinja::{Error, Value};

pub const FILTERS: &[Filter] = &[
    ("indent", &["width", "first", "blank"], |_, value, args| indent(text(value)?, args)),
    ("truncate", &["length", "killwords", "end", "leeway"], |_, value, args| truncate(value, args)),
    ("wordwrap", &["width", "break_long_words", "wrapstring", "break_on_hyphens"], |_, value, args| {
        let newline = args.optional_text(2)?.unwrap_or("\n");
        let wrapper =
            Wrapper { width: args.count(0, 79)?, break_words: args.flag(1, true), at_hyphens: args.flag(3, true) };
        if wrapper.width == 0 {
            return Err(refuse("wordwrap(): the width must be above 0"));
        }
        let mut out = String::new();
        for (place, line) in lines(text(value)?, false).into_iter().enumerate() {
            out.push_str(if place > 0 { newline } else { "" });
            out.push_str(&wrapper.wrap(line).join(newline));
            check_size(Some(out.len()))?;
        }
        Ok(Value::from(out))
    }),
];

fn text(value: &Value) -> Result<&str, Error> {
    value.as_str().ok_or_else(|| refuse(format!("a text is expected, not a value of type {}", type_name(value))))
}

/// `width` is a number of spaces or the text itself. The first line and empty ones stay as they are.
fn indent(text: &str, args: &Arguments) -> Result<Value, Error> {
    let margin = match args.given(0).and_then(Value::as_str) {
        Some(margin) => margin.to_string(),
        None => " ".repeat(args.count(0, 4)?),
    };
    let (first, blank) = (args.flag(1, false), args.flag(2, false));
    let text = format!("{text}\n");
    let lines = lines(&text, false);
    check_size(lines.len().checked_mul(margin.len() + 1).and_then(|n| n.checked_add(text.len())))?;
    let mut out = String::new();
    for (index, line) in lines.into_iter().enumerate() {
        out.push_str(if index > 0 { "\n" } else { "" });
        let wanted = if index == 0 { first } else { blank || !line.is_empty() };
        out.push_str(if wanted { &margin } else { "" });
        out.push_str(line);
    }
    Ok(Value::from(out))
}

/// A text is cut only if it is longer by more than the leeway.
fn truncate(value: &Value, args: &Arguments) -> Result<Value, Error> {
    let length = args.integer(0)?.unwrap_or(255);
    let end = args.given(2).map_or(Ok("..."), |_| args.text(2))?;
    let leeway = args.optional_integer(3)?.unwrap_or(5);
    let kept = length - end.chars().count() as i128;
    if kept < 0 || leeway < 0 {
        return Err(refuse("truncate(): the length must not be below that of the end, nor the leeway below 0"));
    }
    if values::length(value)? as i128 <= length + leeway {
        return Ok(value.clone());
    }
    let head: String = text(value)?.chars().take(kept as usize).collect();
    let words = if args.flag(1, false) { head.as_str() } else { head.rsplit_once(' ').map_or(&*head, |(a, _)| a) };
    Ok(Value::from(format!("{words}{end}")))
}

/// Python's `textwrap`, which keeps tabs and the spaces inside a line.
struct Wrapper {
    width: usize,
    break_words: bool,
    at_hyphens: bool,
}

fn is_wide_space(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\u{b}' | '\u{c}' | '\r' | ' ')
}

fn is_blank(chunk: &[char]) -> bool {
    chunk.iter().all(|c| is_space(*c))
}

fn is_word(c: char) -> bool {
    c == '_' || is_letter(c) || is_numeric(c)
}

/// Whether two or more hyphens with a word behind them stand at `at`, and how many.
fn dashes(text: &[char], at: usize) -> Option<usize> {
    let count = text[at..].iter().take_while(|c| **c == '-').count();
    (count >= 2 && text.get(at + count).is_some_and(|c| is_word(*c))).then_some(count)
}

impl Wrapper {
    /// Where the word that begins at `start` may end: at a space, behind a hyphen between letters, before a dash.
    fn word_end(&self, text: &[char], start: usize) -> usize {
        let is_letter = |at: usize| text.get(at).is_some_and(|c| is_word(*c) && !is_numeric(*c));
        let ends_word = |at: usize| at > 0 && (is_word(text[at - 1]) || "!\"'&.,?".contains(text[at - 1]));
        for end in start + 1..text.len() {
            if is_wide_space(text[end]) {
                return end;
            }
            if !self.at_hyphens {
                continue;
            }
            let behind = (end >= 2 && is_letter(end - 2) && is_letter(end - 1))
                || (end >= 3 && is_letter(end - 3) && text[end - 2] == '-' && ends_word(end));
            let after = end + 1 + usize::from(text.get(end + 2) == Some(&'-'));
            if text[end] == '-' && behind && is_letter(end + 1) && is_letter(after + usize::from(after == end + 1)) {
                return end + 1;
            }
            if ends_word(end) && dashes(text, end).is_some() {
                return end;
            }
        }
        text.len()
    }

    fn chunks<'a>(&self, text: &'a [char]) -> Vec<&'a [char]> {
        let ends_word = |at: usize| at > 0 && (is_word(text[at - 1]) || "!\"'&.,?".contains(text[at - 1]));
        let mut chunks = Vec::new();
        let mut start = 0;
        while start < text.len() {
            let end = if is_wide_space(text[start]) {
                start + text[start..].iter().take_while(|c| is_wide_space(**c)).count()
            } else {
                let dash = dashes(text, start).filter(|_| self.at_hyphens && ends_word(start));
                dash.map_or_else(|| self.word_end(text, start), |count| start + count)
            };
            chunks.push(&text[start..end]);
            start = end;
        }
        chunks
    }

    /// Of a word that is longer than a line: what still fits, up to a hyphen if there is one.
    fn cut(&self, chunk: &[char], left: usize) -> usize {
        let hyphen = chunk[..left.min(chunk.len())].iter().rposition(|c| *c == '-');
        match hyphen.filter(|at| self.at_hyphens && chunk.len() > left && chunk[..*at].iter().any(|c| *c != '-')) {
            Some(at) => at + 1,
            None => left.min(chunk.len()),
        }
    }

    fn wrap(&self, text: &str) -> Vec<String> {
        let text: Vec<char> = text.chars().collect();
        let mut chunks = self.chunks(&text);
        chunks.reverse();
        let mut lines: Vec<String> = Vec::new();
        while let Some(first) = chunks.last() {
            if is_blank(first) && !lines.is_empty() {
                chunks.pop();
            }
            let (mut line, mut taken): (Vec<&[char]>, usize) = (Vec::new(), 0);
            while let Some(chunk) = chunks.last().filter(|chunk| taken + chunk.len() <= self.width) {
                taken += chunk.len();
                line.push(chunk);
                chunks.pop();
            }
            if let Some(long) = chunks.last_mut().filter(|chunk| chunk.len() > self.width) {
                if self.break_words {
                    let (head, tail) = long.split_at(self.cut(long, self.width - taken));
                    line.push(head);
                    *long = tail;
                } else if line.is_empty() {
                    line.extend(chunks.pop());
                }
            }
            if line.last().is_some_and(|chunk| is_blank(chunk)) {
                line.pop();
            }
            if !line.is_empty() {
                lines.push(line.concat().into_iter().collect());
            }
        }
        lines
    }
}
