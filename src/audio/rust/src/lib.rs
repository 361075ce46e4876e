//! Audio decoding, resampling and power spectra behind the C ABI of `src/audio/situ_audio.h`.
//!
//! Every entry goes through `ffi::guarded`, so a hostile file gives an error text and never a crash.

mod decode;
mod input;
mod ogg;
mod opus;
mod reader;
mod resample;
mod sniff;
mod spectrum;
mod vorbis;
mod wav;

use situ_ffi as ffi;
