//! The bytes that each token stands for, as a trie that grammars walk. Grammars know bytes, not tokens.

use crate::bounded::BoundedTokenizer;
use crate::tokenizer::Tokenizer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{earley::SlicedBiasComputer, ParserFactory};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokenizers::decoders::DecoderWrapper;
use tokenizers::Decoder;

/// The trie keeps depths in 10 bits. A longer token is never allowed.
const MAX_TOKEN_BYTES: usize = 1000;
/// The trie keeps sizes in 22 bits. The largest vocabularies in use have 262,144 tokens of 2 MB.
const MAX_TRIE_BYTES: usize = 4_000_000;
/// A model has one width of logits; a second one is a mistake or a test.
const MAX_CACHED: usize = 2;

/// What decoding makes of one token, as far as it does not depend on its neighbours.
enum Piece {
    Text(String),
    Bytes(Vec<u8>),
}

/// GPT-2's alphabet: printable Latin-1 stands for itself, the other bytes from U+0100 on, in order.
fn byte_alphabet() -> HashMap<char, u8> {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let others = (0..=255u8).filter(|byte| !printable(*byte)).zip('\u{100}'..);
    let same = (0..=255u8).filter(|byte| printable(*byte)).map(|byte| (char::from(byte), byte));
    same.chain(others.map(|(byte, symbol)| (symbol, byte))).collect()
}

/// As tokenizers' ByteFallback reads "<0x41>".
fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// Runs a decoder that treats every token alike, but may treat the first one of a text differently.
fn decode_inner(step: &DecoderWrapper, text: String) -> Result<String, String> {
    let mut tokens = step.decode_chain(vec!["-".into(), text]).map_err(|e| e.to_string())?;
    tokens.pop().ok_or_else(|| "the decoder gives no text".to_string())
}

/// The decoder of `tokenizer.json`, token by token.
struct TokenDecoder<'a> {
    steps: Vec<&'a DecoderWrapper>,
    alphabet: HashMap<char, u8>,
}

impl<'a> TokenDecoder<'a> {
    /// Refuses decoders whose texts depend on the neighbours of a token.
    fn new(tokenizer: &'a BoundedTokenizer) -> Result<Self, String> {
        let refuse = |what: &str| Err(format!("the tokenizer's tokens have no bytes of their own: {what}"));
        let Some(decoder) = tokenizer.get_decoder() else { return refuse("it has no decoder") };
        let (mut steps, mut is_bytes, mut is_fused) = (Vec::new(), false, false);
        for step in decoder.steps() {
            match step {
                DecoderWrapper::ByteLevel(_) | DecoderWrapper::ByteFallback(_) if !is_bytes && !is_fused => {
                    is_bytes = true
                }
                DecoderWrapper::Replace(_) | DecoderWrapper::Metaspace(_) if !is_bytes && !is_fused => {}
                DecoderWrapper::Strip(strip) if if is_fused { strip.stop == 0 } else { !is_bytes } => {}
                DecoderWrapper::Fuse(_) => is_fused = true,
                DecoderWrapper::WordPiece(_) => return refuse("decoder WordPiece"),
                DecoderWrapper::BPE(_) => return refuse("decoder BPEDecoder"),
                DecoderWrapper::CTC(_) => return refuse("decoder CTC"),
                _ => return refuse("its decoder changes the text after the tokens were joined"),
            }
            // What is left after Fuse strips the start of a whole text.
            if !is_fused {
                steps.push(step);
            }
        }
        Ok(TokenDecoder { steps, alphabet: byte_alphabet() })
    }

    fn bytes(&self, token: String) -> Result<Vec<u8>, String> {
        let mut piece = Piece::Text(token);
        for step in &self.steps {
            let Piece::Text(text) = piece else { break };
            piece = match step {
                DecoderWrapper::ByteLevel(_) => {
                    let bytes = text.chars().map(|c| self.alphabet.get(&c).copied()).collect();
                    Piece::Bytes(Option::unwrap_or(bytes, text.into_bytes()))
                }
                DecoderWrapper::ByteFallback(_) => match fallback_byte(&text) {
                    Some(byte) => Piece::Bytes(vec![byte]),
                    None => Piece::Text(text),
                },
                step => Piece::Text(decode_inner(step, text)?),
            };
        }
        Ok(match piece {
            Piece::Text(text) => text.into_bytes(),
            Piece::Bytes(bytes) => bytes,
        })
    }
}

/// One entry per id below `width`. Empty: never allowed. Special tokens start with 0xFF, which no text has.
fn token_bytes(tokenizer: &Tokenizer, width: usize) -> Result<Vec<Vec<u8>>, String> {
    let decoder = TokenDecoder::new(tokenizer.inner())?;
    (0..width as u32)
        .map(|id| {
            let Some(token) = tokenizer.inner().id_to_token(id) else { return Ok(Vec::new()) };
            if tokenizer.is_special(id) {
                return Ok([&[TokTrie::SPECIAL_TOKEN_MARKER], token.as_bytes()].concat());
            }
            decoder.bytes(token)
        })
        .map(|bytes| bytes.map(|bytes| if bytes.len() > MAX_TOKEN_BYTES { Vec::new() } else { bytes }))
        .collect()
}

/// What one token stands for. None: there is no such token, or its text depends on its neighbours.
pub fn bytes_of(tokenizer: &Tokenizer, id: u32) -> Option<Vec<u8>> {
    let token = tokenizer.inner().id_to_token(id)?;
    if tokenizer.is_special(id) {
        return Some(token.into_bytes());
    }
    TokenDecoder::new(tokenizer.inner()).ok()?.bytes(token).ok()
}

/// The trie has one id more than the model: the library wants an id that ends an answer, and the model's own ones are
/// the caller's business.
fn build(tokenizer: &Tokenizer, width: usize) -> Result<ParserFactory, String> {
    let mut words = token_bytes(tokenizer, width)?;
    let size = words.iter().map(Vec::len).sum::<usize>();
    if size > MAX_TRIE_BYTES {
        return Err(format!("the tokenizer's tokens have {size} bytes, for grammars the limit is {MAX_TRIE_BYTES}"));
    }
    words.push([&[TokTrie::SPECIAL_TOKEN_MARKER], b"<>".as_slice()].concat());
    let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, width as u32), &words);
    let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let slices = SlicedBiasComputer::general_slices();
    let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices).map_err(|e| e.to_string())?;
    factory.quiet();
    Ok(factory)
}

/// The tries of one tokenizer, by the width of the model's logits. One of 49,152 tokens takes 0.2 s and 22 MB.
#[derive(Default)]
pub struct Vocabularies(Mutex<Vec<(usize, Arc<ParserFactory>)>>);

impl Vocabularies {
    pub fn get(&self, tokenizer: &Tokenizer, width: usize) -> Result<Arc<ParserFactory>, String> {
        // A panic in `build` changes nothing under the lock.
        let mut cached = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((_, factory)) = cached.iter().find(|(cached, _)| *cached == width) {
            return Ok(factory.clone());
        }
        let factory = Arc::new(build(tokenizer, width)?);
        if cached.len() == MAX_CACHED {
            cached.remove(0);
        }
        cached.push((width, factory.clone()));
        Ok(factory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabet_has_every_byte_once() {
        let alphabet = byte_alphabet();
        let bytes: std::collections::HashSet<u8> = alphabet.values().copied().collect();
        assert_eq!((alphabet.len(), bytes.len()), (256, 256));
        for (symbol, byte) in [('a', b'a'), ('\u{120}', b' '), ('\u{10A}', b'\n'), ('\u{FF}', 0xFF), ('\u{143}', 0xAD)]
        {
            assert_eq!(alphabet[&symbol], byte, "{symbol}");
        }
    }

    #[test]
    fn fallback_bytes() {
        for (token, byte) in [("<0x41>", Some(0x41)), ("<0xff>", Some(0xFF)), ("<0x4>", None), ("<0x041>", None)] {
            assert_eq!(fallback_byte(token), byte, "{token}");
        }
    }
}
