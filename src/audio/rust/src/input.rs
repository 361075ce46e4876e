//! Bytes of a file, a pipe or memory, from the first byte of the audio format on: tags in front are left out.
//!
//! Nothing seeks, so that a pipe and a file give the same samples, and so that no index of a hostile file is believed.

use crate::ffi::{bad_file, Code, Error};
use crate::sniff::find_mp3;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use symphonia::core::io::MediaSource;

/// Looked at before the format is known. Zeros and tags in front of it do not count.
const HEAD_BYTES: usize = 512;
/// Tags (each of up to 256 MiB, of which nothing is kept) and pieces of zeros (64 KiB in all) that are skipped.
const MOST_STEPS: usize = 128;
/// In front of the first frame of an mp3: a tag whose size is wrong, or the rest of a frame.
const MOST_JUNK: usize = 1 << 20;
/// More than the largest frame of an mp3.
const TAIL_BYTES: usize = 2048;

/// What was read so far.
#[derive(Default)]
pub struct Progress {
    pub bytes: AtomicU64,
    /// The last bytes, and where the audio begins.
    tail: Mutex<Vec<u8>>,
}

impl Progress {
    /// The last `count` bytes; none when they are more than is kept.
    pub fn tail(&self, count: usize) -> Vec<u8> {
        let tail = self.tail.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        tail.len().checked_sub(count).map_or_else(Vec::new, |from| tail[from..].to_vec())
    }
}

trait Source: Read + Send + Sync {}
impl<T: Read + Send + Sync> Source for T {}

pub struct Input {
    source: Box<dyn Source>,
    /// Read from the source and not taken yet, from `taken` on.
    head: Vec<u8>,
    taken: usize,
    pub progress: Arc<Progress>,
    /// Where the audio format begins.
    pub start: u64,
    /// Of the whole file; None for a pipe.
    pub bytes: Option<u64>,
}

impl Input {
    fn new(source: Box<dyn Source>, bytes: Option<u64>) -> Input {
        Input { source, head: Vec::new(), taken: 0, progress: Arc::default(), start: 0, bytes }
    }

    pub fn open_path(path: &[u8]) -> Result<Input, Error> {
        if path == b"-" {
            let stdin = std::os::fd::AsFd::as_fd(&io::stdin()).try_clone_to_owned();
            let stdin = stdin.map_err(|e| Error { code: Code::BadFile, text: format!("stdin cannot be read: {e}") })?;
            return Ok(Input::new(Box::new(File::from(stdin)), None));
        }
        let path = OsStr::from_bytes(path);
        let failed = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound => Error { code: Code::NotFound, text: "no such file".into() },
            _ => Error { code: Code::BadFile, text: format!("cannot be read: {e}") },
        };
        let about = std::fs::metadata(path).map_err(failed)?;
        if about.is_dir() {
            return bad_file("is a directory, not an audio file");
        }
        let file = File::open(path).map_err(failed)?;
        Ok(Input::new(Box::new(file), about.is_file().then_some(about.len())))
    }

    pub fn from_bytes(bytes: &'static [u8]) -> Input {
        Input::new(Box::new(bytes), Some(bytes.len() as u64))
    }

    /// Reads until `head` holds `count` bytes that are not taken, or the source ends.
    pub fn fill(&mut self, count: usize) -> Result<&[u8], Error> {
        let have = self.head.len() - self.taken;
        if have < count {
            let limit = (count - have) as u64;
            let mut more = Vec::new();
            let read = (&mut self.source).take(limit).read_to_end(&mut more);
            read.map_err(|e| Error { code: Code::BadFile, text: format!("cannot be read: {e}") })?;
            self.head.drain(..self.taken);
            self.taken = 0;
            self.head.extend_from_slice(&more);
        }
        Ok(&self.head[self.taken..])
    }

    /// Leaves out `count` bytes.
    pub fn skip(&mut self, count: u64) -> Result<(), Error> {
        let here = (self.head.len() - self.taken).min(usize::try_from(count).unwrap_or(usize::MAX));
        self.taken += here;
        let rest = io::copy(&mut (&mut self.source).take(count - here as u64), &mut io::sink());
        let rest = rest.map_err(|e| Error { code: Code::BadFile, text: format!("cannot be read: {e}") })?;
        self.start += here as u64 + rest;
        Ok(())
    }

    /// Skips ID3v2 tags and zeros. Returns the first bytes of what follows, which stay to be read.
    pub fn begin(&mut self) -> Result<Vec<u8>, Error> {
        for _ in 0..MOST_STEPS {
            let head = self.fill(HEAD_BYTES)?;
            let zeros = head.iter().take_while(|byte| **byte == 0).count();
            match id3_size(head) {
                Some(size) => self.skip(size)?,
                // Some formats that are not read begin with a few zeros, and are told by them.
                None if zeros >= 8 => self.skip(zeros as u64)?,
                None => break,
            }
        }
        let head = self.fill(HEAD_BYTES)?.to_vec();
        self.progress.bytes.store(self.start, Ordering::Relaxed);
        Ok(head)
    }

    /// Skips what is no mp3 up to its first frames. False: there are none near the front.
    pub fn skip_to_mp3(&mut self) -> Result<bool, Error> {
        for limit in [1 << 16, MOST_JUNK] {
            let head = self.fill(limit)?;
            let ends = head.len() < limit;
            if let Some(at) = find_mp3(head, ends) {
                self.skip(at as u64)?;
                self.progress.bytes.store(self.start, Ordering::Relaxed);
                return Ok(true);
            }
            if ends {
                break;
            }
        }
        Ok(false)
    }

    /// Bytes of the file behind those that were skipped, where its size is known.
    pub fn left(&self) -> Option<u64> {
        Some(self.bytes?.saturating_sub(self.start))
    }

    /// Bytes that are read before all others.
    pub fn put_back(&mut self, bytes: &[u8]) {
        self.head.splice(..self.taken, bytes.iter().copied());
        self.taken = 0;
        self.progress.bytes.store(self.start.saturating_sub(bytes.len() as u64), Ordering::Relaxed);
    }
}

/// Bytes of the ID3v2 tag that `head` begins with.
fn id3_size(head: &[u8]) -> Option<u64> {
    let (header, _) = head.split_first_chunk::<10>()?;
    if &header[..3] != b"ID3" || header[6..].iter().any(|byte| byte & 0x80 != 0) {
        return None;
    }
    let size = header[6..].iter().fold(0, |size, byte| size << 7 | u64::from(*byte));
    let footer = if header[5] & 0x10 != 0 { 10 } else { 0 };
    Some(10 + size + footer)
}

impl Read for Input {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = if self.taken < self.head.len() {
            let count = (&self.head[self.taken..]).read(out)?;
            self.taken += count;
            count
        } else {
            self.head = Vec::new();
            self.taken = 0;
            self.source.read(out)?
        };
        self.progress.bytes.fetch_add(count as u64, Ordering::Relaxed);
        let mut tail = self.progress.tail.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let new = &out[count.saturating_sub(TAIL_BYTES)..count];
        let keep = tail.len().min(TAIL_BYTES - new.len());
        let gone = tail.len() - keep;
        tail.drain(..gone);
        tail.extend_from_slice(new);
        Ok(count)
    }
}

impl Seek for Input {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl MediaSource for Input {
    fn is_seekable(&self) -> bool {
        false
    }
    fn byte_len(&self) -> Option<u64> {
        None
    }
}
