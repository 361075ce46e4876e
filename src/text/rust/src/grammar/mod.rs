//! C entries for grammars: which tokens may come next, so that an answer matches a JSON schema, a regular expression or
//! a Lark grammar. llguidance does the work.

mod compile;
mod deadline;
mod lark;
mod place;
mod schema;
mod vocabulary;

use crate::ffi::{self, Text};
use crate::tokenizer::Tokenizer;
use compile::Kind;
use llguidance::api::StopReason;
use llguidance::derivre::RegexBuilder;
use llguidance::toktrie::SimpleVob;
use llguidance::TokenParser;
pub use vocabulary::{bytes_of, Vocabularies};

/// The parser has a number of steps for each mask; what is appended without one in between takes of the same number.
const MAX_SINCE_MASK: usize = 32;
const STOPPED: &str = "the grammar cannot go on: ";
/// Ids are kept in 24 bits.
const MAX_WIDTH: usize = 1 << 23;

/// The one line of an error that says what is wrong: behind it come the place in the source and the state.
fn clean(error: &str) -> String {
    let lines = || error.lines().map(str::trim).filter(|line| !line.is_empty());
    let regex = lines().find_map(|line| line.strip_prefix("error: "));
    let first = lines().next().unwrap_or("no reason given");
    let line = regex.filter(|_| error.contains("regex parse error")).unwrap_or(first);
    let line = line.replace(". Enable 'coerce_one_of' option to approximate oneOf with anyOf", "; use anyOf");
    let line = line.split("; following special tokens").next().unwrap_or_default();
    match with_place(line.trim_start_matches("panic: ")) {
        line if line == llguidance::Cancelled.to_string() => "a step takes too long".into(),
        line => line,
    }
}

/// "at 3(5): reason" becomes "line 3, column 5: reason".
fn with_place(line: &str) -> String {
    let place = || {
        let (place, reason) = line.strip_prefix("at ").unwrap_or(line).split_once("): ")?;
        let (row, column) = place.split_once('(')?;
        let (row, column): (u32, u32) = (row.parse().ok()?, column.parse().ok()?);
        Some(format!("line {row}, column {column}: {reason}"))
    };
    place().unwrap_or_else(|| line.to_string())
}

/// Names what is wrong with an expression better than the error of a whole grammar does.
fn check_regex(pattern: &str, search: bool) -> Result<(), String> {
    if pattern.contains("<stop>") {
        // The library gives it a meaning of its own.
        return Err("a group with the name 'stop' is not supported".into());
    }
    let mut builder = RegexBuilder::new();
    let built = if search { builder.mk_regex_for_serach(pattern) } else { builder.mk_regex(pattern) };
    built.map(|_| ()).map_err(|e| clean(&e.to_string()))
}

pub struct Grammar {
    parser: TokenParser,
    width: usize,
    appended: usize,
    /// Since the limit on steps was set anew.
    since_mask: usize,
    allowed: Vec<u32>,
    /// Of the text so far.
    may_end: bool,
    must_end: bool,
    /// After it nothing is known of the parser's state.
    failure: Option<String>,
}

impl Grammar {
    fn compile(tokenizer: &Tokenizer, kind: i32, source: &str, width: usize) -> Result<Self, String> {
        let kind = Kind::from_number(kind)?;
        if width == 0 || width > MAX_WIDTH {
            return Err(format!("a vocabulary of {width} tokens: 1 to {MAX_WIDTH} are supported"));
        }
        let factory = compile::on_large_stack(|| tokenizer.vocabularies.get(tokenizer, width))?;
        let refuse = |why: String| {
            let why = clean(&why).replace("internal failure: ", "too large, or not supported: ");
            format!("{} cannot be used: {why}", kind.name())
        };
        let parser = compile::compile(&factory, kind, source).map_err(refuse)?;
        let mut grammar = Grammar {
            parser,
            width,
            appended: 0,
            since_mask: 0,
            allowed: Vec::new(),
            may_end: false,
            must_end: false,
            failure: None,
        };
        grammar.compute_allowed().map_err(|why| refuse(why.trim_start_matches(STOPPED).to_string()))?;
        Ok(grammar)
    }

    fn fork(&self) -> Self {
        Grammar { parser: self.parser.deep_clone(), allowed: Vec::new(), failure: self.failure.clone(), ..*self }
    }

    /// Every use of the parser: an error or a panic leaves it in no state to go on from.
    fn with_parser<T>(&mut self, work: impl FnOnce(&mut TokenParser) -> Result<T, String>) -> Result<T, String> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let parser = &mut self.parser;
        let _step = parser.cancellation_handle().map(deadline::Step::begin);
        ffi::caught(|| work(parser)).map_err(|error| {
            let error = format!("{STOPPED}{}", clean(&error));
            self.failure.insert(error).clone()
        })
    }

    fn compute_allowed(&mut self) -> Result<(), String> {
        let width = self.width;
        let mask = self.with_parser(|parser| {
            if parser.stopped() {
                return Ok(None);
            }
            match parser.compute_mask() {
                Ok(mask) => Ok(Some(mask)),
                // Not an error of the parser.
                Err(_) if parser.stop_reason() == StopReason::NoExtensionBias => Ok(None),
                Err(error) => Err(error.to_string()),
            }
        })?;
        self.since_mask = 0;
        self.note_end()?;
        self.allowed = mask.as_ref().map_or(&[][..], SimpleVob::as_slice).to_vec();
        self.allowed.resize(width.div_ceil(32), 0);
        // The id that the trie has on top.
        if !width.is_multiple_of(32) {
            *self.allowed.last_mut().expect("width is not 0") &= (1 << (width % 32)) - 1;
        }
        if self.allowed.iter().all(|word| *word == 0) {
            if !self.may_end {
                return Err("no token of the vocabulary goes on with a text that matches".into());
            }
            self.must_end = true;
        }
        Ok(())
    }

    fn note_end(&mut self) -> Result<(), String> {
        let (may, must) = self.with_parser(|parser| Ok((parser.is_accepting(), parser.stopped())))?;
        (self.may_end, self.must_end) = (may, may && must);
        Ok(())
    }

    fn append(&mut self, id: i64) -> Result<(), String> {
        let width = self.width;
        let Some(token) = u32::try_from(id).ok().filter(|token| (*token as usize) < width) else {
            return Err(format!("{id} is not an id of the vocabulary of {width} tokens"));
        };
        if self.since_mask == MAX_SINCE_MASK {
            self.compute_allowed()?;
        }
        let is_allowed = self.with_parser(|parser| {
            let valid = parser.validate_tokens_raw(&[token]).map_err(|e| e.to_string())?;
            parser.parser.get_error().map_or(Ok(valid == 1), |error| Err(error.message()))
        })?;
        if !is_allowed {
            return Err(format!("the grammar does not allow the id {id} here"));
        }
        self.with_parser(|parser| {
            parser.consume_token(token).and_then(|_| parser.check_stop()).map_err(|e| e.to_string())
        })?;
        self.appended += 1;
        self.since_mask += 1;
        self.note_end()
    }

    fn rewind(&mut self, tokens: usize) -> Result<(), String> {
        if tokens > self.appended {
            return Err(format!("{tokens} tokens cannot be taken back: {} were appended", self.appended));
        }
        self.with_parser(|parser| parser.rollback(tokens).map_err(|e| e.to_string()))?;
        self.appended -= tokens;
        self.note_end()
    }
}

/// Safety: the arguments are as `situ_text.h` says; this holds for every entry below.
#[no_mangle]
pub unsafe extern "C" fn situ_text_grammar_create(
    tokenizer: *const Tokenizer,
    kind: i32,
    source: *const u8,
    source_size: usize,
    vocabulary: usize,
    out: *mut *mut Grammar,
    error: *mut Text,
) -> i32 {
    ffi::guarded(error, || {
        let source = ffi::utf8(source, source_size, "the grammar")?;
        out.write(Box::into_raw(Box::new(Grammar::compile(&*tokenizer, kind, source, vocabulary)?)));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_grammar_fork(
    grammar: *const Grammar,
    out: *mut *mut Grammar,
    error: *mut Text,
) -> i32 {
    ffi::guarded(error, || {
        out.write(Box::into_raw(Box::new((*grammar).fork())));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_grammar_free(grammar: *mut Grammar) {
    if !grammar.is_null() {
        ffi::guarded(std::ptr::null_mut(), || {
            drop(Box::from_raw(grammar));
            Ok(())
        });
    }
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_grammar_allowed(
    grammar: *mut Grammar,
    words: *mut *const u32,
    count: *mut usize,
    error: *mut Text,
) -> i32 {
    ffi::guarded(error, || {
        (*grammar).compute_allowed()?;
        words.write((*grammar).allowed.as_ptr());
        count.write((*grammar).allowed.len());
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_grammar_may_end(grammar: *const Grammar) -> bool {
    (*grammar).may_end
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_grammar_must_end(grammar: *const Grammar) -> bool {
    (*grammar).must_end
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_grammar_append(grammar: *mut Grammar, id: i64, error: *mut Text) -> i32 {
    ffi::guarded(error, || (*grammar).append(id))
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_grammar_rewind(grammar: *mut Grammar, tokens: usize, error: *mut Text) -> i32 {
    ffi::guarded(error, || (*grammar).rewind(tokens))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_one_line() {
        for (error, line) in [
            ("at 3(5): unknown name\n   1 | start: x", "line 3, column 5: unknown name"),
            ("1(8): Expected (at x)", "line 1, column 8: Expected (at x)"),
            ("regex parse error:\n    a(\n     ^\nerror: unclosed group", "unclosed group"),
            ("panic: too many\n<backtrace>\n", "too many"),
            ("f(x): y", "f(x): y"),
            ("", "no reason given"),
        ] {
            assert_eq!(clean(error), line);
        }
    }

    #[test]
    fn named_groups() {
        assert!(check_regex("(?P<name>a)", false).is_ok());
        assert!(check_regex("(?P<stop>a)", false).is_err());
    }
}
