//! Which format a file has, by its first bytes, and what is said about those that are not read.

use crate::ffi::{bad_file, unsupported, Error};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Format {
    Wav,
    Flac,
    Mp3,
    Ogg,
}

/// Formats with a known beginning that are not read: offset, bytes, name.
const OTHERS: &[(usize, &[u8], &str)] = &[
    (4, b"ftyp", "MP4 (m4a, AAC or video)"),
    (0, b"\x1a\x45\xdf\xa3", "Matroska or WebM"),
    (8, b"AVI ", "AVI video"),
    (0, b"FLV\x01", "Flash video"),
    (0, b"\x00\x00\x01\xba", "MPEG video"),
    (0, b"\x00\x00\x01\xb3", "MPEG video"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "Windows Media"),
    (0, b"#!AMR", "AMR"),
    (0, b"caff", "Core Audio"),
    (0, b"FORM", "AIFF"),
    (0, b".snd", "Sun audio"),
    (0, b"RF64", "RF64 wav"),
    (0, b"BW64", "BW64 wav"),
    (0, b"RIFX", "RIFX wav"),
    (0, b"wvpk", "WavPack"),
    (0, b"MAC ", "Monkey's Audio"),
    (0, b"ADIF", "AAC"),
];

/// The end of every message about a file that another program can convert.
pub const CONVERT: &str = "; convert it: ffmpeg -i FILE -vn -ac 1 -ar 16000 OUT.flac";

/// Whether `head` begins as a frame of MPEG audio does; layer: 1 is layer III, 0 is AAC.
fn mpeg_layer(head: &[u8]) -> Option<u8> {
    let (header, _) = head.split_first_chunk::<4>()?;
    let sync = header[0] == 0xff && header[1] & 0xe0 == 0xe0;
    let version = header[1] >> 3 & 3;
    let rate = header[2] >> 2 & 3;
    let layer = header[1] >> 1 & 3;
    // AAC has two bits of its profile where MPEG audio has the bit rate.
    let bits = layer == 0 || header[2] >> 4 != 15;
    (sync && version != 1 && rate != 3 && bits).then_some(layer)
}

/// Whether `bytes` could be the beginning of a frame of an mp3.
pub fn is_mp3_frame(bytes: &[u8]) -> bool {
    bytes.len() < 4 || mpeg_layer(bytes) == Some(1)
}

fn is_text(head: &[u8]) -> bool {
    let end = match std::str::from_utf8(head) {
        Ok(_) => head.len(),
        Err(e) if e.error_len().is_none() => e.valid_up_to(),
        Err(_) => return false,
    };
    end > 0 && head[..end].iter().all(|byte| *byte >= 0x20 || matches!(byte, b'\t' | b'\n' | b'\r'))
}

/// The format that begins so, or None: what a file of no known format begins with, in which an mp3 may still follow.
/// head: the first bytes after `skipped` bytes of tags and zeros.
pub fn format_of(head: &[u8], skipped: u64) -> Result<Option<Format>, Error> {
    match (head.is_empty(), skipped) {
        (true, 0) => return bad_file("is empty"),
        (true, _) => return bad_file(format!("has no audio after {skipped} bytes of tags and zeros")),
        _ => {}
    }
    if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WAVE") {
        return Ok(Some(Format::Wav));
    }
    if head.starts_with(b"fLaC") {
        return Ok(Some(Format::Flac));
    }
    if head.starts_with(b"OggS") {
        return Ok(Some(Format::Ogg));
    }
    for (offset, bytes, name) in OTHERS {
        if head.get(*offset..offset + bytes.len()) == Some(bytes) {
            return unsupported(format!("{name} is not supported{CONVERT}"));
        }
    }
    if mpeg_layer(head) == Some(1) && !is_free_format(head) {
        return Ok(Some(Format::Mp3));
    }
    Ok(None)
}

/// Why a file that begins so, and holds no mp3, is not read.
pub fn unknown<T>(head: &[u8]) -> Result<T, Error> {
    match mpeg_layer(head) {
        Some(0) => return unsupported(format!("AAC is not supported{CONVERT}")),
        Some(1) => return unsupported(format!("mp3 of a free bit rate is not supported{CONVERT}")),
        Some(_) => return unsupported(format!("MPEG audio layer I and II are not supported{CONVERT}")),
        None => {}
    }
    // A transport stream: packets of 188 bytes.
    if head.first() == Some(&0x47) && head.get(188) == Some(&0x47) && head.get(376) == Some(&0x47) {
        return unsupported(format!("MPEG video is not supported{CONVERT}"));
    }
    if is_text(head) {
        return bad_file("is a text file, not audio");
    }
    bad_file(format!("is not a known audio format (wav, flac, mp3, ogg vorbis, ogg opus){CONVERT}"))
}

/// A bit rate that the frames do not say.
fn is_free_format(head: &[u8]) -> bool {
    head.get(2).is_some_and(|byte| byte >> 4 == 0)
}

/// Thousands of bits a second by the field of the header, of layer III: MPEG 1, and MPEG 2 and 2.5.
const BIT_RATES: [[usize; 15]; 2] = [
    [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
    [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
];
const RATES: [usize; 3] = [44_100, 48_000, 32_000]; // of MPEG 1; half of it for 2, a quarter for 2.5

/// Bytes of the frame of an mp3 that begins so. Source: ISO/IEC 11172-3, 2.4.3.1.
fn frame_size(bytes: &[u8]) -> Option<usize> {
    if mpeg_layer(bytes) != Some(1) || is_free_format(bytes) {
        return None;
    }
    let is_mpeg1 = bytes[1] >> 3 & 3 == 3;
    let parts = if is_mpeg1 {
        1
    } else if bytes[1] >> 3 & 3 == 2 {
        2
    } else {
        4
    };
    let bits = BIT_RATES[usize::from(!is_mpeg1)][usize::from(bytes[2] >> 4)] * 1000;
    let rate = RATES[usize::from(bytes[2] >> 2 & 3)] / parts;
    let samples = if is_mpeg1 { 1152 } else { 576 };
    Some(samples / 8 * bits / rate + usize::from(bytes[2] >> 1 & 1))
}

/// Where in `bytes` three frames of an mp3 follow each other, or two and the end. ends: nothing follows the bytes.
pub fn find_mp3(bytes: &[u8], ends: bool) -> Option<usize> {
    // Version, layer and rate stay as they are.
    let alike = |a: &[u8], b: &[u8]| a[1] & 0xfe == b[1] & 0xfe && a[2] & 0x0c == b[2] & 0x0c;
    (0..bytes.len()).find(|start| {
        let mut at = *start;
        for frame in 0..3 {
            let rest = &bytes[at.min(bytes.len())..];
            if frame == 2 && ends && (rest.is_empty() || rest.starts_with(b"TAG") || rest.starts_with(b"APETAGEX")) {
                return true;
            }
            let Some(size) = frame_size(rest).filter(|_| alike(rest, &bytes[*start..])) else { return false };
            at += size;
        }
        true
    })
}
