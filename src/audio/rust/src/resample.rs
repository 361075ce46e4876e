//! One rate to another, by rubato: blocks in the frequency domain, so that the filter is steep and costs little.

use crate::ffi::{Code, Error};
use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Resampler as _, WindowFunction};

/// Samples of a block of the higher rate. Its filter is as long: at 44.1 kHz to 16 kHz it falls from 7.7 to 8.0 kHz.
const BLOCK: usize = 4096;

pub struct Resampler {
    fft: Fft<f32>,
    from: u64,
    to: u64,
    /// Not resampled yet.
    pending: Vec<f32>,
    block: Vec<f32>,
    /// Of the filter, to be left out.
    delay: usize,
    taken: u64,
    given: u64,
}

/// A whole number of periods, in samples of the input. An even one, where that is not large: the middle of an odd filter
/// lies half a sample off.
fn block_size(from: usize, to: usize) -> usize {
    let (mut a, mut b) = (from, to);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    let (unit, unit_high) = (from / a, from.max(to) / a);
    let count = BLOCK.div_ceil(unit_high);
    let odd = unit * count % 2 == 1 && unit <= BLOCK;
    unit * (count + usize::from(odd))
}

fn failed(e: impl std::fmt::Display) -> Error {
    Error { code: Code::Internal, text: format!("the rate cannot be converted: {e}") }
}

impl Resampler {
    pub fn new(from: u32, to: u32) -> Result<Resampler, Error> {
        let (rate_in, rate_out) = (from as usize, to as usize);
        let chunk = block_size(rate_in, rate_out);
        let window = WindowFunction::BlackmanHarris2;
        let fft = Fft::new_custom(rate_in, rate_out, chunk, 1, 1, window, FixedSync::Both).map_err(failed)?;
        let (delay, block) = (fft.output_delay(), vec![0.0; fft.output_frames_max()]);
        Ok(Resampler { fft, from: from.into(), to: to.into(), pending: Vec::new(), block, delay, taken: 0, given: 0 })
    }

    /// Appends to `out` what `samples` complete.
    pub fn push(&mut self, samples: &[f32], out: &mut Vec<f32>) -> Result<(), Error> {
        self.taken += samples.len() as u64;
        self.pending.extend_from_slice(samples);
        let mut from = 0;
        while self.pending.len() - from >= self.fft.input_frames_next() {
            let size = self.fft.input_frames_next();
            self.block(from, size, u64::MAX, out)?;
            from += size;
        }
        self.pending.drain(..from);
        Ok(())
    }

    /// Appends what is left: n samples give ceil(n to / from) in all.
    pub fn finish(&mut self, out: &mut Vec<f32>) -> Result<(), Error> {
        let all = (self.taken * self.to).div_ceil(self.from);
        while self.given < all {
            let size = self.fft.input_frames_next();
            self.pending.resize(size.max(self.pending.len()), 0.0);
            self.block(0, size, all, out)?;
            self.pending.drain(..size);
        }
        Ok(())
    }

    fn block(&mut self, from: usize, size: usize, all: u64, out: &mut Vec<f32>) -> Result<(), Error> {
        let input = InterleavedSlice::new(&self.pending[from..from + size], 1, size).map_err(failed)?;
        let frames = self.block.len();
        let mut output = InterleavedSlice::new_mut(&mut self.block, 1, frames).map_err(failed)?;
        let (_, made) = self.fft.process_into_buffer(&input, &mut output, None).map_err(failed)?;
        let late = self.delay.min(made);
        self.delay -= late;
        let wanted = usize::try_from(all - self.given).unwrap_or(usize::MAX);
        let new = &self.block[late..made];
        let new = &new[..new.len().min(wanted)];
        self.given += new.len() as u64;
        out.extend_from_slice(new);
        Ok(())
    }
}
