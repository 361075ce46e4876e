//! C entries for one loaded `tokenizer.json`. A loaded tokenizer is read-only, so any number of threads may use it.

use crate::bounded::{self, BoundedTokenizer, PreTokenizers};
use crate::ffi::{self, Ids, Text};
use crate::job::{self, Stop};
use crate::{checks, grammar, limits};
use std::collections::HashSet;
use std::io::Read;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokenizers::{truncate_encodings, PostProcessor, TruncationDirection, TruncationParams};

/// The largest `tokenizer.json` that is read. The largest ones in use are below 40 MB.
const MAX_FILE_BYTES: u64 = 128 << 20;
/// CPU time of reading it. One of 20 MB takes about a second.
const MAX_LOAD_TIME: Duration = Duration::from_secs(12);
/// A vocabulary of a million entries takes 300 MB while it is read, and has 18 MB in the file.
const LOAD_MEMORY: usize = 208 << 20;
const LOAD_MEMORY_PER_BYTE: usize = 12;
/// The parser of the regex engine recurses up to 4,096 deep.
const LOAD_STACK: usize = 16 << 20;

pub struct Tokenizer {
    /// Shared with the threads that work on its texts.
    inner: Arc<BoundedTokenizer>,
    special: HashSet<u32>,
    /// Their texts, and how many bytes these have.
    special_texts: HashSet<String>,
    special_sizes: Vec<usize>,
    /// Those of `special` that decoding leaves out. The library compares texts, and that of a token with
    /// `normalized: true` is what the normalizer makes of it: "▁</s>" is not among its special tokens.
    left_out: HashSet<u32>,
    /// Made for the first grammar.
    pub vocabularies: grammar::Vocabularies,
    decodes_with_regex: bool,
    spelling: OnceLock<bounded::Spelling>,
}

impl Tokenizer {
    pub fn inner(&self) -> &BoundedTokenizer {
        &self.inner
    }

    pub fn is_special(&self, id: u32) -> bool {
        self.special.contains(&id)
    }
}

/// A text of the caller.
#[repr(C)]
pub struct Piece {
    data: *const u8,
    size: usize,
}

fn read(path: &str, most: u64) -> Result<Vec<u8>, String> {
    let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    Ok(bytes)
}

/// What a BertNormalizer does, as `situ_text.h` says.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BertRules {
    lower: bool,
    accents: i32,
    han: i32,
}

fn load(bytes: Vec<u8>, bert: Option<BertRules>) -> Result<Tokenizer, String> {
    checks::check_file(&bytes)?;
    // The contents of added tokens go through the normalizer.
    limits::begin_text(bytes.len());
    let mut inner = BoundedTokenizer::from_bytes(&bytes)
        .map_err(|e| checks::merge_without_piece(&bytes).unwrap_or_else(|| e.to_string()))?;
    drop(bytes);
    if let Some(rules) = bert {
        let accents = (rules.accents >= 0).then_some(rules.accents == 1);
        let han = (rules.han >= 0).then_some(rules.han == 1);
        if let Some(set) = inner.get_normalizer().and_then(|own| own.with_bert(rules.lower, accents, han)) {
            inner.with_normalizer(Some(set)).map_err(|e| e.to_string())?;
        }
    }
    checks::check_loaded(&inner)?;
    // As Python's AutoTokenizer does: stored padding and truncation are training settings, never applied to a call.
    inner.with_padding(None);
    inner.with_truncation(None).map_err(|e| e.to_string())?;
    if inner.get_pre_tokenizer().is_none() {
        inner.with_pre_tokenizer(Some(PreTokenizers::default())); // which leaves marks out
    }
    let added = inner.get_added_tokens_decoder();
    let special: HashSet<u32> = added.iter().filter(|(_, token)| token.special).map(|(id, _)| *id).collect();
    let special_texts: HashSet<String> =
        added.values().filter(|token| token.special && !token.content.is_empty()).map(|t| t.content.clone()).collect();
    let mut special_sizes: Vec<usize> = special_texts.iter().map(String::len).collect();
    special_sizes.sort_unstable();
    special_sizes.dedup();
    let vocabulary = inner.get_added_vocabulary();
    let is_left_out =
        |id: &u32| vocabulary.simple_id_to_token(*id).is_some_and(|token| vocabulary.is_special_token(&token));
    let left_out = special.iter().copied().filter(is_left_out).collect();
    let decodes_with_regex = inner.get_decoder().is_some_and(|decoders| decoders.have_regex());
    let inner = Arc::new(inner);
    Ok(Tokenizer { inner, special, special_texts, special_sizes, left_out, vocabularies: Default::default(), decodes_with_regex, spelling: OnceLock::new() })
}

/// Safety: `stop` is as `situ_text.h` says.
unsafe fn load_bounded(
    size: u64,
    bert: Option<BertRules>,
    stop: *const Stop,
    bytes: impl FnOnce() -> Result<Vec<u8>, String> + Send + 'static,
) -> Result<Tokenizer, String> {
    if size > MAX_FILE_BYTES {
        return Err(format!("{size} bytes, the limit is {MAX_FILE_BYTES}"));
    }
    let bounds = job::Bounds {
        what: "reading it",
        time: MAX_LOAD_TIME,
        memory: LOAD_MEMORY + LOAD_MEMORY_PER_BYTE * size as usize,
        stack: LOAD_STACK,
    };
    job::run(bounds, stop, move || load(bytes()?, bert))
}

/// Safety: `stop` is as `situ_text.h` says.
unsafe fn load_file(path: &str, bert: Option<BertRules>, stop: *const Stop) -> Result<Tokenizer, String> {
    let facts = std::fs::metadata(path).map_err(|e| e.to_string())?;
    if !facts.is_file() {
        return Err("is no file".into());
    }
    let (path, size) = (path.to_string(), facts.len());
    load_bounded(size, bert, stop, move || read(&path, size))
}

/// Safety: the arguments are as `situ_text.h` says; this holds for every entry below.
#[no_mangle]
pub unsafe extern "C" fn situ_text_tokenizer_create(
    path: *const u8,
    path_size: usize,
    bert: *const BertRules,
    stop: *const Stop,
    out: *mut *mut Tokenizer,
    error: *mut Text,
) -> i32 {
    ffi::guarded(error, || {
        let path = ffi::utf8(path, path_size, "the tokenizer path")?;
        let tokenizer = load_file(path, bert.as_ref().copied(), stop).map_err(|e| format!("{path}: {e}"))?;
        out.write(Box::into_raw(Box::new(tokenizer)));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_tokenizer_create_from(
    json: *const u8,
    json_size: usize,
    stop: *const Stop,
    out: *mut *mut Tokenizer,
    error: *mut Text,
) -> i32 {
    ffi::guarded(error, || {
        let bytes = ffi::slice(json, json_size).to_vec();
        let tokenizer = load_bounded(json_size as u64, None, stop, move || Ok(bytes))?;
        out.write(Box::into_raw(Box::new(tokenizer)));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_tokenizer_free(tokenizer: *mut Tokenizer) {
    if !tokenizer.is_null() {
        ffi::guarded(std::ptr::null_mut(), || {
            drop(Box::from_raw(tokenizer));
            Ok(())
        });
    }
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_encode(
    tokenizer: *const Tokenizer,
    text: *const u8,
    text_size: usize,
    add_special_tokens: bool,
    mark: u32,
    most: usize,
    stop: *const Stop,
    out: *mut Ids,
    error: *mut Text,
) -> i32 {
    ffi::guarded(error, || {
        let text = ffi::utf8(text, text_size, "the text to encode")?.to_string();
        let wanted = (most > 0).then_some((most.saturating_add(1), TruncationDirection::Right));
        let mark = char::from_u32(mark).filter(|mark| *mark != '\0');
        let special = mark.map(|_| (*tokenizer).special.clone());
        let tokenizer = (*tokenizer).inner.clone();
        let encode_with = move |text: String, mark: Option<limits::Mark>| {
            limits::begin_text(text.len());
            limits::set_mark(mark);
            limits::set_wanted_tokens(wanted);
            // encode_fast leaves the character offsets out; the ids are those of encode.
            tokenizer.encode_fast(text, add_special_tokens).map(|e| e.get_ids().to_vec()).map_err(|e| e.to_string())
        };
        let encode = move || {
            let (Some(character), Some(special)) = (mark, special) else { return encode_with(text, None) };
            let joined = encode_with(text.clone(), Some(limits::Mark { character, splits: false }))?;
            // A vocabulary may have the texts of special tokens as words or pieces, too.
            let split = encode_with(text, Some(limits::Mark { character, splits: true }))?;
            let count = |ids: &[u32]| ids.iter().filter(|id| special.contains(id)).count();
            Ok(if count(&joined) > count(&split) { split } else { joined })
        };
        let ids = job::run(limits::text_bounds("the tokenizer", text_size), stop, encode);
        ffi::put_ids(out, ids.map_err(|e| clean("encode", e))?);
        Ok(())
    })
}

/// What an encoder reads of one text or of two: ids, of which text each is, and whether the texts were cut.
struct EncoderInput {
    ids: Vec<u32>,
    types: Vec<u32>,
    cut: bool,
}

fn encode_texts(
    tokenizer: &BoundedTokenizer,
    (text, second): (String, Option<String>),
    most: usize,
    direction: TruncationDirection,
) -> Result<EncoderInput, String> {
    let added = tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(second.is_some()));
    if most > 0 && most < added {
        return Err(format!("at most {most} tokens, and {added} are added to every text"));
    }
    // More than `most` tokens of a text are never kept. Of a pair the longer text is cut first, so that both lengths are
    // wanted.
    let stops = most > 0 && second.is_none();
    limits::set_wanted_tokens(stops.then_some((most.saturating_add(1), direction)));
    let plain = |text: String| {
        limits::begin_text(text.len());
        tokenizer.encode_fast(text, false).map_err(|e| e.to_string())
    };
    let (bytes, first) = (text.len() + second.as_ref().map_or(0, String::len), plain(text)?);
    let second = second.map(plain).transpose()?;
    let tokens = first.len() + second.as_ref().map_or(0, |e| e.len());
    let cut = most > 0 && tokens > most - added;
    let (first, second) = if cut {
        let params = TruncationParams { max_length: most - added, direction, ..Default::default() };
        truncate_encodings(first, second, &params).map_err(|e| e.to_string())?
    } else {
        (first, second)
    };
    limits::begin_text(bytes);
    let whole = tokenizer.post_process(first, second, true).map_err(|e| e.to_string())?;
    Ok(EncoderInput { ids: whole.get_ids().to_vec(), types: whole.get_type_ids().to_vec(), cut })
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_encode_texts(
    tokenizer: *const Tokenizer,
    texts: *const Piece,
    count: usize,
    most: usize,
    cut_left: bool,
    stop: *const Stop,
    out: *mut Ids,
    types: *mut Ids,
    cut: *mut bool,
    error: *mut Text,
) -> i32 {
    ffi::guarded(error, || {
        let texts = ffi::slice(texts, count);
        let text = |i: usize| ffi::utf8(texts[i].data, texts[i].size, "the text to encode").map(str::to_string);
        let bytes = texts.iter().map(|text| text.size).sum();
        let pair = match count {
            1 => (text(0)?, None),
            2 => (text(0)?, Some(text(1)?)),
            _ => return Err(format!("{count} texts, an encoder reads one or two")),
        };
        let direction = if cut_left { TruncationDirection::Left } else { TruncationDirection::Right };
        let tokenizer = (*tokenizer).inner.clone();
        let encode = move || encode_texts(&tokenizer, pair, most, direction);
        let input = job::run(limits::text_bounds("the tokenizer", bytes), stop, encode);
        let input = input.map_err(|e| clean("encode", e))?;
        ffi::put_ids(out, input.ids);
        ffi::put_ids(types, input.types);
        cut.write(input.cut);
        Ok(())
    })
}

/// Where special tokens stand in `text`: the offsets behind their first characters, in order.
fn special_places(tokenizer: &Tokenizer, text: &str) -> Vec<usize> {
    let begins_one = |rest: &str| {
        tokenizer.special_sizes.iter().any(|size| rest.get(..*size).is_some_and(|t| tokenizer.special_texts.contains(t)))
    };
    // Few bytes of a text are the first of one.
    let mut first = [false; 256];
    tokenizer.special_texts.iter().filter_map(|text| text.bytes().next()).for_each(|byte| first[byte as usize] = true);
    let bytes = text.as_bytes();
    let may_begin = |at: usize| first[bytes[at] as usize] && text.is_char_boundary(at) && begins_one(&text[at..]);
    let behind = |at: usize| at + text[at..].chars().next().map_or(1, char::len_utf8);
    (0..bytes.len()).filter(|at| may_begin(*at)).map(behind).collect()
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_break_special(
    tokenizer: *const Tokenizer,
    text: *const u8,
    text_size: usize,
    mark: u32,
    out: *mut Text,
    error: *mut Text,
) -> i32 {
    ffi::guarded(error, || {
        let text = ffi::utf8(text, text_size, "the text to encode")?;
        let mark = char::from_u32(mark).ok_or("the mark is no character")?;
        let mut broken = String::with_capacity(text.len());
        let mut from = 0;
        for place in special_places(&*tokenizer, text) {
            broken.push_str(&text[from..place]);
            broken.push(mark);
            from = place;
        }
        broken.push_str(&text[from..]);
        ffi::put_text(out, broken);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_token_bytes(tokenizer: *const Tokenizer, id: u32, out: *mut Text) -> bool {
    let mut found = false;
    ffi::guarded(std::ptr::null_mut(), || {
        if let Some(bytes) = grammar::bytes_of(&*tokenizer, id) {
            ffi::put_bytes(out, bytes);
            found = true;
        }
        Ok(())
    });
    found
}

/// The binding of the regex engine panics where a search reaches a limit.
fn clean(call: &str, error: String) -> String {
    match error.split_once("Onig: Regex search error: ") {
        Some((_, limit)) => format!("{call}: a regular expression of the tokenizer gives up: {limit}"),
        None => format!("{call}: {error}"),
    }
}

fn decode(tokenizer: &BoundedTokenizer, ids: &[u32], skip_special_tokens: bool) -> Result<String, String> {
    limits::begin_text(ids.len().saturating_mul(bounded::BYTES_PER_TOKEN));
    bounded::check_tokens(tokenizer, ids)?;
    tokenizer.decode(ids, skip_special_tokens).map_err(|e| e.to_string())
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_decode(
    tokenizer: *const Tokenizer,
    ids: *const u32,
    count: usize,
    skip_special_tokens: bool,
    stop: *const Stop,
    out: *mut Text,
    error: *mut Text,
) -> i32 {
    ffi::guarded(error, || {
        let (tokenizer, ids) = (&*tokenizer, ffi::slice(ids, count));
        let text = if tokenizer.decodes_with_regex {
            let (inner, ids) = (tokenizer.inner.clone(), ids.to_vec());
            let bounds = limits::text_bounds("the tokenizer", ids.len().saturating_mul(bounded::BYTES_PER_TOKEN));
            job::run(bounds, stop, move || decode(&inner, &ids, skip_special_tokens))
        } else {
            // For every token that is generated: a thread would take longer.
            ffi::caught(|| decode(&tokenizer.inner, ids, skip_special_tokens))
        };
        ffi::put_text(out, text.map_err(|e| clean("decode", e))?);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_token_to_id(
    tokenizer: *const Tokenizer,
    token: *const u8,
    token_size: usize,
    out: *mut u32,
) -> bool {
    let mut found = false;
    ffi::guarded(std::ptr::null_mut(), || {
        let token = ffi::utf8(token, token_size, "the token")?;
        if let Some(id) = (*tokenizer).inner.token_to_id(token) {
            out.write(id);
            found = true;
        }
        Ok(())
    });
    found
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_id_to_token(tokenizer: *const Tokenizer, id: u32, out: *mut Text) -> bool {
    let mut found = false;
    ffi::guarded(std::ptr::null_mut(), || {
        if let Some(token) = (*tokenizer).inner.id_to_token(id) {
            ffi::put_text(out, token);
            found = true;
        }
        Ok(())
    });
    found
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_is_special(tokenizer: *const Tokenizer, id: u32) -> bool {
    (*tokenizer).is_special(id)
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_is_left_out(tokenizer: *const Tokenizer, id: u32) -> bool {
    (*tokenizer).left_out.contains(&id)
}

impl Tokenizer {
    fn spelling(&self) -> &bounded::Spelling {
        self.spelling.get_or_init(|| bounded::spelling(&self.inner))
    }
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_longest_token(tokenizer: *const Tokenizer) -> usize {
    let mut bytes = 0;
    ffi::guarded(std::ptr::null_mut(), || {
        bytes = (*tokenizer).spelling().longest;
        Ok(())
    });
    bytes
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_spelled_bytes(tokenizer: *const Tokenizer, text: *const u8, size: usize) -> usize {
    let mut bytes = 0;
    ffi::guarded(std::ptr::null_mut(), || {
        let spelled = &(*tokenizer).spelling().spelled;
        bytes = ffi::slice(text, size).iter().filter(|byte| spelled[**byte as usize]).count();
        Ok(())
    });
    bytes
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_vocab_size(tokenizer: *const Tokenizer) -> usize {
    let mut size = 0;
    ffi::guarded(std::ptr::null_mut(), || {
        size = (*tokenizer).inner.get_vocab_size(true);
        Ok(())
    });
    size
}
