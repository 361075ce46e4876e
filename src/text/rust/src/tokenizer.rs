//! C entries for one loaded `tokenizer.json`. A loaded tokenizer is read-only, so any number of threads may use it.

use crate::ffi::{self, Ids, Text};
use std::collections::HashSet;

/// The largest `tokenizer.json` that is read. The largest ones in use are below 40 MB.
const MAX_FILE_BYTES: u64 = 512 << 20;

pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    special: HashSet<u32>,
}

/// The part of the file that `check_charsmaps` looks at; the rest is skipped over.
#[derive(serde::Deserialize)]
struct NormalizerOnly {
    #[serde(default)]
    normalizer: serde_json::Value,
}

/// The first four bytes of a SentencePiece charsmap name the size of its table. The library reserves that size before
/// it looks whether the bytes are there, up to 8 GB; a failed reservation cannot be caught.
fn check_charsmaps(value: &serde_json::Value) -> Result<(), String> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => Some(u64::from(c - b'A')),
        b'a'..=b'z' => Some(u64::from(c - b'a') + 26),
        b'0'..=b'9' => Some(u64::from(c - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let table_bytes = |text: &[u8]| {
        let bits = text.get(..6)?.iter().try_fold(0, |bits, c| Some(bits << 6 | digit(*c)?))?;
        Some(u64::from(((bits >> 4) as u32).swap_bytes()))
    };
    match value {
        serde_json::Value::Object(fields) => fields.iter().try_for_each(|(name, field)| match field.as_str() {
            Some(text) if name == "precompiled_charsmap" => match table_bytes(text.as_bytes()) {
                Some(bytes) if bytes <= text.len() as u64 => Ok(()),
                _ => Err("normalizer: precompiled_charsmap is shorter than the table that it announces".to_string()),
            },
            _ => check_charsmaps(field),
        }),
        serde_json::Value::Array(items) => items.iter().try_for_each(check_charsmaps),
        _ => Ok(()),
    }
}

fn load(path: &str) -> Result<Tokenizer, String> {
    let size = std::fs::metadata(path).map_err(|e| format!("{path}: {e}"))?.len();
    if size > MAX_FILE_BYTES {
        return Err(format!("{path}: {size} bytes, the limit is {MAX_FILE_BYTES}"));
    }
    let bytes = std::fs::read(path).map_err(|e| format!("{path}: {e}"))?;
    let part: NormalizerOnly = serde_json::from_slice(&bytes).map_err(|e| format!("{path}: {e}"))?;
    check_charsmaps(&part.normalizer).map_err(|e| format!("{path}: {e}"))?;
    let mut inner = tokenizers::Tokenizer::from_bytes(&bytes).map_err(|e| format!("{path}: {e}"))?;
    // As Python's AutoTokenizer does: stored padding and truncation are training settings, never applied to a call.
    inner.with_padding(None);
    inner.with_truncation(None).map_err(|e| format!("{path}: {e}"))?;
    let added = inner.get_added_tokens_decoder();
    let special = added.iter().filter(|(_, token)| token.special).map(|(id, _)| *id).collect();
    Ok(Tokenizer { inner, special })
}

/// Safety: the arguments are as `situ_text.h` says; this holds for every entry below.
#[no_mangle]
pub unsafe extern "C" fn situ_text_tokenizer_create(
    path: *const u8,
    path_size: usize,
    out: *mut *mut Tokenizer,
    error: *mut Text,
) -> i32 {
    ffi::guarded(error, || {
        let tokenizer = load(ffi::utf8(path, path_size, "the tokenizer path")?)?;
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
    out: *mut Ids,
    error: *mut Text,
) -> i32 {
    ffi::guarded(error, || {
        let text = ffi::utf8(text, text_size, "the text to encode")?;
        // encode_fast leaves the character offsets out; the ids are those of encode.
        let encoding = (*tokenizer).inner.encode_fast(text, add_special_tokens);
        ffi::put_ids(out, encoding.map_err(|e| format!("encode: {e}"))?.get_ids().to_vec());
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn situ_text_decode(
    tokenizer: *const Tokenizer,
    ids: *const u32,
    count: usize,
    skip_special_tokens: bool,
    out: *mut Text,
    error: *mut Text,
) -> i32 {
    ffi::guarded(error, || {
        let text = (*tokenizer).inner.decode(ffi::slice(ids, count), skip_special_tokens);
        ffi::put_text(out, text.map_err(|e| format!("decode: {e}"))?);
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
    (*tokenizer).special.contains(&id)
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
