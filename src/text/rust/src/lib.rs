//! Hugging Face tokenizers, chat templates and grammars behind the C ABI of `src/text/situ_text.h`.
//!
//! Every entry goes through `ffi::guarded`, so a hostile file or template gives an error text and never a crash.

mod bounded;
mod chat;
mod checks;
mod counts;
mod ffi;
mod grammar;
mod job;
mod limits;
mod tokenizer;

// Their C functions go into the archive.
pub use situ_audio;
pub use situ_http;
pub use situ_hub;
pub use situ_image;

#[global_allocator]
static ALLOCATOR: limits::CountingAllocator = limits::CountingAllocator;
