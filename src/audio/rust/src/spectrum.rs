//! Power spectra of overlapping frames, by rustfft, in double precision: next to a loud tone, 80 dB below it still counts.
//! Its plain code is enough (8 ms for 30 s of sound); the vector code of this type takes the compiler 10 s.

use crate::ffi::{slice, slice_mut, Code, Error, Text};
use rustfft::{num_complex::Complex, Fft, FftPlannerScalar};
use std::sync::Arc;

pub struct Spectrum {
    fft: Arc<dyn Fft<f64>>,
    window: Vec<f64>,
}

/// Safety: as `situ_audio.h` says.
#[no_mangle]
pub unsafe extern "C" fn situ_audio_spectrum_create(
    window: *const f64,
    size: usize,
    out: *mut *mut Spectrum,
    error: *mut Text,
) -> i32 {
    crate::ffi::guarded(error, || {
        if size == 0 || size > 1 << 16 {
            return Err(Error { code: Code::Argument, text: format!("a frame has {size} samples") });
        }
        let fft = FftPlannerScalar::new().plan_fft_forward(size);
        out.write(Box::into_raw(Box::new(Spectrum { fft, window: slice(window, size).to_vec() })));
        Ok(())
    })
}

/// Safety: as `situ_audio.h` says.
#[no_mangle]
pub unsafe extern "C" fn situ_audio_spectrum_free(spectrum: *mut Spectrum) {
    if !spectrum.is_null() {
        drop(Box::from_raw(spectrum));
    }
}

/// Safety: as `situ_audio.h` says.
#[no_mangle]
pub unsafe extern "C" fn situ_audio_spectrum_power(
    spectrum: *const Spectrum,
    samples: *const f32,
    hop: usize,
    frames: usize,
    power: *mut f64,
    error: *mut Text,
) -> i32 {
    crate::ffi::guarded(error, || {
        let Some(spectrum) = spectrum.as_ref().filter(|_| frames > 0) else { return Ok(()) };
        let size = spectrum.window.len();
        let samples = slice(samples, hop * (frames - 1) + size);
        let power = slice_mut(power, frames * (size / 2 + 1));
        let mut frame = vec![Complex::default(); size];
        let mut scratch = vec![Complex::default(); spectrum.fft.get_inplace_scratch_len()];
        for (t, row) in power.chunks_exact_mut(size / 2 + 1).enumerate() {
            let source = &samples[t * hop..t * hop + size];
            for ((x, sample), weight) in frame.iter_mut().zip(source).zip(&spectrum.window) {
                *x = Complex { re: f64::from(*sample) * weight, im: 0.0 };
            }
            spectrum.fft.process_with_scratch(&mut frame, &mut scratch);
            for (p, bin) in row.iter_mut().zip(&frame) {
                // transformers keeps spectra as complex64: features equal its own to the last bit but for a few.
                let (re, im) = (f64::from(bin.re as f32), f64::from(bin.im as f32));
                *p = re * re + im * im;
            }
        }
        Ok(())
    })
}
