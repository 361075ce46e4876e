//! What one template render may use. Fuel alone is no bound: forty times `x = x ~ x` is a terabyte in 200 instructions.
//!
//! Three limits close the gap; `rewrite.rs` puts the checks behind every operation that makes a value:
//!   weight   bytes of text plus NODE_BYTES per node of one value, counted as a tree (shared parts count every time),
//!            so that any single operation is linear in a bounded number;
//!   memory   live bytes of the render's own thread, counted by the allocator;
//!   time     a deadline.
//!
//! At the end: what a tokenizer's rules may make of one text (`bounded.rs`).

use crate::job;
use minijinja::value::{DynObject, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};
use tokenizers::TruncationDirection;

pub const FUEL: u64 = 20_000_000;
/// The longest templates in use have 30 KB. The parser recurses once per `-` or `not`, so this also bounds its stack.
pub const MAX_TEMPLATE_BYTES: usize = 256 << 10;
pub const MAX_TIME: Duration = Duration::from_secs(5);
pub const MAX_LIVE_BYTES: isize = 512 << 20;
const MAX_WEIGHT: usize = 8 << 20;
/// Allowance per byte of messages and variables, so that a long conversation is never refused.
pub const PER_INPUT_BYTE: usize = 8;
/// A value and its share of the container that holds it.
const NODE_BYTES: usize = 32;
/// Above serde_json's own limit of 128, so that whatever was read can be handled.
const MAX_DEPTH: usize = 200;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static MOST_LIVE: Cell<isize> = const { Cell::new(isize::MAX) };
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
    static INPUT_BYTES: Cell<usize> = const { Cell::new(0) };
}

/// The system allocator plus a count of the live bytes of each thread, with a limit for threads that work for `job::run`.
pub struct CountingAllocator;

/// What glibc takes for a request: 8 bytes more, in steps of 16, at least 32.
const fn taken(bytes: usize) -> isize {
    let size = (bytes.saturating_add(23) & !15) as isize;
    if size < 32 {
        32
    } else {
        size
    }
}

/// Counts, and returns whether the thread may have as much.
fn count(bytes: isize) -> bool {
    // try_with: the allocator also runs while a thread is being torn down.
    let live = LIVE.try_with(|live| {
        live.set(live.get().wrapping_add(bytes));
        live.get()
    });
    bytes <= 0 || live.is_ok_and(|live| live <= MOST_LIVE.get()) || live.is_err()
}

/// Memory for `bytes` more, or null. A thread that works for `job::run` does not return without it.
fn counted(bytes: isize, allocate: impl FnOnce() -> *mut u8) -> *mut u8 {
    let data = if count(bytes) { allocate() } else { std::ptr::null_mut() };
    if data.is_null() {
        job::out_of_memory();
    }
    data
}

// Safety: every call goes to the system allocator unchanged, or returns null as a failed one does.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        counted(taken(layout.size()), || System.alloc(layout))
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        counted(taken(layout.size()), || System.alloc_zeroed(layout))
    }
    unsafe fn dealloc(&self, data: *mut u8, layout: Layout) {
        count(-taken(layout.size()));
        System.dealloc(data, layout)
    }
    unsafe fn realloc(&self, data: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        counted(taken(size) - taken(layout.size()), || System.realloc(data, layout, size))
    }
}

/// Starts the memory count of this thread, which may then hold so many bytes.
pub fn begin_memory(most: usize) {
    LIVE.set(0);
    MOST_LIVE.set(isize::try_from(most).unwrap_or(isize::MAX));
}

/// Lets this thread hold so many bytes more.
pub fn allow_memory(more: usize) {
    MOST_LIVE.set(MOST_LIVE.get().saturating_add_unsigned(more));
}

/// Starts the clock of a render on this thread; `begin_memory` has started the count.
pub fn begin(input_bytes: usize) {
    INPUT_BYTES.set(input_bytes);
    DEADLINE.set(Some(Instant::now() + MAX_TIME));
}

/// What this thread holds of what it asked for since `begin`.
pub fn live_bytes() -> isize {
    LIVE.get()
}

pub fn refuse(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.into())
}

/// Checks time and memory. Costs about as much as reading the clock.
pub fn tick() -> Result<(), Error> {
    if LIVE.get() > MAX_LIVE_BYTES.saturating_add((INPUT_BYTES.get() * PER_INPUT_BYTE) as isize) {
        return Err(refuse(format!("the template uses more than {MAX_LIVE_BYTES} bytes of memory")));
    }
    if DEADLINE.get().is_some_and(|deadline| Instant::now() > deadline) {
        return Err(refuse(format!("the template runs for more than {} seconds", MAX_TIME.as_secs())));
    }
    Ok(())
}

pub fn max_weight() -> usize {
    MAX_WEIGHT + INPUT_BYTES.get() * PER_INPUT_BYTE
}

/// Refuses a text of `bytes` bytes before it is made. `None` is a product that overflowed.
pub fn check_size(bytes: Option<usize>) -> Result<(), Error> {
    tick()?;
    match bytes {
        Some(bytes) if bytes <= max_weight() => Ok(()),
        _ => Err(refuse(format!("the template makes a value of more than {} bytes", max_weight()))),
    }
}

/// The weight of `value`, or an error when it is too heavy or too deep.
pub fn weigh(value: &Value) -> Result<usize, Error> {
    tick()?;
    let mut left = max_weight();
    take(value, 0, &mut left)?;
    Ok(max_weight() - left)
}

/// A namespace is the only thing that a template can change, so it could be made to contain itself or to grow inside
/// a value that was weighed before. Neither is possible while no container holds one.
pub fn is_namespace(object: &DynObject) -> bool {
    object.type_name().ends_with("::Namespace")
}

fn take(value: &Value, depth: usize, left: &mut usize) -> Result<(), Error> {
    let text = value.as_str().map_or(0, str::len);
    *left = left.checked_sub(text + NODE_BYTES).map_or_else(|| check_size(None).map(|_| 0), Ok)?;
    if depth > MAX_DEPTH {
        return Err(refuse(format!("the template nests values more than {MAX_DEPTH} deep")));
    }
    let Some(object) = value.as_object() else { return Ok(()) };
    if depth > 0 && is_namespace(object) {
        return Err(refuse("a namespace inside another value is not supported"));
    }
    if let Some(count) = crate::chat::numbers_inside(value) {
        *left = left.checked_sub(count * NODE_BYTES).map_or_else(|| check_size(None).map(|_| 0), Ok)?;
        return Ok(());
    }
    if let Some(items) = crate::chat::inside(value) {
        return items.iter().try_for_each(|item| take(item, depth + 1, left));
    }
    match value.kind() {
        ValueKind::Map => {
            for key in value.try_iter()?.checked() {
                let key = key?;
                take(&key, depth + 1, left)?;
                take(&value.get_item(&key)?, depth + 1, left)?;
            }
        }
        ValueKind::Seq | ValueKind::Iterable => {
            for item in value.try_iter()?.checked() {
                take(&item?, depth + 1, left)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// What a tokenizer's rules may make of one text: bytes per byte of it, and bytes for a short one. The most that a rule
/// in use does is 33 (charsmaps: U+FDFA), then 3 (a space becomes U+2581), so only hostile files come near.
const PER_TEXT_BYTE: usize = 64;
const MAX_TEXT_BYTES: usize = 1 << 20;
/// CPU time of one text. A tokenizer in use takes about 1 s per million bytes at worst.
const MAX_TEXT_TIME: Duration = Duration::from_secs(3);
const TIME_PER_TEXT_BYTE: Duration = Duration::from_micros(20);
/// The library keeps an offset of 16 bytes beside each byte, in several copies, and lists of pieces. A text in use takes
/// about 100 bytes a byte.
const TEXT_MEMORY: usize = 192 << 20;
const MEMORY_PER_TEXT_BYTE: usize = 1024;
/// The regex engine recurses where a pattern nests.
const TEXT_STACK: usize = 16 << 20;

/// What work on one text may use.
pub fn text_bounds(what: &'static str, input_bytes: usize) -> job::Bounds {
    let time = TIME_PER_TEXT_BYTE.saturating_mul(u32::try_from(input_bytes).unwrap_or(u32::MAX));
    job::Bounds {
        what,
        time: MAX_TEXT_TIME + time,
        memory: TEXT_MEMORY.saturating_add(input_bytes.saturating_mul(MEMORY_PER_TEXT_BYTE)),
        stack: TEXT_STACK,
    }
}

#[derive(Clone, Copy)]
struct TextBudget {
    input_bytes: usize,
    /// Pieces of the text that are done.
    kept_bytes: usize,
}

thread_local! {
    static TEXT: Cell<TextBudget> = const { Cell::new(TextBudget { input_bytes: 0, kept_bytes: 0 }) };
}

/// A character that is left out of the text, once added tokens were looked for in it.
#[derive(Clone, Copy)]
pub struct Mark {
    pub character: char,
    /// What stands around it is not joined.
    pub splits: bool,
}

thread_local! {
    static MARK: Cell<Option<Mark>> = const { Cell::new(None) };
}

/// Of the text that this thread encodes next.
pub fn set_mark(mark: Option<Mark>) {
    MARK.set(mark);
}

pub fn mark() -> Option<Mark> {
    MARK.get()
}

thread_local! {
    static WANTED: Cell<Option<(usize, TruncationDirection)>> = const { Cell::new(None) };
}

/// So many tokens of the next texts of this thread are wanted, of this side; others may be left out. `None`: all.
pub fn set_wanted_tokens(wanted: Option<(usize, TruncationDirection)>) {
    WANTED.set(wanted);
}

pub fn wanted_tokens() -> Option<(usize, TruncationDirection)> {
    WANTED.get()
}

/// Starts the count of one text on this thread.
pub fn begin_text(input_bytes: usize) {
    TEXT.set(TextBudget { input_bytes, kept_bytes: 0 });
}

pub fn keep_text(bytes: usize) {
    let budget = TEXT.get();
    TEXT.set(TextBudget { kept_bytes: budget.kept_bytes.saturating_add(bytes), ..budget });
}

pub fn forget_text() {
    TEXT.set(TextBudget { kept_bytes: 0, ..TEXT.get() });
}

/// Refuses a step `name` that could make `made` bytes of `bytes` bytes before it is taken.
pub fn check_text(name: &str, bytes: usize, made: usize) -> Result<(), String> {
    let budget = TEXT.get();
    let limit = budget.input_bytes.saturating_mul(PER_TEXT_BYTE).saturating_add(MAX_TEXT_BYTES);
    if budget.kept_bytes.saturating_add(made) > limit {
        return Err(format!("the tokenizer's rule {name} could make {made} bytes of {bytes}, the limit is {limit}"));
    }
    if job::is_cancelled() {
        return Err("nobody waits for the text any more".into());
    }
    Ok(())
}
