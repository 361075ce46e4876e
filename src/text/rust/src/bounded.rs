//! The parts of a tokenizer that can lengthen a text, each step with a bound that is checked before the step is taken.
//! Without it a `tokenizer.json` of a few KB makes terabytes out of one word.
//!
//! What can lengthen a text or a list of ids in tokenizers 0.23.2 (`Growth` below: bytes per byte, and per piece):
//!   normalizers      Replace, Prepend, Precompiled, ByteLevel, NFC, NFD, NFKC, NFKD, Lowercase, Bert; they run on every
//!                    piece between two added tokens. Strip, StripAccents and Nmt only remove or replace.
//!   pre-tokenizers   ByteLevel and Metaspace; the others only split, and empty pieces are dropped.
//!   models           an unknown character becomes a copy of `unk_token`, and a prefix or suffix stands beside every
//!                    character (`checks.rs`). Merges and pieces are no longer than what they stand for.
//!   post-processors  a template repeats special tokens and the text itself (`checks.rs`); Bert and Roberta
//!                    add at most 4 tokens. Processors in a Sequence multiply.
//!   decoders         Replace, BPEDecoder and CTC with empty marks, WordPiece, and ByteLevel for bytes that are no UTF-8.
//!                    A token of the vocabulary may have any length (`check_tokens`).

use crate::{checks, ffi, job, limits};
use serde::{Deserialize, Deserializer};
use tokenizers::decoders::strip::Strip;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::models::ModelWrapper;
use tokenizers::normalizers::{BertNormalizer, NormalizerWrapper, Precompiled, Replace};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::utils::SysRegex;
use tokenizers::{Decoder, NormalizedString, Normalizer, PreTokenizedString, PreTokenizer, Result, TokenizerImpl};
use tokenizers::{Model, OffsetReferential, OffsetType, SplitDelimiterBehavior, Token, TruncationDirection};

pub type BoundedTokenizer = TokenizerImpl<Models, Normalizers, PreTokenizers, PostProcessorWrapper, Decoders>;

/// A model that stops where nobody needs more tokens, or waits for them.
pub struct Models(pub ModelWrapper);

impl Model for Models {
    type Trainer = <ModelWrapper as Model>::Trainer;

    fn tokenize(&self, text: &str) -> Result<Vec<Token>> {
        if job::is_cancelled() {
            return Err("nobody waits for the text any more".into());
        }
        self.0.tokenize(text)
    }
    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.token_to_id(token)
    }
    fn id_to_token(&self, id: u32) -> Option<String> {
        self.0.id_to_token(id)
    }
    fn get_vocab(&self) -> std::collections::HashMap<String, u32> {
        self.0.get_vocab()
    }
    fn get_vocab_size(&self) -> usize {
        self.0.get_vocab_size()
    }
    fn save(&self, folder: &std::path::Path, prefix: Option<&str>) -> Result<Vec<std::path::PathBuf>> {
        self.0.save(folder, prefix)
    }
    fn get_trainer(&self) -> Self::Trainer {
        self.0.get_trainer()
    }
    fn tokenize_in_pretokenized(
        &self,
        text: &mut PreTokenizedString,
        _: Option<(usize, TruncationDirection)>,
    ) -> Result<()> {
        match limits::wanted_tokens() {
            Some((most, side)) => text.tokenize_with_limit(|piece| self.tokenize(piece.get()), most, side),
            None => text.tokenize(|piece| self.tokenize(piece.get())),
        }
    }
}

impl<'de> Deserialize<'de> for Models {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        ModelWrapper::deserialize(deserializer).map(Models)
    }
}

/// How many bytes a text must have to become one token more.
pub struct Spelling {
    /// Of the bytes that tokens spell, how many one token stands for at most; 0: it is not known. It is where each of
    /// them becomes a part of exactly one token: BPE of bytes, behind steps that drop nothing.
    pub longest: usize,
    /// By byte: whether a token spells it. The model leaves the others out.
    pub spelled: [bool; 256],
}

pub fn spelling(tokenizer: &BoundedTokenizer) -> Spelling {
    let model = tokenizer.get_model();
    let keeps = |step: &Step<PreTokenizerWrapper>| match &step.step {
        PreTokenizerWrapper::ByteLevel(_) | PreTokenizerWrapper::Digits(_) => true,
        PreTokenizerWrapper::Split(split) => split.behavior != SplitDelimiterBehavior::Removed,
        _ => false,
    };
    let is_byte_level = |step: &Step<PreTokenizerWrapper>| matches!(step.step, PreTokenizerWrapper::ByteLevel(_));
    let splits = tokenizer.get_pre_tokenizer();
    let of_bytes = matches!(model.0, ModelWrapper::BPE(_))
        && tokenizer.get_normalizer().is_none_or(|steps| steps.0.iter().all(|step| step.name == "Prepend"))
        && splits.is_some_and(|steps| steps.0.iter().all(keeps) && steps.0.iter().any(is_byte_level));
    let added = tokenizer.get_added_tokens_decoder();
    if !of_bytes || added.values().any(|token| token.lstrip || token.rstrip) {
        return Spelling { longest: 0, spelled: [true; 256] };
    }
    let of_model = model.get_vocab().keys().map(|token| token.chars().count()).max().unwrap_or(0);
    let longest = added.values().map(|token| token.content.len()).max().unwrap_or(0).max(of_model);
    let mut spelled = [false; 256];
    let printed = |byte: &u32| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    for byte in 0..256u32 {
        // GPT-2's alphabet: bytes that are no printed characters follow behind the others.
        let symbol = if printed(&byte) { byte } else { 256 + (0..byte).filter(|b| !printed(b)).count() as u32 };
        let symbol = char::from_u32(symbol).map(String::from).unwrap_or_default();
        spelled[byte as usize] = model.token_to_id(&symbol).is_some();
    }
    Spelling { longest, spelled }
}

/// What decoding counts as the input: far more than a usual token has, so that tokens of 128 spaces pass.
pub const BYTES_PER_TOKEN: usize = 16;

/// Normalizers, pre-tokenizers or decoders of one file, without Sequence around them. Those in use have at most ten.
const MAX_STEPS: usize = 256;

fn check_steps<T>(steps: &[Step<T>]) -> Result<()> {
    if steps.len() > MAX_STEPS {
        return Err(format!("{} steps in a row, the limit is {MAX_STEPS}", steps.len()).into());
    }
    Ok(())
}

/// A step makes at most `per_byte * bytes + per_piece * pieces` bytes.
#[derive(Clone, Copy)]
struct Growth {
    per_byte: usize,
    per_piece: usize,
}

const fn growth(per_byte: usize, per_piece: usize) -> Growth {
    Growth { per_byte, per_piece }
}

struct Step<T> {
    step: T,
    growth: Growth,
    name: &'static str,
}

impl<T> Step<T> {
    fn check(&self, bytes: usize, pieces: usize) -> std::result::Result<(), String> {
        let Growth { per_byte, per_piece } = self.growth;
        let made = bytes.saturating_mul(per_byte).saturating_add(pieces.saturating_mul(per_piece));
        limits::check_text(self.name, bytes, made)
    }
}

/// Whether a match may be empty; when in doubt it may. A pattern whose constructs do not look at what is around a match
/// can be empty anywhere or nowhere, so an empty text tells. `^`, `$` and `\A` hold in an empty text.
fn may_match_nothing(regex: &str) -> bool {
    let bytes = regex.as_bytes();
    let looks_around = regex.replace("(?:", "").contains("(?")
        || regex.contains("(*")
        || bytes
            .windows(2)
            .any(|pair| pair[0] == b'\\' && pair[1].is_ascii_alphanumeric() && !b"sSdDwWhHnrtfepPx".contains(&pair[1]));
    looks_around || SysRegex::new(regex).map_or(true, |regex| regex.find_iter("").next().is_some())
}

fn is_regex(replace: &Replace) -> bool {
    serde_json::to_value(replace).map_or(true, |fields| fields["pattern"]["String"].as_str().is_none())
}

fn replace_growth(replace: &Replace) -> Result<Growth> {
    let content = replace.content.len();
    let fields = serde_json::to_value(replace)?;
    let pattern = &fields["pattern"];
    Ok(match (pattern["String"].as_str(), pattern["Regex"].as_str()) {
        // Each occurrence takes as many bytes away as the pattern has.
        (Some(text), _) if !text.is_empty() => growth(content.div_ceil(text.len()).max(1), 0),
        (None, Some(regex)) if !may_match_nothing(regex) => growth(content.max(1), 0),
        // Before every character and at the end.
        _ => growth(content.saturating_add(1), content),
    })
}

/// The longest of the texts that a charsmap puts in place of a character: they stand behind the table, each with a 0.
fn charsmap_growth(charsmap: &Precompiled) -> Result<Growth> {
    let fields = serde_json::to_value(charsmap)?;
    let text = fields["precompiled_charsmap"].as_str().ok_or("precompiled_charsmap is not a text")?;
    let bytes = checks::base64(text.as_bytes());
    let table = bytes.first_chunk().map_or(0, |size| u32::from_le_bytes(*size) as usize);
    let texts = bytes.get(table.saturating_add(4)..).unwrap_or(&bytes);
    Ok(growth(texts.split(|byte| *byte == 0).map(<[u8]>::len).max().unwrap_or(0).max(1), 0))
}

pub struct Normalizers(Vec<Step<NormalizerWrapper>>);

impl Normalizers {
    fn add(&mut self, step: NormalizerWrapper) -> Result<()> {
        let (name, growth) = match &step {
            NormalizerWrapper::Sequence(_) => ("Sequence", growth(1, 0)),
            NormalizerWrapper::StripNormalizer(_) => ("Strip", growth(1, 0)),
            NormalizerWrapper::StripAccents(_) => ("StripAccents", growth(1, 0)),
            NormalizerWrapper::Nmt(_) => ("Nmt", growth(1, 0)),
            // UAX 15, table "maximum expansion": U+0390 and U+1D160, U+FDFA.
            NormalizerWrapper::NFC(_) => ("NFC", growth(3, 0)),
            NormalizerWrapper::NFD(_) => ("NFD", growth(3, 0)),
            NormalizerWrapper::NFKC(_) => ("NFKC", growth(11, 0)),
            NormalizerWrapper::NFKD(_) => ("NFKD", growth(11, 0)),
            NormalizerWrapper::Lowercase(_) => ("Lowercase", growth(3, 0)),
            // Spaces around a character of 3 bytes, then NFD and Lowercase.
            NormalizerWrapper::BertNormalizer(_) => ("BertNormalizer", growth(15, 0)),
            NormalizerWrapper::ByteLevel(_) => ("ByteLevel", growth(2, 0)),
            NormalizerWrapper::Prepend(prepend) => ("Prepend", growth(1, prepend.prepend.len())),
            NormalizerWrapper::Replace(replace) => ("Replace", replace_growth(replace)?),
            NormalizerWrapper::Precompiled(charsmap) => ("Precompiled", charsmap_growth(charsmap)?),
        };
        match step {
            NormalizerWrapper::Sequence(steps) => steps.into_iter().try_for_each(|step| self.add(step)),
            step => {
                self.0.push(Step { step, growth, name });
                Ok(())
            }
        }
    }
}

impl Normalizers {
    /// The same with other rules, where the one step is a BertNormalizer.
    pub fn with_bert(&self, lower: bool, accents: Option<bool>, han: Option<bool>) -> Option<Self> {
        let [Step { step: NormalizerWrapper::BertNormalizer(own), growth, name }] = self.0.as_slice() else {
            return None;
        };
        let step = BertNormalizer::new(own.clean_text, han.unwrap_or(own.handle_chinese_chars), accents, lower);
        Some(Normalizers(vec![Step { step: NormalizerWrapper::BertNormalizer(step), growth: *growth, name }]))
    }
}

impl Normalizer for Normalizers {
    fn normalize(&self, text: &mut NormalizedString) -> Result<()> {
        for step in &self.0 {
            // The caller ignores errors of a normalizer.
            step.check(text.get().len(), 1).unwrap_or_else(|error| ffi::refuse(error));
            step.step.normalize(text)?;
        }
        limits::keep_text(text.get().len());
        Ok(())
    }
}

pub struct PreTokenizers(Vec<Step<PreTokenizerWrapper>>);

impl PreTokenizers {
    fn add(&mut self, step: PreTokenizerWrapper) {
        let (name, growth) = match &step {
            // A space before every piece, then two bytes for one.
            PreTokenizerWrapper::ByteLevel(_) => ("ByteLevel", growth(2, 2)),
            PreTokenizerWrapper::Metaspace(space) => {
                let size = space.get_replacement().len_utf8();
                ("Metaspace", growth(size, size))
            }
            _ => ("splitting", growth(1, 0)),
        };
        match step {
            PreTokenizerWrapper::Sequence(steps) => steps.into_iter().for_each(|step| self.add(step)),
            step => self.0.push(Step { step, growth, name }),
        }
    }
}

impl Default for PreTokenizers {
    fn default() -> Self {
        PreTokenizers(Vec::new())
    }
}

impl PreTokenizer for PreTokenizers {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> Result<()> {
        limits::forget_text();
        // Added tokens have been looked for, in what was normalized too.
        if let Some(limits::Mark { character, splits }) = limits::mark() {
            text.split(|_, mut piece| {
                if splits {
                    return piece.split(character, SplitDelimiterBehavior::Removed);
                }
                piece.filter(|c| c != character);
                Ok(vec![piece])
            })?;
        }
        for step in &self.0 {
            let pieces = text.get_splits(OffsetReferential::Normalized, OffsetType::None);
            step.check(pieces.iter().map(|(piece, ..)| piece.len()).sum(), pieces.len())?;
            step.step.pre_tokenize(text)?;
        }
        Ok(())
    }
}

pub struct Decoders(Vec<Step<DecoderWrapper>>);

impl Decoders {
    /// In order, without Sequence around them.
    pub fn steps(&self) -> impl Iterator<Item = &DecoderWrapper> {
        self.0.iter().map(|step| &step.step)
    }

    /// Whether decoding a text may take any time.
    pub fn have_regex(&self) -> bool {
        self.steps().any(|step| matches!(step, DecoderWrapper::Replace(replace) if is_regex(replace)))
    }

    fn add(&mut self, step: DecoderWrapper) -> Result<()> {
        let (name, growth) = match &step {
            DecoderWrapper::Replace(replace) => ("Replace", replace_growth(replace)?),
            DecoderWrapper::BPE(bpe) if bpe.suffix.is_empty() => ("BPEDecoder", growth(2, 1)),
            DecoderWrapper::CTC(ctc) if ctc.word_delimiter_token.is_empty() => ("CTC", growth(2, 1)),
            DecoderWrapper::WordPiece(_) => ("WordPiece", growth(1, 1)),
            DecoderWrapper::ByteLevel(_) => ("ByteLevel", growth(3, 0)),
            // ByteFallback makes at most U+FFFD, 3 bytes, of the 6 of "<0x41>".
            _ => ("decoding", growth(1, 0)),
        };
        match step {
            DecoderWrapper::Sequence(steps) => steps.get_decoders().iter().try_for_each(|step| self.add(step.clone())),
            step => {
                self.0.push(Step { step, growth, name });
                Ok(())
            }
        }
    }
}

impl Decoder for Decoders {
    fn decode_chain(&self, mut tokens: Vec<String>) -> Result<Vec<String>> {
        for step in &self.0 {
            step.check(tokens.iter().map(String::len).sum(), tokens.len())?;
            tokens = match &step.step {
                DecoderWrapper::Strip(strip) => tokens.iter().map(|token| stripped(strip, token)).collect(),
                step => step.decode_chain(tokens)?,
            };
        }
        Ok(tokens)
    }
}

/// `token` without up to `start` of the character in front and `stop` behind. The library's own panics where both ends
/// take the same character, and where there is none.
fn stripped(strip: &Strip, token: &str) -> String {
    let mut rest = token;
    for _ in 0..strip.start {
        let Some(shorter) = rest.strip_prefix(strip.content) else { break };
        rest = shorter;
    }
    for _ in 0..strip.stop {
        let Some(shorter) = rest.strip_suffix(strip.content) else { break };
        rest = shorter;
    }
    rest.to_string()
}

impl<'de> Deserialize<'de> for Normalizers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let mut steps = Normalizers(Vec::new());
        let added = steps.add(NormalizerWrapper::deserialize(deserializer)?);
        added.and_then(|()| check_steps(&steps.0)).map_err(serde::de::Error::custom)?;
        Ok(steps)
    }
}

impl<'de> Deserialize<'de> for PreTokenizers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let mut steps = PreTokenizers(Vec::new());
        steps.add(PreTokenizerWrapper::deserialize(deserializer)?);
        check_steps(&steps.0).map_err(serde::de::Error::custom)?;
        Ok(steps)
    }
}

impl<'de> Deserialize<'de> for Decoders {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let mut steps = Decoders(Vec::new());
        let added = steps.add(DecoderWrapper::deserialize(deserializer)?);
        added.and_then(|()| check_steps(&steps.0)).map_err(serde::de::Error::custom)?;
        Ok(steps)
    }
}

/// The sum of the tokens' bytes is refused before decoding makes a list of them.
pub fn check_tokens(tokenizer: &BoundedTokenizer, ids: &[u32]) -> std::result::Result<(), String> {
    let mut bytes = 0usize;
    for id in ids {
        bytes += tokenizer.id_to_token(*id).map_or(0, |token| token.len());
        limits::check_text("vocabulary", ids.len(), bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regexes_that_may_match_nothing() {
        for regex in
            ["", "a*", "a?", "a{0,3}", "()", "a|", "|a", "^", "$", r"\b", r"\B", "(?=a)", "(?!a)", r"a\K", "(?i)a"]
        {
            assert!(may_match_nothing(regex), "{regex}");
        }
        for regex in [" {2,}", r"\s+", r"\p{L}", ".", "(?:a|b)+", r"\.", r"[^\r\n]", "^a", "''|``"] {
            assert!(!may_match_nothing(regex), "{regex}");
        }
    }

    #[test]
    fn growth_is_a_bound() {
        for (pattern, content, text) in [
            (r#"{"String": " "}"#, "\u{2581}", "  "),
            (r#"{"String": "``"}"#, "\"", "````"),
            (r#"{"String": "aaa"}"#, "bbbb", "aaaaaa"),
            (r#"{"String": ""}"#, "xyz", "a"),
            (r#"{"Regex": "a*"}"#, "xyz", "bbb"),
            (r#"{"Regex": "."}"#, "xyz", "ab"),
        ] {
            let json = format!(r#"{{"type": "Replace", "pattern": {pattern}, "content": {content:?}}}"#);
            let replace: Replace = serde_json::from_str(&json).unwrap();
            let growth = replace_growth(&replace).unwrap();
            let mut normalized = NormalizedString::from(text);
            replace.normalize(&mut normalized).unwrap();
            let decoded = replace.decode_chain(vec![text.to_string()]).unwrap().concat();
            let bound = text.len() * growth.per_byte + growth.per_piece;
            assert!(normalized.get().len().max(decoded.len()) <= bound, "{json}: {} {bound}", normalized.get());
            assert!(bound <= 2 * normalized.get().len(), "{json}");
        }
    }

    #[test]
    fn stripped_ends() {
        for (start, stop) in [(0, 0), (1, 0), (0, 1), (1, 1), (2, 1), (3, 9)] {
            let strip = Strip::new(' ', start, stop);
            for token in ["a", " a", "a ", " a ", "   a   ", "\u{e9} ", " \u{4f60}"] {
                let want = strip.decode_chain(vec![token.to_string(); 2]);
                assert_eq!(stripped(&strip, token), want.unwrap()[1], "{start} {stop} {token:?}");
            }
            assert_eq!(stripped(&strip, ""), "");
            assert_eq!(stripped(&strip, " "), if start + stop > 0 { "" } else { " " });
            assert_eq!(stripped(&strip, "  ").len(), 2usize.saturating_sub(start + stop));
        }
    }

    #[test]
    fn charsmaps_grow_by_their_longest_text() {
        let bytes = b"\x04\0\0\0\xff\xff\xff\xffabc\0defgh\0";
        let charsmap = Precompiled::from(bytes).unwrap();
        assert_eq!(charsmap_growth(&charsmap).unwrap().per_byte, 5);
    }
}
