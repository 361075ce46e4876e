//! The C functions, and what the three formats share.

use crate::{gif, png, webp};
use situ_ffi::{bad_file, guarded, slice, slice_mut, Code, Error, Text};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Seek};
use std::os::unix::ffi::OsStrExt;

pub trait Source: BufRead + Seek {}
impl<T: BufRead + Seek> Source for T {}
pub type Bytes = Box<dyn Source>;

/// What the file says beside its pixels.
#[derive(Default)]
pub struct Metadata {
    /// A TIFF header and what follows it.
    pub exif: Option<Vec<u8>>,
    pub xmp: Option<Vec<u8>>,
}

/// An image whose header was read.
pub trait Format {
    /// Width and height in pixels.
    fn size(&self) -> (u32, u32);
    /// Decodes into rgb [height, width, 3].
    fn read(self: Box<Self>, rgb: &mut [u8]) -> Result<Metadata, Error>;
}

pub struct Reader {
    size: (u32, u32),
    format: Option<Box<dyn Format>>,
    metadata: Metadata,
}

#[repr(C)]
pub struct Size {
    width: u32,
    height: u32,
}

#[repr(C)]
pub struct Given {
    exif: *const u8,
    exif_size: usize,
    xmp: *const u8,
    xmp_size: usize,
}

/// The error of a file that ends too early.
pub fn cut_off<T>() -> Result<T, Error> {
    bad_file("is cut off: the image's data ends too early")
}

/// The error of a file that cannot be decoded; `why` in one line.
pub fn damaged<T>(why: impl ToString) -> Result<T, Error> {
    bad_file(format!("is damaged: {}", why.to_string().replace(['\n', '\r'], " ")))
}

pub fn from_io<T>(error: &io::Error) -> Result<T, Error> {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => cut_off(),
        _ => damaged(error),
    }
}

/// Drops the alpha of rgba [n, 4] into rgb [n, 3].
pub fn drop_alpha(rgba: &[u8], rgb: &mut [u8]) {
    for (from, to) in rgba.chunks_exact(4).zip(rgb.chunks_exact_mut(3)) {
        to.copy_from_slice(&from[..3]);
    }
}

unsafe fn open(source: Bytes, format: i32, out: *mut *mut Reader, dims: *mut Size) -> Result<(), Error> {
    let format: Box<dyn Format> = match format {
        0 => png::open(source)?,
        1 => webp::open(source)?,
        2 => gif::open(source)?,
        _ => return Err(Error { code: Code::Argument, text: format!("{format} is no format") }),
    };
    let (width, height) = format.size();
    dims.write(Size { width, height });
    let reader = Reader { size: (width, height), format: Some(format), metadata: Metadata::default() };
    out.write(Box::into_raw(Box::new(reader)));
    Ok(())
}

/// Safety: as `situ_image.h` says.
#[no_mangle]
pub unsafe extern "C" fn situ_image_open(
    bytes: *const u8,
    size: usize,
    format: i32,
    out: *mut *mut Reader,
    dims: *mut Size,
    error: *mut Text,
) -> i32 {
    guarded(error, || {
        let bytes: &'static [u8] = slice(bytes, size);
        open(Box::new(Cursor::new(bytes)), format, out, dims)
    })
}

/// Safety: as `situ_image.h` says.
#[no_mangle]
pub unsafe extern "C" fn situ_image_open_path(
    path: *const u8,
    path_size: usize,
    format: i32,
    out: *mut *mut Reader,
    dims: *mut Size,
    error: *mut Text,
) -> i32 {
    guarded(error, || {
        let file = File::open(OsStr::from_bytes(slice(path, path_size)));
        let file = file.map_err(|e| Error { code: Code::BadFile, text: format!("cannot be read: {e}") })?;
        open(Box::new(BufReader::with_capacity(1 << 16, file)), format, out, dims)
    })
}

/// Safety: as `situ_image.h` says.
#[no_mangle]
pub unsafe extern "C" fn situ_image_read(
    reader: *mut Reader,
    rgb: *mut u8,
    size: usize,
    metadata: *mut Given,
    error: *mut Text,
) -> i32 {
    guarded(error, || {
        let (Some(reader), Some(metadata)) = (reader.as_mut(), metadata.as_mut()) else { return Ok(()) };
        let (width, height) = reader.size;
        let wanted = u64::from(width) * u64::from(height) * 3;
        let Some(format) = reader.format.take().filter(|_| size as u64 == wanted) else {
            return Err(Error { code: Code::Argument, text: format!("{size} bytes for {wanted}, or read twice") });
        };
        reader.metadata = format.read(slice_mut(rgb, size))?;
        let given = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or((std::ptr::null(), 0), |b| (b.as_ptr(), b.len()));
        (metadata.exif, metadata.exif_size) = given(&reader.metadata.exif);
        (metadata.xmp, metadata.xmp_size) = given(&reader.metadata.xmp);
        Ok(())
    })
}

/// Safety: as `situ_image.h` says.
#[no_mangle]
pub unsafe extern "C" fn situ_image_free(reader: *mut Reader) {
    if !reader.is_null() {
        guarded(std::ptr::null_mut(), || {
            drop(Box::from_raw(reader));
            Ok(())
        });
    }
}
