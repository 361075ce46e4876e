//! Opus packets to samples, by libopus (RFC 6716). The headers are those of Ogg (RFC 7845, section 5.1).

use crate::ffi::{bad_file, Error};
use opusic_sys as sys;
use std::ptr::NonNull;

pub const RATE: u32 = 48_000;
/// Frames of the longest packet, 120 ms.
const MOST_FRAMES: usize = 5760;

pub struct Decoder {
    state: NonNull<sys::OpusMSDecoder>,
    channels: usize,
    gain: f32,
    buffer: Vec<f32>,
}

// The state is memory of this decoder's own, without anything of a thread.
unsafe impl Send for Decoder {}

impl Drop for Decoder {
    fn drop(&mut self) {
        // Safety: made by opus_multistream_decoder_create, and destroyed once.
        unsafe { sys::opus_multistream_decoder_destroy(self.state.as_ptr()) }
    }
}

impl Decoder {
    /// head: the packet that begins with "OpusHead".
    pub fn new(head: &[u8]) -> Result<Decoder, Error> {
        let Some((fixed, table)) = head.split_first_chunk::<19>().filter(|(fixed, _)| fixed.starts_with(b"OpusHead"))
        else {
            return bad_file("its Opus header is damaged");
        };
        let channels = fixed[9];
        let gain = i16::from_le_bytes([fixed[16], fixed[17]]);
        let (streams, coupled, mapping) = match (fixed[18], channels) {
            (0, 1) => (1, 0, vec![0]),
            (0, 2) => (1, 1, vec![0, 1]),
            (1, 1..) if table.len() >= 2 + usize::from(channels) => {
                (table[0], table[1], table[2..2 + usize::from(channels)].to_vec())
            }
            (family, _) => return bad_file(format!("Opus with {channels} channels in family {family} is not known")),
        };
        let mut code = 0;
        // Safety: the mapping has as many entries as channels; all other values are checked by the function.
        let state = unsafe {
            let (streams, coupled) = (i32::from(streams), i32::from(coupled));
            let channels = i32::from(channels);
            sys::opus_multistream_decoder_create(RATE as i32, channels, streams, coupled, mapping.as_ptr(), &mut code)
        };
        let Some(state) = NonNull::new(state).filter(|_| code == 0) else {
            return bad_file("its Opus header is damaged");
        };
        let channels = usize::from(channels);
        let gain = 10f32.powf(f32::from(gain) / (20.0 * 256.0));
        Ok(Decoder { state, channels, gain, buffer: vec![0.0; MOST_FRAMES * channels] })
    }

    /// Samples of one packet, channel by channel within a frame; None for a damaged one.
    pub fn decode(&mut self, packet: &[u8]) -> Option<&[f32]> {
        // Safety: the buffer holds MOST_FRAMES frames.
        let frames = unsafe {
            let size = i32::try_from(packet.len()).ok()?;
            let out = self.buffer.as_mut_ptr();
            sys::opus_multistream_decode_float(self.state.as_ptr(), packet.as_ptr(), size, out, MOST_FRAMES as i32, 0)
        };
        let frames = usize::try_from(frames).ok()?;
        let samples = &mut self.buffer[..frames * self.channels];
        if self.gain != 1.0 {
            samples.iter_mut().for_each(|sample| *sample *= self.gain);
        }
        Some(samples)
    }
}
