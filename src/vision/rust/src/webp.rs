//! webp: lossless and lossy. Alpha is dropped; an animation is refused.

use crate::reader::{damaged, drop_alpha, from_io, Bytes, Format, Metadata};
use image_webp::{DecodingError, WebPDecoder};
use situ_ffi::{unsupported, Error};
use std::io::{Cursor, Read, Seek, SeekFrom};

/// Of EXIF and XMP.
const MOST_BYTES: usize = 16 << 20;

struct WebP {
    decoder: WebPDecoder<Bytes>,
    /// The lossy pixels of an extended file.
    colours: Option<Vec<u8>>,
}

fn failed<T>(error: DecodingError) -> Result<T, Error> {
    match error {
        DecodingError::IoError(error) => from_io(&error),
        DecodingError::BitStreamError | DecodingError::ChunkMissing => cut_off_or_damaged(&error),
        error => damaged(error),
    }
}

fn cut_off_or_damaged<T>(error: &DecodingError) -> Result<T, Error> {
    damaged(format!("{error} (or it is cut off)"))
}

/// The chunk "VP8 " of an extended file as a file of its own: alpha, which is dropped, is then never decoded, and the size
/// in the chunk's own header is known before any pixel is.
fn colours_alone(source: &mut Bytes) -> std::io::Result<Option<Vec<u8>>> {
    source.seek(SeekFrom::Start(12))?;
    let mut header = [0; 8];
    while source.read_exact(&mut header).is_ok() {
        let size = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        if &header[..4] == b"VP8 " {
            let mut file = [b"RIFF", &size.saturating_add(12).to_le_bytes()[..], b"WEBP", &header].concat();
            source.take(u64::from(size)).read_to_end(&mut file)?;
            return Ok(Some(file));
        }
        source.seek(SeekFrom::Current(i64::from(size) + i64::from(size & 1)))?;
    }
    Ok(None)
}

pub fn open(mut source: Bytes) -> Result<Box<dyn Format>, Error> {
    let mut head = [0; 21];
    source.read_exact(&mut head).or_else(|e| from_io(&e))?;
    let extended = &head[12..16] == b"VP8X";
    if extended && head[20] & 2 != 0 {
        return unsupported(
            "is an animated webp; a single image is expected (webpmux -get frame 1 takes the first one out)",
        );
    }
    let colours = if extended { colours_alone(&mut source).or_else(|e| from_io(&e))? } else { None };
    source.rewind().or_else(|e| from_io(&e))?;
    let mut decoder = WebPDecoder::new(source).or_else(failed)?;
    if decoder.dimensions().0 == 0 || decoder.dimensions().1 == 0 {
        return unsupported("is a lossless webp of 16384 pixels along an edge, more than the 16383 that are read");
    }
    decoder.set_memory_limit(MOST_BYTES);
    Ok(Box::new(WebP { decoder, colours }))
}

impl Format for WebP {
    fn size(&self) -> (u32, u32) {
        self.decoder.dimensions()
    }

    fn read(mut self: Box<Self>, rgb: &mut [u8]) -> Result<Metadata, Error> {
        let exif = self.decoder.exif_metadata().or_else(failed)?;
        let xmp = self.decoder.xmp_metadata().or_else(failed)?;
        if let Some(colours) = self.colours {
            let mut decoder = WebPDecoder::new(Cursor::new(colours)).or_else(failed)?;
            if decoder.dimensions() != self.decoder.dimensions() {
                return damaged("its two headers differ in size");
            }
            decoder.read_image(rgb).or_else(failed)?;
        } else if self.decoder.has_alpha() {
            let Some(size) = self.decoder.output_buffer_size() else { return damaged("it is too large") };
            let mut rgba = vec![0; size];
            self.decoder.read_image(&mut rgba).or_else(failed)?;
            drop_alpha(&rgba, rgb);
        } else {
            self.decoder.read_image(rgb).or_else(failed)?;
        }
        // EXIF here may begin with "Exif\0\0".
        let exif = exif.map(|bytes| bytes.strip_prefix(b"Exif\0\0").map(<[u8]>::to_vec).unwrap_or(bytes));
        Ok(Metadata { exif, xmp })
    }
}
