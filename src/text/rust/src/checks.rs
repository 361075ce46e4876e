//! What is refused of a `tokenizer.json` when it is loaded. `bounded.rs` has what can be known only with a text.

use crate::bounded::BoundedTokenizer;
use crate::{counts, limits};
use serde::de::IgnoredAny;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use tokenizers::models::ModelWrapper;
use tokenizers::processors::PostProcessorWrapper;

/// The ids and the special pieces that a post-processor adds to one text. Real ones add one or two.
const MAX_ADDED_IDS: usize = 65_536;
const MAX_ADDED_BYTES: usize = 1 << 20;
/// How often a post-processor may repeat the text.
const MAX_REPEATS: usize = 16;
/// "[UNK]", "<|endoftext|>".
const MAX_UNKNOWN_BYTES: usize = 256;
/// "##", "</w>".
const MAX_AFFIX_BYTES: usize = 16;
/// The search for the pieces of a WordPiece word is cubic in its length. 100 is usual.
const MAX_WORD_CHARS: u64 = 1000;
/// For each piece of Unigram: its tree has a hash table for every byte that another follows. 250,000 pieces in five scripts
/// take 100 MB beside what LOAD_MEMORY of tokenizer.rs allows.
const MEMORY_PER_PIECE: usize = 512;
const MAX_PIECES_MEMORY: usize = 192 << 20;
/// All regular expressions of a file together. Compiled, a byte of them takes about 200. Those in use have some 300 bytes.
const MAX_REGEX_BYTES: usize = 64 << 10;
/// At every byte of a text, Unigram copies all pieces that start there: up to half the square of this.
const MAX_PIECE_BYTES: usize = 512;

/// The parts of the file that are looked at before the library reads it; the rest is skipped over.
#[derive(Deserialize)]
struct Parts {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    decoder: Value,
    #[serde(default)]
    model: ModelFields,
}

/// The fields of a model that the memory and the time of a text depend on, beside its vocabulary.
#[derive(Default, Deserialize)]
struct ModelFields {
    #[serde(default)]
    unk_token: Value,
    #[serde(default)]
    continuing_subword_prefix: Value,
    #[serde(default)]
    end_of_word_suffix: Value,
    #[serde(default)]
    max_input_chars_per_word: Value,
}

/// The bytes of standard base64, up to the first character that is none.
pub fn base64(text: &[u8]) -> Vec<u8> {
    let digit = |c: &u8| match c {
        b'A'..=b'Z' => Some(u32::from(c - b'A')),
        b'a'..=b'z' => Some(u32::from(c - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(c - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bits, mut count) = (0u32, 0);
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 3);
    for six in text.iter().map_while(digit) {
        (bits, count) = (bits << 6 | six, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

/// The first four bytes of a SentencePiece charsmap name the size of its table. The library reserves that size before
/// it looks whether the bytes are there, up to 8 GB; a failed reservation cannot be caught.
fn check_charsmaps(value: &Value) -> Result<(), String> {
    let table_bytes = |text: &str| {
        let start = text.as_bytes().get(..6)?;
        Some(u64::from(u32::from_le_bytes(*base64(start).first_chunk()?)))
    };
    match value {
        Value::Object(fields) => fields.iter().try_for_each(|(name, field)| match field.as_str() {
            Some(text) if name == "precompiled_charsmap" => match table_bytes(text) {
                Some(bytes) if bytes <= text.len() as u64 => Ok(()),
                _ => Err("normalizer: precompiled_charsmap is shorter than the table that it announces".to_string()),
            },
            _ => check_charsmaps(field),
        }),
        Value::Array(items) => items.iter().try_for_each(check_charsmaps),
        _ => Ok(()),
    }
}

/// {"Regex": "\\s+"} and {"String": " "}, which the library makes a regular expression of, wherever they stand.
fn regex_bytes(value: &Value) -> usize {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, field)| match field.as_str() {
                Some(text) if name == "Regex" || name == "String" => text.len(),
                _ => regex_bytes(field),
            })
            .fold(0, usize::saturating_add),
        Value::Array(items) => items.iter().map(regex_bytes).fold(0, usize::saturating_add),
        _ => 0,
    }
}

fn check_regexes(parts: &Parts) -> Result<(), String> {
    let bytes = [&parts.normalizer, &parts.pre_tokenizer, &parts.decoder].map(regex_bytes).iter().sum::<usize>();
    if bytes > MAX_REGEX_BYTES {
        return Err(format!("its patterns have {bytes} bytes, the limit is {MAX_REGEX_BYTES}"));
    }
    Ok(())
}

/// What a post-processor adds at most to one text, and how often it repeats the text.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
struct Added {
    ids: usize,
    bytes: usize,
    repeats: usize,
}

fn template_adds(template: &Value, special_tokens: &Value) -> Added {
    let mut added = Added::default();
    let (mut first, mut second) = (0, 0);
    for piece in template.as_array().into_iter().flatten() {
        let Some(id) = piece["SpecialToken"]["id"].as_str() else {
            *(if piece["Sequence"]["id"] == "A" { &mut first } else { &mut second }) += 1;
            continue;
        };
        let token = &special_tokens[id];
        // A piece without ids takes room too.
        added.ids = added.ids.saturating_add(token["ids"].as_array().map_or(0, Vec::len).max(1));
        if added.ids <= MAX_ADDED_IDS {
            let texts = token["tokens"].as_array().into_iter().flatten().filter_map(Value::as_str);
            added.bytes = added.bytes.saturating_add(texts.map(str::len).sum());
        }
    }
    added.repeats = first.max(second);
    added
}

fn processor_adds(processor: &Value) -> Added {
    let larger = |a: Added, b: Added| Added {
        ids: a.ids.max(b.ids),
        bytes: a.bytes.max(b.bytes),
        repeats: a.repeats.max(b.repeats),
    };
    if let Some(processors) = processor["processors"].as_array() {
        let start = Added { repeats: 1, ..Added::default() };
        return processors.iter().map(processor_adds).fold(start, |sum, next| Added {
            ids: sum.ids.saturating_add(next.ids),
            bytes: sum.bytes.saturating_add(next.bytes),
            repeats: sum.repeats.saturating_mul(next.repeats.max(1)),
        });
    }
    if processor["single"].is_array() {
        let special = &processor["special_tokens"];
        return larger(template_adds(&processor["single"], special), template_adds(&processor["pair"], special));
    }
    // ["[CLS]", 101]
    let text = |name: &str| processor[name][0].as_str().map_or(0, str::len);
    Added { ids: 4, bytes: 2 * text("cls") + 2 * text("sep"), repeats: 1 }
}

/// Nothing that a post-processor adds depends on the text.
fn check_post_processor(processor: Option<&PostProcessorWrapper>) -> Result<(), String> {
    let Some(processor) = processor else { return Ok(()) };
    let added = processor_adds(&serde_json::to_value(processor).map_err(|e| e.to_string())?);
    for (what, size, limit) in [
        ("adds {} tokens or more", added.ids.saturating_mul(added.repeats.max(1)), MAX_ADDED_IDS),
        ("adds tokens with {} bytes of text", added.bytes.saturating_mul(added.repeats.max(1)), MAX_ADDED_BYTES),
        ("repeats the text {} times", added.repeats, MAX_REPEATS),
    ] {
        if size > limit {
            return Err(format!("post_processor {}, the limit is {limit}", what.replace("{}", &size.to_string())));
        }
    }
    Ok(())
}

fn check_model_fields(model: &ModelFields) -> Result<(), String> {
    for (name, value, limit) in [
        ("unk_token", &model.unk_token, MAX_UNKNOWN_BYTES),
        ("continuing_subword_prefix", &model.continuing_subword_prefix, MAX_AFFIX_BYTES),
        ("end_of_word_suffix", &model.end_of_word_suffix, MAX_AFFIX_BYTES),
    ] {
        let size = value.as_str().map_or(0, str::len);
        if size > limit {
            return Err(format!("model: {name} has {size} bytes, the limit is {limit}"));
        }
    }
    match model.max_input_chars_per_word.as_u64() {
        Some(chars) if chars > MAX_WORD_CHARS => {
            Err(format!("model: max_input_chars_per_word is {chars}, the limit is {MAX_WORD_CHARS}"))
        }
        _ => Ok(()),
    }
}

fn check_pieces(model: &ModelWrapper) -> Result<(), String> {
    let ModelWrapper::Unigram(unigram) = model else { return Ok(()) };
    match unigram.iter().map(|(piece, _)| piece.len()).max() {
        Some(size) if size > MAX_PIECE_BYTES => {
            Err(format!("model: a piece of the vocabulary has {size} bytes, the limit is {MAX_PIECE_BYTES}"))
        }
        _ => Ok(()),
    }
}

/// Before the library reads the file.
pub fn check_file(bytes: &[u8]) -> Result<(), String> {
    let pieces = counts::check_counts(bytes)?;
    limits::allow_memory(pieces.saturating_mul(MEMORY_PER_PIECE).min(MAX_PIECES_MEMORY));
    let parts: Parts = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    check_regexes(&parts)?;
    check_charsmaps(&parts.normalizer)?;
    check_model_fields(&parts.model)
}

/// After the library has read the file.
pub fn check_loaded(tokenizer: &BoundedTokenizer) -> Result<(), String> {
    check_post_processor(tokenizer.get_post_processor())?;
    check_pieces(&tokenizer.get_model().0)
}
/// Of a BPE model that the library refuses, its first merge that names a piece which the vocabulary has not. The
/// library says of the model alone that it is none.
pub fn merge_without_piece(file: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct File {
        model: Model,
    }
    #[derive(Deserialize)]
    struct Model {
        vocab: HashMap<String, IgnoredAny>,
        merges: Vec<Merge>,
        continuing_subword_prefix: Option<String>,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Merge {
        Pair(String, String),
        Line(String),
    }
    let Model { vocab, merges, continuing_subword_prefix } = serde_json::from_slice::<File>(file).ok()?.model;
    let prefix = continuing_subword_prefix.map_or(0, |prefix| prefix.len());
    merges.iter().enumerate().find_map(|(number, merge)| {
        let (a, b) = match merge {
            Merge::Pair(a, b) => (a.as_str(), b.as_str()),
            Merge::Line(line) => line.split_once(' ')?,
        };
        let joined = format!("{a}{}", b.get(prefix..)?);
        let missing = [a, b, joined.as_str()].into_iter().find(|piece| !vocab.contains_key(*piece))?.to_string();
        Some(format!("merge {} ({a:?} and {b:?}): the piece {missing:?} is out of vocabulary", number + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_name_pieces() {
        let of = |merges: Value, prefix: Value| {
            let vocab = serde_json::json!({"a": 0, "b": 1, "ab": 2, "##c": 3, "ac": 4});
            let model = serde_json::json!({"vocab": vocab, "merges": merges, "continuing_subword_prefix": prefix});
            merge_without_piece(&serde_json::to_vec(&serde_json::json!({ "model": model })).unwrap())
        };
        let no = Value::Null;
        assert_eq!(of(serde_json::json!([["a", "b"], ["a", "b"]]), no.clone()), None);
        assert_eq!(of(serde_json::json!(["a b"]), no.clone()), None);
        assert_eq!(of(serde_json::json!([["a", "##c"]]), "##".into()), None);
        let error = of(serde_json::json!(["a b", "b x"]), no.clone());
        assert_eq!(error.as_deref(), Some(r#"merge 2 ("b" and "x"): the piece "x" is out of vocabulary"#));
        let error = of(serde_json::json!([["b", "a"]]), no);
        assert_eq!(error.as_deref(), Some(r#"merge 1 ("b" and "a"): the piece "ba" is out of vocabulary"#));
    }
}
