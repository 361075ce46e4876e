//! What Python's `str` knows of characters, where it differs from Rust's `char`.

use regex_syntax::hir::{Class, ClassUnicode, HirKind};
use regex_syntax::Parser;
use std::sync::OnceLock;

/// Characters of a Unicode property, as `\p{...}` writes it.
pub struct Property {
    pattern: &'static str,
    class: OnceLock<ClassUnicode>,
}

impl Property {
    const fn new(pattern: &'static str) -> Self {
        Property { pattern, class: OnceLock::new() }
    }

    pub fn has(&self, c: char) -> bool {
        let class = self.class.get_or_init(|| match Parser::new().parse(self.pattern).map(|hir| hir.into_kind()) {
            Ok(HirKind::Class(Class::Unicode(class))) => class,
            _ => ClassUnicode::empty(),
        });
        class
            .ranges()
            .binary_search_by(|range| {
                if range.end() < c {
                    std::cmp::Ordering::Less
                } else if range.start() > c {
                    std::cmp::Ordering::Greater
                } else {
                    std::cmp::Ordering::Equal
                }
            })
            .is_ok()
    }
}

static LETTER: Property = Property::new(r"\p{L}");
static DECIMAL: Property = Property::new(r"\p{Nd}");
static NUMBER: Property = Property::new(r"\p{N}");
static TITLE: Property = Property::new(r"\p{Lt}");
static NOT_PRINTED: Property = Property::new(r"[\p{C}\p{Z}]");
static NAME_START: Property = Property::new(r"\p{XID_Start}");
static NAME: Property = Property::new(r"\p{XID_Continue}");
/// Digits that do not count in tens: those raised, lowered or in circles.
static OTHER_DIGITS: Property = Property::new(
    r"[²³¹፩-፱᧚⁰⁴-⁹₀-₉①-⑨⑴-⑼⒈-⒐⓪⓵-⓽⓿❶-❾➀-➈➊-➒\x{10A40}-\x{10A43}\x{10E60}-\x{10E68}\x{11052}-\x{1105A}\x{1F100}-\x{1F10A}]",
);
/// Letters that are numbers as well.
static NUMBER_LETTERS: Property = Property::new(
    "[㐅㒃㠪㭍一七万三九二五亖亿什仟仨伍佰億兆兩八六十千卄卅卌叁参參叄四壱壹幺廾廿弌弍弎弐拾捌柒漆玖百肆萬貮貳贰阡陆陌陸零參拾兩零六陸什𠀁𠁤𠃢𠄡𠤪𠦃𠦌𠦜𠫪𠫽𠬙𢎐𢦘𣬛𦉭廾]",
);

pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

pub fn is_letter(c: char) -> bool {
    LETTER.has(c)
}

/// The value of a decimal digit of any script: those of a script stand in a row, from 0 on.
pub fn decimal(c: char) -> Option<u32> {
    if c.is_ascii() || !DECIMAL.has(c) {
        return c.to_digit(10);
    }
    let is_digit = |code: u32| char::from_u32(code).is_some_and(|c| DECIMAL.has(c));
    let before = (1..).take_while(|back| is_digit(c as u32 - back)).count() as u32;
    Some(before % 10)
}

pub fn is_decimal(c: char) -> bool {
    DECIMAL.has(c)
}

pub fn is_digit(c: char) -> bool {
    DECIMAL.has(c) || OTHER_DIGITS.has(c)
}

pub fn is_numeric(c: char) -> bool {
    NUMBER.has(c) || NUMBER_LETTERS.has(c)
}

pub fn is_alphanumeric(c: char) -> bool {
    is_letter(c) || is_numeric(c)
}

pub fn is_title(c: char) -> bool {
    TITLE.has(c)
}

pub fn is_printable(c: char) -> bool {
    c == ' ' || !NOT_PRINTED.has(c)
}

pub fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c == '_' || NAME_START.has(c)) && chars.all(|c| NAME.has(c))
}

/// Appends `c` as the first letter of a word.
pub fn push_title(out: &mut String, c: char) {
    let upper = match c {
        'Ǆ' | 'ǅ' | 'ǆ' => 'ǅ',
        'Ǉ' | 'ǈ' | 'ǉ' => 'ǈ',
        'Ǌ' | 'ǋ' | 'ǌ' => 'ǋ',
        'Ǳ' | 'ǲ' | 'ǳ' => 'ǲ',
        'ᾳ' | 'ᾼ' => 'ᾼ',
        'ῃ' | 'ῌ' => 'ῌ',
        'ῳ' | 'ῼ' => 'ῼ',
        // Vowels with a small iota beside or below.
        '\u{1f80}'..='\u{1faf}' => char::from_u32(c as u32 | 8).unwrap_or(c),
        _ => {
            // Of several letters only the first is large: "Fi" for the ligature.
            let mut is_large = false;
            for upper in c.to_uppercase() {
                if is_large {
                    out.extend(upper.to_lowercase());
                } else {
                    out.push(upper);
                }
                is_large |= upper.is_uppercase();
            }
            return;
        }
    };
    out.push(upper);
}

/// `text.splitlines(keepends)`.
pub fn lines(text: &str, keep_ends: bool) -> Vec<&str> {
    const ENDS: [char; 10] =
        ['\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}'];
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ENDS) {
        let end = if rest[at..].starts_with("\r\n") { 2 } else { rest[at..].chars().next().map_or(0, char::len_utf8) };
        lines.push(&rest[..if keep_ends { at + end } else { at }]);
        rest = &rest[at + end..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits() {
        assert_eq!(['7', '٣', '９', '𝟗', '²', 'a'].map(decimal), [Some(7), Some(3), Some(9), Some(9), None, None]);
        assert!(['²', '①', '7'].into_iter().all(is_digit) && !is_digit('½') && is_numeric('½') && is_numeric('一'));
    }

    #[test]
    fn lines_end_as_in_python() {
        assert_eq!(lines("a\r\nb\n\nc\u{2028}", false), ["a", "b", "", "c"]);
        assert_eq!(lines("a\r\nb\rc", true), ["a\r\n", "b\r", "c"]);
        assert!(lines("", false).is_empty());
    }
}
