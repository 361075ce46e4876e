//! Python's format specification: `[[fill]align][sign][z][#][0][width][grouping][.precision][type]`.

use super::super::numbers::{as_integer, as_number};
use super::super::{python, values};
use super::{take, take_count};
use crate::limits::refuse;
use minijinja::value::ValueKind;
use minijinja::{Error, Value};

#[derive(Default)]
pub struct Spec {
    pub fill: Option<char>,
    pub align: Option<char>,
    pub sign: Option<char>,
    pub alternate: bool,
    pub zero: bool,
    pub width: usize,
    pub grouping: Option<char>,
    pub precision: Option<usize>,
    pub kind: Option<char>,
}

/// Digits of a number, without its sign: behind `0x`, in front of a fraction, exponent or percent sign.
pub struct Digits {
    pub negative: bool,
    pub prefix: &'static str,
    pub whole: String,
    pub rest: String,
}

impl Spec {
    pub fn parse(mut text: &str) -> Result<Self, Error> {
        let whole = text;
        let mut spec = Spec::default();
        let mut chars = text.chars();
        let (fill, align) = (chars.next(), chars.next());
        if align.is_some_and(|align| "<>=^".contains(align)) {
            (spec.fill, spec.align) = (fill, align);
            text = chars.as_str();
        } else {
            spec.align = take(&mut text, "<>=^");
        }
        spec.sign = take(&mut text, "+- ");
        spec.alternate = take(&mut text, "#").is_some();
        spec.zero = take(&mut text, "0").is_some();
        spec.width = take_count(&mut text)?.unwrap_or(0);
        spec.grouping = take(&mut text, ",_");
        if take(&mut text, ".").is_some() {
            let precision = take_count(&mut text)?;
            spec.precision = Some(precision.ok_or_else(|| refuse("a format specification lacks its precision"))?);
        }
        spec.kind = text.chars().next();
        match spec.kind.map_or(0, char::len_utf8) == text.len() {
            true => Ok(spec),
            false => Err(refuse(format!("'{whole}' is not a format specification"))),
        }
    }

    fn wrong<T>(&self, value: &Value) -> Result<T, Error> {
        let kind = self.kind.map_or(String::new(), |kind| format!(" '{kind}'"));
        Err(refuse(format!("the format specification{kind} is not for a value of type {}", values::type_name(value))))
    }

    /// `format(value, spec)`.
    pub fn format(&self, value: &Value) -> Result<String, Error> {
        match value.kind() {
            ValueKind::String => self.text(value),
            ValueKind::Bool | ValueKind::Number => self.number(value),
            _ => self.wrong(value),
        }
    }

    fn text(&self, value: &Value) -> Result<String, Error> {
        let is_for_numbers =
            self.sign.is_some() || self.alternate || self.grouping.is_some() || self.align == Some('=');
        if is_for_numbers || !matches!(self.kind, None | Some('s')) {
            return self.wrong(value);
        }
        let text = value.as_str().unwrap_or_default();
        let most = self.precision.unwrap_or(usize::MAX);
        let fill = self.fill.unwrap_or(if self.zero { '0' } else { ' ' });
        Ok(pad(&text.chars().take(most).collect::<String>(), self.align.unwrap_or('<'), fill, self.width))
    }

    fn number(&self, value: &Value) -> Result<String, Error> {
        let digits = match (as_integer(value), self.kind) {
            (Some(code), Some('c')) if self.precision.is_none() && self.sign.is_none() => {
                let c = u32::try_from(code).ok().and_then(char::from_u32);
                let c = c.ok_or_else(|| refuse(format!("{code} is not a character")))?;
                return Ok(pad(&c.to_string(), self.align.unwrap_or('<'), self.fill.unwrap_or(' '), self.width));
            }
            (Some(number), None | Some('b' | 'd' | 'n' | 'o' | 'x' | 'X')) if self.precision.is_none() => {
                integer_digits(number, self.kind.unwrap_or('d'), self.alternate)
            }
            (Some(_), None | Some('b' | 'd' | 'n' | 'o' | 'x' | 'X')) => return self.wrong(value),
            (exact, kind) => match (kind, as_number(value)) {
                (None | Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | 'n' | '%'), Some(number)) => {
                    debug_assert!(exact.is_none() || kind.is_some());
                    float_digits(number, kind, self.precision, self.alternate)
                }
                _ => return self.wrong(value),
            },
        };
        if self.grouping == Some(',') && matches!(self.kind, Some('b' | 'o' | 'x' | 'X' | 'n')) {
            return self.wrong(value);
        }
        Ok(self.assemble(digits))
    }

    pub fn assemble(&self, digits: Digits) -> String {
        let sign = match (digits.negative, self.sign) {
            (true, _) => "-",
            (false, Some('+')) => "+",
            (false, Some(' ')) => " ",
            _ => "",
        };
        let fill = self.fill.unwrap_or(if self.zero { '0' } else { ' ' });
        let align = self.align.unwrap_or(if self.zero { '=' } else { '>' });
        let head = format!("{sign}{}", digits.prefix);
        let taken = head.len() + digits.rest.len();
        let group = if matches!(self.kind, Some('b' | 'o' | 'x' | 'X')) { 4 } else { 3 };
        let mut whole = digits.whole;
        if align == '=' && fill == '0' && self.grouping.is_some() {
            // Zeros are grouped as well; a separator never comes first.
            while whole.len() + (whole.len() - 1) / group + taken < self.width {
                whole.insert(0, '0');
            }
        }
        let whole = grouped(&whole, self.grouping, group);
        if align == '=' {
            let missing = self.width.saturating_sub(taken + whole.chars().count());
            return format!("{head}{}{whole}{}", fill.to_string().repeat(missing), digits.rest);
        }
        pad(&format!("{head}{whole}{}", digits.rest), align, fill, self.width)
    }
}

fn grouped(digits: &str, separator: Option<char>, size: usize) -> String {
    let Some(separator) = separator.filter(|_| digits.bytes().all(|c| c.is_ascii_hexdigit())) else {
        return digits.to_string();
    };
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % size == 0 {
            out.push(separator);
        }
        out.push(digit);
    }
    out
}

/// `text` in `width` columns.
pub fn pad(text: &str, align: char, fill: char, width: usize) -> String {
    let missing = width.saturating_sub(text.chars().count());
    let left = match align {
        '<' => 0,
        '^' => missing / 2,
        _ => missing,
    };
    let fill = |count: usize| fill.to_string().repeat(count);
    format!("{}{text}{}", fill(left), fill(missing - left))
}

pub fn integer_digits(number: i128, kind: char, alternate: bool) -> Digits {
    let size = number.unsigned_abs();
    let (prefix, whole) = match kind {
        'b' => ("0b", format!("{size:b}")),
        'o' => ("0o", format!("{size:o}")),
        'x' => ("0x", format!("{size:x}")),
        'X' => ("0X", format!("{size:X}")),
        _ => ("", size.to_string()),
    };
    Digits { negative: number < 0, prefix: if alternate { prefix } else { "" }, whole, rest: String::new() }
}

/// "1.5e4" as "1.5" and 4.
fn scientific(number: f64, precision: usize) -> (String, i32) {
    let text = format!("{number:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (mantissa.to_string(), exponent.parse().unwrap_or(0))
}

fn without_zeros(number: &str) -> &str {
    if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    }
}

/// kind: nothing for the shortest digits, as `str` has them, unless there is a precision.
pub fn float_digits(number: f64, kind: Option<char>, precision: Option<usize>, alternate: bool) -> Digits {
    let (size, negative) = (number.abs(), number.is_sign_negative() && !number.is_nan());
    let lower = kind.map(|kind| kind.to_ascii_lowercase());
    let text = if !size.is_finite() {
        let percent = if kind == Some('%') { "%" } else { "" };
        format!("{}{percent}", if size.is_nan() { "nan" } else { "inf" })
    } else {
        match (lower, precision) {
            (Some('f'), _) => fixed(size, precision.unwrap_or(6), alternate),
            (Some('%'), _) => format!("{}%", fixed(size * 100.0, precision.unwrap_or(6), alternate)),
            (Some('e'), _) => {
                let (mantissa, exponent) = scientific(size, precision.unwrap_or(6));
                let point = if alternate && !mantissa.contains('.') { "." } else { "" };
                format!("{mantissa}{point}e{exponent:+03}")
            }
            (None, None) => python::float_text(size),
            _ => general(size, precision.unwrap_or(6).max(1), alternate, lower.is_none()),
        }
    };
    let text = if kind.is_some_and(|kind| kind.is_ascii_uppercase()) { text.to_ascii_uppercase() } else { text };
    let whole = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (whole, rest) = text.split_at(if size.is_finite() { whole } else { text.len() });
    Digits { negative, prefix: "", whole: whole.to_string(), rest: rest.to_string() }
}

fn fixed(number: f64, precision: usize, alternate: bool) -> String {
    let point = if alternate && precision == 0 { "." } else { "" };
    format!("{number:.precision$}{point}")
}

/// `%g`. with_point: as `format(number, '.3')`, which shows that it is no integer.
fn general(number: f64, precision: usize, alternate: bool, with_point: bool) -> String {
    let (mantissa, exponent) = scientific(number, precision - 1);
    let most = precision as i32 - i32::from(with_point);
    if (-4..most).contains(&exponent) {
        let text = format!("{number:.*}", (precision as i32 - 1 - exponent).max(0) as usize);
        let text = if alternate { text.as_str() } else { without_zeros(&text) };
        let point = if with_point && !text.contains('.') { ".0" } else { "" };
        return format!("{text}{point}");
    }
    let mantissa = if alternate { mantissa.as_str() } else { without_zeros(&mantissa) };
    format!("{mantissa}e{exponent:+03}")
}
