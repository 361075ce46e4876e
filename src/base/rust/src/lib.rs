//! What crosses a C border: error codes, error texts in a buffer of the caller, and the net that catches panics.

use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

const TEXT_BYTES: usize = 512;

/// The values of `situ_audio_code` and `situ_image_code`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Code {
    BadFile = 1,
    NotFound = 2,
    Unsupported = 3,
    Argument = 4,
    Internal = 5,
}

#[derive(Clone, Debug)]
pub struct Error {
    pub code: Code,
    pub text: String,
}

pub fn bad_file<T>(text: impl Into<String>) -> Result<T, Error> {
    Err(Error { code: Code::BadFile, text: text.into() })
}

pub fn unsupported<T>(text: impl Into<String>) -> Result<T, Error> {
    Err(Error { code: Code::Unsupported, text: text.into() })
}

/// A text with a terminator, cut at a character's border where it is too long.
#[repr(C)]
pub struct Text {
    text: [u8; TEXT_BYTES],
}

impl Text {
    pub fn set(&mut self, text: &str) {
        let mut size = text.len().min(TEXT_BYTES - 1);
        while !text.is_char_boundary(size) {
            size -= 1;
        }
        self.text[..size].copy_from_slice(&text.as_bytes()[..size]);
        self.text[size] = 0;
    }
}

thread_local! {
    static IN_GUARD: Cell<bool> = const { Cell::new(false) };
}

/// A library prints nothing: panics that are about to be turned into an error text stay quiet.
fn silence_guarded_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IN_GUARD.get() {
                previous(info);
            }
        }));
    });
}

/// Runs `work`, whose panic is given back and prints nothing.
pub fn quietly<T>(work: impl FnOnce() -> T) -> std::thread::Result<T> {
    silence_guarded_panics();
    let outer = IN_GUARD.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IN_GUARD.set(outer);
    result
}

/// The error text of a panic.
pub fn panic_text(payload: Box<dyn std::any::Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    format!("internal failure: {}", text.unwrap_or_else(|| "no message".into()))
}

/// Runs the body of one C entry: gives 0, or the code of an error whose text is written to `error`. A panic is an error.
///
/// Safety: `error` is null or valid for writes.
pub unsafe fn guarded(error: *mut Text, work: impl FnOnce() -> Result<(), Error>) -> i32 {
    let result = quietly(work)
        .unwrap_or_else(|payload| Err(Error { code: Code::Internal, text: panic_text(payload) }));
    match result {
        Ok(()) => 0,
        Err(failure) => {
            if let Some(error) = error.as_mut() {
                error.set(&failure.text);
            }
            failure.code as i32
        }
    }
}

/// Safety: `data` is null or valid for `size` reads while the result is in use.
pub unsafe fn slice<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if data.is_null() || size == 0 {
        return &[];
    }
    std::slice::from_raw_parts(data, size)
}

/// Safety: `data` is null or valid for `size` writes while the result is in use.
pub unsafe fn slice_mut<'a, T>(data: *mut T, size: usize) -> &'a mut [T] {
    if data.is_null() || size == 0 {
        return &mut [];
    }
    std::slice::from_raw_parts_mut(data, size)
}
