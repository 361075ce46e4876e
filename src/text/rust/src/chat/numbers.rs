//! Numbers as Python reads and rounds them.

use super::characters;
use super::python;
use minijinja::value::ValueKind;
use minijinja::Value;

pub fn as_integer(value: &Value) -> Option<i128> {
    match value.kind() {
        ValueKind::Bool => Some(value.is_true() as i128),
        ValueKind::Number if value.is_integer() => i128::try_from(value.clone()).ok(),
        _ => None,
    }
}

pub fn as_number(value: &Value) -> Option<f64> {
    python::as_float(value).or_else(|| as_integer(value).map(|n| n as f64))
}

/// Digits of any script as those of ASCII, and single underscores between them left out. Nothing: they stand elsewhere.
fn plain_digits(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut last = None;
    for c in text.chars() {
        let digit = characters::decimal(c).map_or(c, |digit| char::from_digit(digit, 10).unwrap_or(c));
        match digit {
            '_' if !last.is_some_and(|last: char| last.is_ascii_alphanumeric()) => return None,
            '_' => {}
            digit if last == Some('_') && !digit.is_ascii_alphanumeric() => return None,
            digit => out.push(digit),
        }
        last = Some(digit);
    }
    (last != Some('_')).then_some(out)
}

/// `int(text, base)`. Nothing: Python raises ValueError, or the number is too large for 128 bits.
pub fn parse_integer(text: &str, base: i128) -> Option<i128> {
    let text = text.trim_matches(characters::is_space);
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = unsigned.to_ascii_lowercase();
    let prefix = [("0b", 2), ("0o", 8), ("0x", 16)].into_iter().find(|(prefix, _)| lower.starts_with(prefix));
    let (base, digits) = match (base, prefix) {
        (0, Some((_, own))) => (own, &unsigned[2..]),
        (base, Some((_, own))) if base == i128::from(own) => (own, &unsigned[2..]),
        (0, None) if unsigned.starts_with('0') && unsigned.chars().any(|c| c != '0' && c != '_') => return None,
        (0, None) => (10, unsigned),
        (2..=36, _) => (base as u32, unsigned),
        _ => return None,
    };
    // An underscore may stand right behind a prefix.
    let is_prefixed = digits.len() != unsigned.len();
    let digits = plain_digits(if is_prefixed { digits.strip_prefix('_').unwrap_or(digits) } else { digits })?;
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let number = i128::from_str_radix(&digits, base).ok()?;
    Some(if negative { -number } else { number })
}

/// `float(text)`.
pub fn parse_float(text: &str) -> Option<f64> {
    let digits = plain_digits(text.trim_matches(characters::is_space))?;
    let is_plain = digits.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    let word = digits.trim_start_matches(['+', '-']).to_ascii_lowercase();
    if !is_plain && !["inf", "infinity", "nan"].contains(&word.as_str()) {
        return None;
    }
    digits.parse().ok()
}

/// `int(number)`, which cuts the fraction. Nothing: it is no number, or too large.
pub fn truncated(number: f64) -> Option<i128> {
    (number.abs() < 1e38).then_some(number as i128)
}

/// `round(number, digits)` of a float: the nearest decimal, an even one where two are as near.
pub fn rounded(number: f64, digits: i32) -> f64 {
    if !number.is_finite() || digits > 323 {
        return number;
    }
    if digits >= 0 {
        return format!("{number:.*}", digits as usize).parse().unwrap_or(number);
    }
    // In the digits of the whole number, since a power of ten is not exact below 1.
    let places = digits.unsigned_abs() as usize;
    let text = format!("{:.1074}", number.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let kept = whole.len().saturating_sub(places);
    if whole.len() < places {
        return 0f64.copysign(number);
    }
    let (head, tail) = whole.split_at(kept);
    let head: u128 = head.parse().unwrap_or(0);
    let half = format!("5{}", "0".repeat(places - 1));
    let is_half = tail == half && fraction.bytes().all(|digit| digit == b'0');
    let up = if is_half { head % 2 == 1 } else { tail >= half.as_str() };
    let result: f64 = format!("{}e{places}", head + u128::from(up)).parse().unwrap_or(0.0);
    result.copysign(number)
}

/// `round(number, -places)` of an integer.
pub fn rounded_integer(number: i128, places: u32) -> i128 {
    let Some(unit) = 10i128.checked_pow(places) else { return 0 };
    let (whole, rest) = (number.div_euclid(unit), number.rem_euclid(unit));
    let up = rest > unit - rest || (rest == unit - rest && whole % 2 != 0);
    (whole + i128::from(up)) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers() {
        for (text, base, number) in [
            (" -12 ", 10, Some(-12)),
            ("1_000", 10, Some(1000)),
            ("١٢", 10, Some(12)),
            ("0xFf", 16, Some(255)),
            ("0b_11", 0, Some(3)),
            ("077", 0, None),
            ("1__0", 10, None),
            ("_1", 10, None),
            ("1_", 10, None),
            ("+-1", 10, None),
            ("", 10, None),
            ("1.5", 10, None),
        ] {
            assert_eq!(parse_integer(text, base), number, "{text}");
        }
    }

    #[test]
    fn rounding() {
        for (number, digits, expected) in [
            (2.5, 0, 2.0),
            (2.675, 2, 2.67),
            (12345.678, -2, 12300.0),
            (1250.0, -2, 1200.0),
            (1350.0, -2, 1400.0),
            (1250.5, -2, 1300.0),
            (49.0, -2, 0.0),
            (51.0, -2, 100.0),
            (-5.0, -1, -0.0),
            (5.0, -3, 0.0),
        ] {
            assert_eq!(rounded(number, digits), expected, "{number} {digits}");
        }
        assert_eq!([rounded_integer(1250, 2), rounded_integer(-150, 2), rounded_integer(7, 40)], [1200, -200, 0]);
    }
}
