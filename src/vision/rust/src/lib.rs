//! Decoding of png, webp and gif behind the C ABI of `src/vision/situ_image.h`: RGB as Pillow's `convert("RGB")` gives it.
//!
//! Every entry goes through `situ_ffi::guarded`, so a hostile file gives an error text and never a crash.

mod gif;
mod png;
mod reader;
mod webp;
