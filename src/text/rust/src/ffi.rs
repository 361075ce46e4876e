//! What crosses the C border: texts, id arrays, status codes, and the net that catches panics.

pub use situ_ffi::slice;

pub const OK: i32 = 0;
pub const ERROR: i32 = 1;

/// Bytes owned by this library. `data` is null exactly when `size` is 0.
#[repr(C)]
pub struct Text {
    data: *mut u8,
    size: usize,
}

/// Token ids owned by this library. `data` is null exactly when `size` is 0.
#[repr(C)]
pub struct Ids {
    data: *mut u32,
    size: usize,
}

fn leak<T>(items: Vec<T>) -> (*mut T, usize) {
    let size = items.len();
    if size == 0 {
        return (std::ptr::null_mut(), 0);
    }
    (Box::into_raw(items.into_boxed_slice()).cast(), size)
}

/// Safety: (data, size) came from `leak` and was not released before.
unsafe fn reclaim<T>(data: *mut T, size: usize) {
    if !data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(data, size)));
    }
}

/// Safety: `out` is null or valid for writes.
pub unsafe fn put_text(out: *mut Text, text: String) {
    put_bytes(out, text.into_bytes())
}

/// Safety: `out` is null or valid for writes.
pub unsafe fn put_bytes(out: *mut Text, bytes: Vec<u8>) {
    if !out.is_null() {
        let (data, size) = leak(bytes);
        out.write(Text { data, size });
    }
}

/// Safety: `out` is null or valid for writes.
pub unsafe fn put_ids(out: *mut Ids, ids: Vec<u32>) {
    if !out.is_null() {
        let (data, size) = leak(ids);
        out.write(Ids { data, size });
    }
}

/// As `slice`, and the bytes must be UTF-8. `what` names the argument in the error.
pub unsafe fn utf8<'a>(data: *const u8, size: usize, what: &str) -> Result<&'a str, String> {
    std::str::from_utf8(slice(data, size))
        .map_err(|e| format!("{what} is not valid UTF-8: first bad byte at offset {}", e.valid_up_to()))
}

/// Ends the work that `caught` runs, where code between here and there would drop an error. No panic hook runs.
struct Refusal(String);

pub fn refuse(reason: String) -> ! {
    std::panic::resume_unwind(Box::new(Refusal(reason)))
}

/// Runs `work`; a panic inside it becomes an error.
pub fn caught<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    situ_ffi::quietly(work).unwrap_or_else(|payload| {
        Err(match payload.downcast::<Refusal>() {
            Ok(refusal) => refusal.0,
            Err(payload) => situ_ffi::panic_text(payload),
        })
    })
}

/// Runs the body of one C entry: an error or a panic is written to `error` and gives `ERROR`.
///
/// Safety: `error` is null or valid for writes.
pub unsafe fn guarded(error: *mut Text, work: impl FnOnce() -> Result<(), String>) -> i32 {
    match caught(work) {
        Ok(()) => OK,
        Err(text) => {
            put_text(error, text);
            ERROR
        }
    }
}

/// Safety: `text` is null or was written by this library.
#[no_mangle]
pub unsafe extern "C" fn situ_text_free_text(text: *mut Text) {
    if let Some(text) = text.as_mut() {
        reclaim(std::mem::replace(&mut text.data, std::ptr::null_mut()), text.size);
        text.size = 0;
    }
}

/// Safety: `ids` is null or was written by this library.
#[no_mangle]
pub unsafe extern "C" fn situ_text_free_ids(ids: *mut Ids) {
    if let Some(ids) = ids.as_mut() {
        reclaim(std::mem::replace(&mut ids.data, std::ptr::null_mut()), ids.size);
        ids.size = 0;
    }
}

/// Safety: the arguments are as `situ_text.h` says.
#[no_mangle]
pub unsafe extern "C" fn situ_text_check_utf8(
    text: *const u8,
    text_size: usize,
    what: *const u8,
    what_size: usize,
    error: *mut Text,
) -> i32 {
    guarded(error, || utf8(text, text_size, utf8(what, what_size, "the name of a text")?).map(|_| ()))
}
