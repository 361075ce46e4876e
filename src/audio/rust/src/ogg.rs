//! The pages of an Ogg stream on their way to the reader, which cuts packets off at the end that a page says.
//!
//! A page says how many samples there are up to its end, and this never goes back within a stream. Where it does, or
//! says nothing, the number is wrong: it gets one behind which nothing is cut off, and so do all that follow it.
//! Damaged pages, and what is no page, are left out: the reader would not open a file that begins with one.
//! Pages as in RFC 3533, section 6.

use crate::input::Input;
use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use symphonia::core::io::MediaSource;

const CAPTURE: &[u8; 4] = b"OggS";
const HEADER: usize = 27;
const FIRST: u8 = 2;
const LAST: u8 = 4;
/// More samples than a page can hold.
const FAR: i64 = 1 << 40;
/// Logical streams at a time.
const MOST_STREAMS: usize = 64;
/// Read at once, where no page begins.
const PIECE: usize = 4096;
/// Packets of a last page of which nothing counts, at most: what an encoder adds to get its last samples out.
const MOST_UNHEARD: usize = 2;

/// What was wrong so far.
#[derive(Default)]
pub struct Problems {
    /// Pages with a wrong number of samples.
    pub positions: AtomicU64,
    /// Pages that are missing, or that were left out since they are damaged.
    pub missing: AtomicU64,
}

struct Stream {
    /// Packets of headers that are still to come.
    headers: usize,
    /// Of the last page with audio, as it was handed on.
    position: i64,
    /// What is added to positions.
    shift: i64,
    /// Number of the last page behind the headers.
    page: Option<u32>,
    /// Whether a page with audio was handed on.
    heard: bool,
}

pub struct Pages {
    input: Input,
    /// Read from the input, and not looked at.
    raw: Vec<u8>,
    /// To be handed on, from `given` on.
    ready: Vec<u8>,
    given: usize,
    streams: HashMap<u32, Stream>,
    problems: Arc<Problems>,
}

impl Pages {
    pub fn new(input: Input, problems: Arc<Problems>) -> Pages {
        Pages { input, raw: Vec::new(), ready: Vec::new(), given: 0, streams: HashMap::new(), problems }
    }

    /// Whether `count` bytes are there that were not looked at.
    fn fill(&mut self, count: usize) -> io::Result<bool> {
        let have = self.raw.len();
        if have < count {
            (&mut self.input).take((count - have) as u64).read_to_end(&mut self.raw)?;
        }
        Ok(self.raw.len() >= count)
    }

    /// The next page; at the end, what is left. Empty: nothing is.
    fn next(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if !self.fill(HEADER)? {
                return Ok(std::mem::take(&mut self.raw));
            }
            if !self.raw.starts_with(CAPTURE) {
                self.fill(PIECE)?;
                self.skip_to_capture(0);
                continue;
            }
            let segments = usize::from(self.raw[26]);
            let whole = self.fill(HEADER + segments)? && {
                let body: usize = self.raw[HEADER..HEADER + segments].iter().map(|size| usize::from(*size)).sum();
                self.fill(HEADER + segments + body)?
            };
            if !whole {
                return Ok(std::mem::take(&mut self.raw));
            }
            let segments = &self.raw[HEADER..HEADER + segments];
            let size = HEADER + segments.len() + segments.iter().map(|size| usize::from(*size)).sum::<usize>();
            if checksum(&self.raw[..size]) != u32_at(&self.raw, 22) {
                self.count_damaged();
                self.skip_to_capture(1);
                continue;
            }
            let mut page: Vec<u8> = self.raw.drain(..size).collect();
            self.correct(&mut page);
            return Ok(page);
        }
    }

    /// Leaves out the bytes in front of the next beginning of a page, from `from` on.
    fn skip_to_capture(&mut self, from: usize) {
        let next = self.raw[from..].windows(CAPTURE.len()).position(|bytes| bytes == CAPTURE).map(|at| from + at);
        let count = next.unwrap_or(self.raw.len() - (CAPTURE.len() - 1));
        self.raw.drain(..count);
    }

    /// What begins as a page of a stream but is damaged.
    fn count_damaged(&mut self) {
        let number = u32_at(&self.raw, 18);
        let Some(stream) = self.streams.get_mut(&u32_at(&self.raw, 14)) else { return };
        self.problems.missing.fetch_add(1, Ordering::Relaxed);
        if stream.page.is_none_or(|before| number == before.wrapping_add(1)) {
            stream.page = Some(number); // it is not missing, too
        }
    }

    fn correct(&mut self, page: &mut [u8]) {
        let segments = &page[HEADER..HEADER + usize::from(page[26])];
        let ended = segments.iter().filter(|size| **size < 255).count();
        let (flags, serial, number) = (page[5], u32_at(page, 14), u32_at(page, 18));
        if flags & FIRST != 0 {
            if self.streams.len() >= MOST_STREAMS {
                self.streams.clear();
            }
            let headers = headers_of(&page[HEADER + segments.len()..]);
            self.streams.insert(serial, Stream { headers, position: 0, shift: 0, page: None, heard: false });
        }
        let Some(stream) = self.streams.get_mut(&serial) else { return };
        let headers = stream.headers.min(ended);
        stream.headers -= headers;
        if ended == headers {
            return; // no packet of audio ends here, and the page says nothing of samples
        }
        let gap = stream.page.replace(number).map_or(0, |before| number.wrapping_sub(before).wrapping_sub(1));
        if gap < 1 << 16 {
            self.problems.missing.fetch_add(gap.into(), Ordering::Relaxed);
        }
        let said = u64::from(u32_at(page, 6)) | u64::from(u32_at(page, 10)) << 32;
        let said = said as i64;
        let position = said.saturating_add(stream.shift);
        // A last page may say that nothing of it counts, another one may not.
        let ends_here = flags & LAST != 0;
        let may_stay = if ends_here { said > 0 && ended <= MOST_UNHEARD } else { !stream.heard };
        let wrong = said < 0 || position < stream.position || (position == stream.position && !may_stay);
        stream.heard = true;
        let position = if wrong { stream.position.saturating_add(FAR) } else { position };
        if wrong {
            stream.shift = position - said.max(0);
            self.problems.positions.fetch_add(1, Ordering::Relaxed);
        }
        stream.position = position;
        if position != said {
            page[6..14].copy_from_slice(&position.to_le_bytes());
            let sum = checksum(page);
            page[22..26].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Packets of headers of a stream that begins with this one.
fn headers_of(packet: &[u8]) -> usize {
    if packet.starts_with(b"OpusHead") {
        return 2;
    }
    match packet {
        // FLAC mapping 1.0: how many follow; 0: not known, at least the comments.
        [0x7f, b'F', b'L', b'A', b'C', _, _, high, low, ..] => {
            1 + usize::from(u16::from_be_bytes([*high, *low])).max(1)
        }
        _ => 3, // Vorbis
    }
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut value = (i as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            value = value << 1 ^ if value >> 31 == 1 { 0x04c1_1db7 } else { 0 };
            bit += 1;
        }
        table[i] = value;
        i += 1;
    }
    table
};

/// Of a page, whose own field counts as zeros.
fn checksum(page: &[u8]) -> u32 {
    page.iter().enumerate().fold(0, |sum: u32, (i, byte)| {
        let byte = if (22..26).contains(&i) { 0 } else { *byte };
        sum << 8 ^ TABLE[usize::from((sum >> 24) as u8 ^ byte)]
    })
}

impl Read for Pages {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.given == self.ready.len() {
            self.ready = self.next()?;
            self.given = 0;
        }
        let count = (&self.ready[self.given..]).read(out)?;
        self.given += count;
        Ok(count)
    }
}

impl Seek for Pages {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl MediaSource for Pages {
    fn is_seekable(&self) -> bool {
        false
    }
    fn byte_len(&self) -> Option<u64> {
        None
    }
}
