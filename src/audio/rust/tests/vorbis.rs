//! The unit tests of src/vorbis.rs, without the library: compiled for its own tests, that takes 20 s, for the transforms that
//! it instantiates.
use situ_ffi as ffi;

#[path = "../src/vorbis.rs"]
#[allow(dead_code)]
mod vorbis;
