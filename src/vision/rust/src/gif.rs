//! The first frame of a gif, on a canvas of its transparent colour (or its first one), as Pillow shows it.

use crate::reader::{cut_off, damaged, from_io, Bytes, Format, Metadata};
use gif::{ColorOutput, DecodeOptions, Decoder, DecodingError, MemoryLimit};
use situ_ffi::Error;
use std::num::NonZeroU64;

/// Of extensions and colour tables.
const MOST_BYTES: u64 = 16 << 20;

struct Gif {
    decoder: Decoder<Bytes>,
    /// RGB of each index; black beyond the file's colours.
    palette: [[u8; 3]; 256],
    /// Left, top, width, height of the frame on the canvas.
    frame: [usize; 4],
    canvas: (u32, u32),
    background: u8,
}

fn failed<T>(error: DecodingError) -> Result<T, Error> {
    match error {
        DecodingError::Io(error) => from_io(&error),
        DecodingError::UnexpectedEof | DecodingError::EndCodeNotFound => cut_off(),
        error => damaged(error),
    }
}

/// Pillow takes a table of greys, each equal to its index, for no palette: then every index is that grey.
fn table(colours: &[u8]) -> [[u8; 3]; 256] {
    let mut palette: [[u8; 3]; 256] = std::array::from_fn(|i| [i as u8; 3]);
    let greys = colours.chunks_exact(3).zip(&palette).all(|(colour, grey)| colour == grey);
    if !greys {
        palette = [[0; 3]; 256];
        for (to, from) in palette.iter_mut().zip(colours.chunks_exact(3)) {
            to.copy_from_slice(from);
        }
    }
    palette
}

pub fn open(source: Bytes) -> Result<Box<dyn Format>, Error> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    options.set_memory_limit(NonZeroU64::new(MOST_BYTES).map_or(MemoryLimit::Unlimited, MemoryLimit::Bytes));
    let mut decoder = options.read_info(source).or_else(failed)?;
    let screen = (decoder.width(), decoder.height());
    let global = decoder.global_palette().map(<[u8]>::to_vec);
    let Some(frame) = decoder.next_frame_info().or_else(failed)? else { return damaged("it has no image") };
    let palette = table(frame.palette.as_deref().or(global.as_deref()).unwrap_or(&[]));
    let place = [frame.left, frame.top, frame.width, frame.height].map(usize::from);
    let background = frame.transparent.unwrap_or(0);
    let [left, top, width, height] = place;
    let canvas = (usize::from(screen.0).max(left + width) as u32, usize::from(screen.1).max(top + height) as u32);
    if width == 0 || height == 0 {
        return damaged("its first image has no pixels");
    }
    Ok(Box::new(Gif { decoder, palette, frame: place, canvas, background }))
}

impl Format for Gif {
    fn size(&self) -> (u32, u32) {
        self.canvas
    }

    fn read(mut self: Box<Self>, rgb: &mut [u8]) -> Result<Metadata, Error> {
        let [left, top, width, height] = self.frame;
        let stride = self.canvas.0 as usize;
        let mut indices = vec![0; width * height];
        self.decoder.read_into_buffer(&mut indices).or_else(failed)?;
        for pixel in rgb.chunks_exact_mut(3) {
            pixel.copy_from_slice(&self.palette[self.background as usize]);
        }
        for (y, row) in indices.chunks_exact(width).enumerate() {
            let from = ((top + y) * stride + left) * 3;
            for (pixel, index) in rgb[from..from + width * 3].chunks_exact_mut(3).zip(row) {
                // Transparent pixels have the transparent colour's RGB.
                pixel.copy_from_slice(&self.palette[*index as usize]);
            }
        }
        Ok(Metadata::default())
    }
}
