//! png, row by row: nothing but the caller's image is ever held whole.
//!
//! As Pillow: tRNS and alpha are dropped, gamma and profiles are not applied, 16 bits become 8 by their high byte, but grey
//! of 16 bits (Pillow's mode `I;16`) by min(value, 255). An animated png gives its default image.

use crate::reader::{cut_off, damaged, from_io, Bytes, Format, Metadata};
use png::{BitDepth, ColorType, Decoder, DecodingError, InterlaceInfo, Limits, Transformations};
use situ_ffi::Error;

/// Of what stands around the pixels: text, EXIF.
const MOST_BYTES: usize = 64 << 20;
const MOST_TEXT: usize = 1 << 20;

struct Png {
    decoder: Decoder<Bytes>,
    size: (u32, u32),
}

fn failed<T>(error: DecodingError) -> Result<T, Error> {
    match error {
        DecodingError::IoError(error) => from_io(&error),
        DecodingError::LimitsExceeded => damaged("its texts are too long"),
        error => damaged(error),
    }
}

pub fn open(source: Bytes) -> Result<Box<dyn Format>, Error> {
    let mut decoder = Decoder::new_with_limits(source, Limits { bytes: MOST_BYTES });
    decoder.set_transformations(Transformations::IDENTITY);
    decoder.set_ignore_iccp_chunk(true);
    let info = decoder.read_header_info().or_else(failed)?;
    let size = (info.width, info.height);
    Ok(Box::new(Png { decoder, size }))
}

/// The colours of a row: how its samples become RGB.
struct Colours {
    kind: ColorType,
    depth: BitDepth,
    /// RGB of each index; black where the file has fewer.
    palette: Vec<[u8; 3]>,
}

impl Colours {
    fn new(info: &png::Info) -> Colours {
        let mut palette = vec![[0; 3]; 256];
        for (to, from) in palette.iter_mut().zip(info.palette.as_deref().unwrap_or(&[]).chunks_exact(3)) {
            to.copy_from_slice(from);
        }
        Colours { kind: info.color_type, depth: info.bit_depth, palette }
    }

    /// The samples of a row of up to 8 bits, each in a byte, to `out`.
    fn unpack(&self, row: &[u8], out: &mut Vec<u8>) {
        out.clear();
        let bits = self.depth as u8;
        if bits >= 8 {
            out.extend_from_slice(row);
            return;
        }
        let mask = (1_u8 << bits) - 1;
        for byte in row {
            out.extend((1..=8 / bits).map(|i| byte >> (8 - i * bits) & mask));
        }
    }

    /// Writes RGB of every sample of `row`; as many pixels as `rgb` has room for. `samples` is scratch.
    fn write(&self, row: &[u8], samples: &mut Vec<u8>, rgb: &mut [u8]) {
        let wide = self.depth == BitDepth::Sixteen;
        if self.kind == ColorType::Grayscale && wide {
            for (to, from) in rgb.chunks_exact_mut(3).zip(row.chunks_exact(2)) {
                to.fill(if from[0] == 0 { from[1] } else { 255 });
            }
            return;
        }
        let row = if wide {
            samples.clear();
            samples.extend(row.iter().step_by(2));
            &samples[..]
        } else {
            self.unpack(row, samples);
            &samples[..]
        };
        let pixels = rgb.chunks_exact_mut(3);
        match self.kind {
            ColorType::Grayscale => {
                // 255 / (2^bits - 1): 255, 85, 17, 1.
                let scale = if wide { 1 } else { (255 / ((1_u16 << self.depth as u8) - 1)) as u8 };
                pixels.zip(row).for_each(|(to, from)| to.fill(from * scale));
            }
            ColorType::GrayscaleAlpha => pixels.zip(row.chunks_exact(2)).for_each(|(to, from)| to.fill(from[0])),
            ColorType::Indexed => {
                pixels.zip(row).for_each(|(to, from)| to.copy_from_slice(&self.palette[*from as usize]))
            }
            ColorType::Rgb => pixels.zip(row.chunks_exact(3)).for_each(|(to, from)| to.copy_from_slice(from)),
            ColorType::Rgba => pixels.zip(row.chunks_exact(4)).for_each(|(to, from)| to.copy_from_slice(&from[..3])),
        }
    }
}

/// "Raw profile type exif": three lines, then the bytes in hexadecimal digits, after "Exif\0\0".
fn raw_profile(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.split('\n').skip(3).flat_map(str::bytes).filter(u8::is_ascii_hexdigit).collect();
    let value = |digit: u8| (digit as char).to_digit(16).unwrap_or(0) as u8;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect();
    bytes.strip_prefix(b"Exif\0\0").map(<[u8]>::to_vec)
}

fn metadata(info: &png::Info) -> Metadata {
    let mut exif = info.exif_metadata.as_ref().map(|bytes| bytes.to_vec());
    if exif.is_none() {
        let plain = info.uncompressed_latin1_text.iter().find(|chunk| chunk.keyword == "Raw profile type exif");
        let packed = info.compressed_latin1_text.iter().find(|chunk| chunk.keyword == "Raw profile type exif");
        exif = plain.map(|chunk| chunk.text.clone()).as_deref().and_then(raw_profile);
        if let (None, Some(chunk)) = (&exif, packed) {
            let mut chunk = chunk.clone();
            let text = chunk.decompress_text_with_limit(MOST_TEXT).and_then(|()| chunk.get_text());
            exif = text.ok().as_deref().and_then(raw_profile);
        }
    }
    let xmp = info.utf8_text.iter().find(|chunk| chunk.keyword == "XML:com.adobe.xmp").and_then(|chunk| {
        let mut chunk = chunk.clone();
        chunk.decompress_text_with_limit(MOST_TEXT).and_then(|()| chunk.get_text()).ok()
    });
    Metadata { exif, xmp: xmp.map(String::into_bytes) }
}

impl Format for Png {
    fn size(&self) -> (u32, u32) {
        self.size
    }

    fn read(self: Box<Self>, rgb: &mut [u8]) -> Result<Metadata, Error> {
        let stride = self.size.0 as usize * 3;
        let mut reader = self.decoder.read_info().or_else(failed)?;
        let colours = Colours::new(reader.info());
        if colours.kind == ColorType::Indexed && reader.info().palette.is_none() {
            return damaged("it has no palette");
        }
        let (mut samples, mut part) = (Vec::new(), vec![0; stride]);
        let mut rows = rgb.chunks_exact_mut(stride);
        if reader.info().interlaced {
            while let Some(row) = reader.next_interlaced_row().or_else(failed)? {
                let InterlaceInfo::Adam7(place) = *row.interlace() else { return damaged("a row has no place") };
                colours.write(row.data(), &mut samples, &mut part);
                png::expand_interlaced_row(rgb, stride, &part, &place, 24);
            }
        } else {
            while let Some(row) = reader.next_row().or_else(failed)? {
                let Some(out) = rows.next() else { return damaged("it has more rows than its header says") };
                colours.write(row.data(), &mut samples, out);
            }
            if rows.next().is_some() {
                return cut_off();
            }
        }
        // What stands after the pixels may say how to turn them.
        reader.finish().or_else(failed)?;
        Ok(metadata(reader.info()))
    }
}
