//! C entries for one loaded `tokenizer.json`. A loaded tokenizer is read-only, so any number of threads may use it.

use crate::bounded::{self, BoundedTokenizer};
use crate::ffi::{self, Ids, Text};
use crate::{checks, grammar, limits};
use std::collections::HashSet;

/// The largest `tokenizer.json` that is read. The largest ones in use are below 40 MB.
const MAX_FILE_BYTES: u64 = 512 << 20;

pub struct Tokenizer {
    inner: BoundedTokenizer,
    special: HashSet<u32>,
    /// Made for the first grammar.
    pub vocabularies: grammar::Vocabularies,
}

impl Tokenizer {
    pub fn inner(&self) -> &BoundedTokenizer {
        &self.inner
    }

    pub fn is_special(&self, id: u32) -> bool {
        self.special.contains(&id)
    }
}

fn load(path: &str) -> Result<Tokenizer, String> {
    let size = std::fs::metadata(path).map_err(|e| format!("{path}: {e}"))?.len();
    if size > MAX_FILE_BYTES {
        return Err(format!("{path}: {size} bytes, the limit is {MAX_FILE_BYTES}"));
    }
    let bytes = std::fs::read(path).map_err(|e| format!("{path}: {e}"))?;
    checks::check_file(&bytes).map_err(|e| format!("{path}: {e}"))?;
    // The contents of added tokens go through the normalizer.
    limits::begin_text(bytes.len());
    let read = ffi::caught(|| BoundedTokenizer::from_bytes(&bytes).map_err(|e| e.to_string()));
    let mut inner = read.map_err(|e| format!("{path}: {e}"))?;
    checks::check_loaded(&inner).map_err(|e| format!("{path}: {e}"))?;
    // As Python's AutoTokenizer does: stored padding and truncation are training settings, never applied to a call.
    inner.with_padding(None);
    inner.with_truncation(None).map_err(|e| format!("{path}: {e}"))?;
    let added = inner.get_added_tokens_decoder();
    let special = added.iter().filter(|(_, token)| token.special).map(|(id, _)| *id).collect();
    Ok(Tokenizer { inner, special, vocabularies: Default::default() })
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
        limits::begin_text(text.len());
        // encode_fast leaves the character offsets out; the ids are those of encode.
        let encode = || (*tokenizer).inner.encode_fast(text, add_special_tokens).map_err(|e| e.to_string());
        ffi::put_ids(out, ffi::caught(encode).map_err(|e| format!("encode: {e}"))?.get_ids().to_vec());
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
        let (tokenizer, ids) = (&(*tokenizer).inner, ffi::slice(ids, count));
        limits::begin_text(ids.len().saturating_mul(bounded::BYTES_PER_TOKEN));
        let decode = || {
            bounded::check_tokens(tokenizer, ids)?;
            tokenizer.decode(ids, skip_special_tokens).map_err(|e| e.to_string())
        };
        ffi::put_text(out, ffi::caught(decode).map_err(|e| format!("decode: {e}"))?);
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
pub unsafe extern "C" fn situ_text_vocab_size(tokenizer: *const Tokenizer) -> usize {
    let mut size = 0;
    ffi::guarded(std::ptr::null_mut(), || {
        size = (*tokenizer).inner.get_vocab_size(true);
        Ok(())
    });
    size
}
