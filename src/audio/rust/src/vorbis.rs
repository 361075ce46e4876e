//! A bound on what the header of a Vorbis stream asks for. Codebooks are unpacked: 60 bytes can ask for 16 MiB, 256 times.

use crate::ffi::{bad_file, Error};

/// Values of all codebooks, of 4 bytes each, where an entry counts as so many more. Files in use have less than a million.
const MOST_VALUES: u64 = 8 << 20;
const VALUES_OF_AN_ENTRY: u64 = 4;
/// What each codebook begins with (Vorbis I specification, 3.2.1); 16 bits of dimensions and 24 of entries follow.
const SYNC: u64 = 0x56_4342;

/// header: the identification and setup packets.
pub fn check(header: &[u8]) -> Result<(), Error> {
    let mut values = 0u64;
    let mut window = 0u64;
    for byte in header {
        for bit in 0..8 {
            window = window >> 1 | u64::from(byte >> bit & 1) << 63;
            if window & 0xff_ffff == SYNC {
                let (dimensions, entries) = (window >> 24 & 0xffff, window >> 40);
                values = values.saturating_add(entries * (dimensions + VALUES_OF_AN_ENTRY));
            }
        }
    }
    if values > MOST_VALUES {
        return bad_file(format!("its Vorbis codebooks have {values} values; {MOST_VALUES} are read"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check;

    /// A header with `count` codebooks of 32 dimensions and 2^17 entries, `shift` bits off.
    fn header(count: usize, shift: u32) -> Vec<u8> {
        let book = super::SYNC | 32 << 24 | 1 << 57;
        let mut bytes = vec![0];
        for _ in 0..count {
            let last = bytes.pop().unwrap_or(0);
            let bits = u128::from(book) << shift | u128::from(last);
            bytes.extend_from_slice(&bits.to_le_bytes()[..9]);
        }
        bytes
    }

    #[test]
    fn large_codebooks_are_refused_at_every_bit() {
        for shift in 0..8 {
            assert!(check(&header(1, shift)).is_ok());
            assert!(check(&header(2, shift)).is_err());
            assert!(check(&header(256, shift)).is_err());
        }
    }
}
