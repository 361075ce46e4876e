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

/// head: the first bytes after `skipped` bytes of tags and zeros.
pub fn format_of(head: &[u8], skipped: u64) -> Result<Format, Error> {
    match (head.is_empty(), skipped) {
        (true, 0) => return bad_file("is empty"),
        (true, _) => return bad_file(format!("has no audio after {skipped} bytes of tags and zeros")),
        _ => {}
    }
    if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WAVE") {
        return Ok(Format::Wav);
    }
    if head.starts_with(b"fLaC") {
        return Ok(Format::Flac);
    }
    if head.starts_with(b"OggS") {
        return Ok(Format::Ogg);
    }
    for (offset, bytes, name) in OTHERS {
        if head.get(*offset..offset + bytes.len()) == Some(bytes) {
            return unsupported(format!("{name} is not supported{CONVERT}"));
        }
    }
    match mpeg_layer(head) {
        Some(1) => return Ok(Format::Mp3),
        Some(0) => return unsupported(format!("AAC is not supported{CONVERT}")),
        Some(_) => return unsupported(format!("MPEG audio layer I and II are not supported{CONVERT}")),
        None => {}
    }
    // A transport stream: packets of 188 bytes.
    if head[0] == 0x47 && head.get(188) == Some(&0x47) && head.get(376) == Some(&0x47) {
        return unsupported(format!("MPEG video is not supported{CONVERT}"));
    }
    if is_text(head) {
        return bad_file("is a text file, not audio");
    }
    bad_file(format!("is not a known audio format (wav, flac, mp3, ogg vorbis, ogg opus){CONVERT}"))
}
