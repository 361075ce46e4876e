//! The chunks of a wav in front of its samples, written anew in the one form that every reader takes.
//!
//! Writers disagree: a `fmt ` chunk of PCM has 16, 18, 20 or 40 bytes, odd chunks are padded or not, and a program that
//! writes to a pipe does not know the size. What follows `data` stays as it is.

use crate::decode::check_sizes;
use crate::ffi::{bad_file, Error};
use crate::input::Input;

const PCM: u16 = 1;
const FLOAT: u16 = 3;
const A_LAW: u16 = 6;
const MU_LAW: u16 = 7;
const EXTENSIBLE: u16 = 0xfffe;
/// The end of a GUID that stands for one of the tags above (KSDATAFORMAT_SUBTYPE_*).
const GUID_OF_TAG: [u8; 14] = [0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71];
/// A size that is not known: to the end of the file.
const UNKNOWN: u32 = u32::MAX;
const MOST_FORMAT: u32 = 1 << 16;
const MOST_CHUNKS: usize = 1 << 12;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn cut_off<T>() -> Result<T, Error> {
    bad_file("is cut off in its header")
}

/// Puts a header of `fmt ` and `data` in the place of all chunks up to the samples.
pub fn rewrite_header(input: &mut Input) -> Result<(), Error> {
    input.skip(12)?; // RIFF, the size of the whole, WAVE
    let mut format = None;
    for _ in 0..MOST_CHUNKS {
        let head = input.fill(8)?;
        if head.len() < 8 {
            return cut_off();
        }
        let size = u32_at(head, 4);
        match &head[..4] {
            b"fmt " => {
                format = Some(read_format(input, size)?);
                input.skip(8 + u64::from(size))?;
            }
            b"data" => {
                let Some(format) = format else { return bad_file("is damaged: a wav without a format chunk") };
                input.skip(8)?;
                let size = if is_unknown(size, input.left()) { UNKNOWN } else { size };
                input.put_back(&header(&format, size));
                return Ok(());
            }
            _ => input.skip(8 + u64::from(size))?,
        }
        if size % 2 == 1 {
            skip_padding(input)?;
        }
    }
    bad_file("is damaged: a wav without samples")
}

/// Whether a size of samples is what a writer puts there who does not know it: ffmpeg all ones, sox 2 GiB less a page,
/// arecord 2 GiB, others 0. `left`: bytes of the file behind it, where that is known.
fn is_unknown(size: u32, left: Option<u64>) -> bool {
    let placeholder = size == 0 || size >= 0xffff_0000 || (0x7fff_0000..=0x8000_0000).contains(&size);
    placeholder && !(size > 0 && left.is_some_and(|left| u64::from(size) <= left))
}

/// The byte behind an odd chunk. Some writers leave it out.
fn skip_padding(input: &mut Input) -> Result<(), Error> {
    let next = input.fill(4)?.get(..4);
    if next.is_some_and(|name| name.iter().all(|byte| (0x20..0x7f).contains(byte))) {
        return Ok(());
    }
    input.skip(1)
}

fn header(format: &[u8], size: u32) -> Vec<u8> {
    let mut bytes = b"RIFF\xff\xff\xff\xffWAVEfmt ".to_vec();
    bytes.extend_from_slice(&(format.len() as u32).to_le_bytes());
    bytes.extend_from_slice(format);
    bytes.extend_from_slice(b"data");
    bytes.extend_from_slice(&size.to_le_bytes());
    bytes
}

/// What the format chunk at the front of the input says, as short as its tag allows.
fn read_format(input: &mut Input, size: u32) -> Result<Vec<u8>, Error> {
    if !(16..=MOST_FORMAT).contains(&size) {
        return bad_file(format!("is damaged: its format chunk has {size} bytes"));
    }
    let size = size as usize;
    let chunk = input.fill(8 + size)?;
    if chunk.len() < 8 + size {
        return cut_off();
    }
    let chunk = &chunk[8..8 + size];
    let (mut tag, channels, rate) = (u16_at(chunk, 0), u16_at(chunk, 2), u32_at(chunk, 4));
    check_sizes(rate, channels.into())?;
    if tag == EXTENSIBLE && size >= 40 && chunk[26..40] == GUID_OF_TAG {
        tag = u16_at(chunk, 24);
    }
    let (align, bits) = (u16_at(chunk, 12), u16_at(chunk, 14));
    let bytes = match tag {
        A_LAW | MU_LAW => 1,
        // Samples of 12 or 20 bits stand in the upper bits of whole bytes.
        PCM | FLOAT if bits > 0 => bits.div_ceil(8),
        PCM | FLOAT => align / channels,
        _ => return Ok(chunk.to_vec()), // the reader says what it makes of it
    };
    // Wider blocks that the rate of bytes counts too hold samples of which nothing says on which side they stand.
    let each = if channels > 0 { align / channels } else { 0 };
    if each > bytes && u32_at(chunk, 8) == rate.saturating_mul(align.into()) {
        return bad_file(format!("has samples of {bits} bits in {each} bytes each, which are not read"));
    }
    let align = channels.saturating_mul(bytes);
    let mut short = tag.to_le_bytes().to_vec();
    short.extend_from_slice(&channels.to_le_bytes());
    short.extend_from_slice(&rate.to_le_bytes());
    short.extend_from_slice(&rate.saturating_mul(align.into()).to_le_bytes());
    short.extend_from_slice(&align.to_le_bytes());
    short.extend_from_slice(&bytes.saturating_mul(8).to_le_bytes());
    if tag == A_LAW || tag == MU_LAW {
        short.extend_from_slice(&[0, 0]);
    }
    Ok(short)
}
