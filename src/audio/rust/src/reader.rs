//! A file as mono samples of one rate, read in pieces; and the C entries for that.

use crate::decode::{Decoder, RATES};
use crate::ffi::{guarded, slice, slice_mut, Code, Error, Text};
use crate::input::Input;
use crate::resample::Resampler;
use std::sync::atomic::Ordering;

/// Samples that one step may leave to be given out. Larger ones than a packet keep their memory no longer than needed.
const KEEP: usize = 1 << 16;

pub struct Reader {
    decoder: Decoder,
    progress: std::sync::Arc<crate::input::Progress>,
    bytes: Option<u64>,
    rate: u32,
    resampler: Option<Resampler>,
    /// Decoded, at the file's rate.
    mono: Vec<f32>,
    /// At the rate that is wanted, given out up to `given`.
    ready: Vec<f32>,
    given: usize,
    ended: bool,
}

/// As `situ_audio_info`.
#[repr(C)]
pub struct Info {
    format: Text,
    rate: u32,
    channels: u32,
    samples: i64,
    bytes: u64,
}

/// As `situ_audio_state`.
#[repr(C)]
pub struct State {
    cut: Text,
    note: Text,
    damaged: u64,
    bytes: u64,
}

impl Reader {
    fn new(input: Input, rate: u32) -> Result<Reader, Error> {
        if !RATES.contains(&rate) {
            let text = format!("a rate of {rate} Hz is asked for; {} to {} Hz can be had", RATES.start(), RATES.end());
            return Err(Error { code: Code::Argument, text });
        }
        let (progress, bytes) = (input.progress.clone(), input.bytes);
        let decoder = Decoder::new(input)?;
        let resampler = (decoder.rate != rate).then(|| Resampler::new(decoder.rate, rate)).transpose()?;
        Ok(Reader {
            decoder,
            progress,
            bytes,
            rate,
            resampler,
            mono: Vec::new(),
            ready: Vec::new(),
            given: 0,
            ended: false,
        })
    }

    /// Makes more samples ready, or finds the end.
    fn step(&mut self) -> Result<(), Error> {
        if self.ready.capacity() > KEEP {
            self.ready = Vec::new();
        }
        self.ready.clear();
        self.given = 0;
        self.mono.clear();
        let more = self.decoder.next(&mut self.mono)?;
        match &mut self.resampler {
            None => std::mem::swap(&mut self.mono, &mut self.ready),
            Some(resampler) => resampler.push(&self.mono, &mut self.ready)?,
        }
        if !more {
            self.ended = true;
            if let Some(resampler) = &mut self.resampler {
                resampler.finish(&mut self.ready)?;
            }
        }
        Ok(())
    }

    fn read(&mut self, out: &mut [f32]) -> Result<usize, Error> {
        let mut written = 0;
        while written < out.len() {
            let left = &self.ready[self.given..];
            if left.is_empty() {
                if self.ended {
                    break;
                }
                self.step()?;
                continue;
            }
            let count = left.len().min(out.len() - written);
            out[written..written + count].copy_from_slice(&left[..count]);
            written += count;
            self.given += count;
        }
        Ok(written)
    }
}

unsafe fn put(input: Input, rate: u32, out: *mut *mut Reader) -> Result<(), Error> {
    let reader = Reader::new(input, rate)?;
    out.write(Box::into_raw(Box::new(reader)));
    Ok(())
}

/// Safety: as `situ_audio.h` says.
#[no_mangle]
pub unsafe extern "C" fn situ_audio_open_path(
    path: *const u8,
    path_size: usize,
    rate: u32,
    out: *mut *mut Reader,
    error: *mut Text,
) -> i32 {
    guarded(error, || put(Input::open_path(slice(path, path_size))?, rate, out))
}

/// Safety: as `situ_audio.h` says.
#[no_mangle]
pub unsafe extern "C" fn situ_audio_open_bytes(
    bytes: *const u8,
    size: usize,
    rate: u32,
    out: *mut *mut Reader,
    error: *mut Text,
) -> i32 {
    guarded(error, || put(Input::from_bytes(slice(bytes, size)), rate, out))
}

/// Safety: as `situ_audio.h` says.
#[no_mangle]
pub unsafe extern "C" fn situ_audio_free(reader: *mut Reader) {
    if !reader.is_null() {
        guarded(std::ptr::null_mut(), || {
            drop(Box::from_raw(reader));
            Ok(())
        });
    }
}

/// Safety: as `situ_audio.h` says.
#[no_mangle]
pub unsafe extern "C" fn situ_audio_info(reader: *const Reader, out: *mut Info) {
    let (Some(reader), Some(out)) = (reader.as_ref(), out.as_mut()) else { return };
    let decoder = &reader.decoder;
    out.format.set(decoder.name);
    out.rate = decoder.rate;
    out.channels = decoder.channels as u32;
    let (from, to) = (u128::from(decoder.rate), u128::from(reader.rate));
    let samples = decoder.expected.map(|frames| (u128::from(frames) * to).div_ceil(from));
    out.samples = samples.and_then(|samples| i64::try_from(samples).ok()).unwrap_or(-1);
    out.bytes = reader.bytes.unwrap_or(0);
}

/// Safety: as `situ_audio.h` says.
#[no_mangle]
pub unsafe extern "C" fn situ_audio_read(
    reader: *mut Reader,
    out: *mut f32,
    size: usize,
    written: *mut usize,
    error: *mut Text,
) -> i32 {
    guarded(error, || {
        let Some(reader) = reader.as_mut() else { return Ok(()) };
        written.write(reader.read(slice_mut(out, size))?);
        Ok(())
    })
}

/// Safety: as `situ_audio.h` says.
#[no_mangle]
pub unsafe extern "C" fn situ_audio_state(reader: *const Reader, out: *mut State) {
    let (Some(reader), Some(out)) = (reader.as_ref(), out.as_mut()) else { return };
    out.cut.set(&reader.decoder.cut);
    out.note.set(&reader.decoder.note());
    out.damaged = reader.decoder.damaged;
    out.bytes = reader.progress.bytes.load(Ordering::Relaxed);
}
