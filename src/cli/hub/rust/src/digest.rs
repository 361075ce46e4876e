//! SHA-256 of large files, and SHA-1 of small ones, as git names them.

use std::ffi::{c_char, c_int};

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use situ_ffi as ffi;

pub struct Digest(Context);

/// `bits`: 256, else SHA-1.
#[no_mangle]
pub extern "C" fn situ_hub_digest_new(bits: c_int) -> *mut Digest {
    let algorithm = if bits == 256 { &SHA256 } else { &SHA1_FOR_LEGACY_USE_ONLY };
    Box::into_raw(Box::new(Digest(Context::new(algorithm))))
}

/// Safety: a digest of situ_hub_digest_new; `data` is valid for `size` reads.
#[no_mangle]
pub unsafe extern "C" fn situ_hub_digest_add(digest: *mut Digest, data: *const c_char, size: usize) {
    (*digest).0.update(ffi::slice(data.cast::<u8>(), size));
}

/// Writes 64 or 40 hexadecimal digits and a NUL, and frees the digest.
///
/// Safety: a digest of situ_hub_digest_new; `to` is valid for 65 writes.
#[no_mangle]
pub unsafe extern "C" fn situ_hub_digest_end(digest: *mut Digest, to: *mut c_char) {
    let done = Box::from_raw(digest).0.finish();
    let text: String = done.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let place = ffi::slice_mut(to.cast::<u8>(), text.len() + 1);
    place[..text.len()].copy_from_slice(text.as_bytes());
    place[text.len()] = 0;
}
