//! Small files that can be seen incomplete, or moved to another place: [`seal`] and [`unseal`]. Pure.
//!
//! Little-endian:
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 8 | magic `89 46 53 4d 0d 0a 1a 0a` |
//! | 8 | 2 | version, 1 |
//! | 10 | 2 | zero |
//! | 12 | 4 | length n of the body |
//! | 16 | n | the body, opaque to the store |
//! | 16 + n | 16 | xxh3-128 of all bytes before and of the place |
//!
//! The *place* is where the file belongs: the id of the gather directory, `/` and the name of the message. It is not in the
//! file. So a message that was moved here from another world, or from another number, is rejected.

use fsgather_core::hash::Hash128;

const MAGIC: [u8; 8] = *b"\x89FSM\r\n\x1a\n";
const VERSION: u16 = 1;
const HEAD_LEN: usize = 16;
const CHECKSUM_LEN: usize = 16;

/// Maximum length of a sealed file, in bytes.
pub(crate) const MAX_LEN: u64 = 32 << 20;

/// The reason why bytes are not a complete sealed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SealError {
    #[error("it is incomplete or damaged, or belongs elsewhere")]
    Torn,
    #[error("it is of version {0}, this build knows {VERSION}")]
    Version(u16),
}

/// Computes the checksum of a file in its place.
fn checksum(sealed: &[u8], place: &str) -> u128 {
    let mut hasher = Hash128::new();
    hasher.write(sealed);
    hasher.write(place.as_bytes());
    hasher.finish()
}

/// Wraps a body so that neither a part of it nor a message of another place is accepted.
pub(crate) fn seal(body: &[u8], place: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_LEN + body.len() + CHECKSUM_LEN);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 2]);
    let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(body);
    let checksum = checksum(&bytes, place);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Returns the body of a file that is complete and in its place.
pub(crate) fn unseal(mut bytes: Vec<u8>, place: &str) -> Result<Vec<u8>, SealError> {
    let (sealed, sum) = bytes
        .split_last_chunk::<CHECKSUM_LEN>()
        .ok_or(SealError::Torn)?;
    let head = sealed.first_chunk::<HEAD_LEN>().ok_or(SealError::Torn)?;
    if head[..8] != MAGIC || checksum(sealed, place) != u128::from_le_bytes(*sum) {
        return Err(SealError::Torn);
    }
    let version = u16::from_le_bytes([head[8], head[9]]);
    if version != VERSION {
        return Err(SealError::Version(version));
    }
    let len = u32::from_le_bytes([head[12], head[13], head[14], head[15]]);
    if usize::try_from(len) != Ok(sealed.len() - HEAD_LEN) {
        return Err(SealError::Torn);
    }
    bytes.truncate(bytes.len() - CHECKSUM_LEN);
    bytes.drain(..HEAD_LEN);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_whole_comes_back() {
        for body in [&b""[..], b"x", &[7; 5000]] {
            assert_eq!(unseal(seal(body, "here"), "here").unwrap(), body);
        }
    }

    #[test]
    fn what_belongs_elsewhere_is_not_taken_for_what_is_here() {
        let whole = seal(b"a verdict", "gather/bulletin-7");
        for place in ["gather/bulletin-8", "other/bulletin-7", ""] {
            assert_eq!(unseal(whole.clone(), place), Err(SealError::Torn));
        }
    }

    #[test]
    fn no_part_is_taken_for_the_whole_and_no_change_is_overlooked() {
        let whole = seal(b"a contribution", "here");
        for len in 0..whole.len() {
            assert_eq!(unseal(whole[..len].to_vec(), "here"), Err(SealError::Torn));
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert!(unseal(changed, "here").is_err(), "byte {at}");
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut sealed = seal(b"body", "here");
        sealed[8] = 9;
        let checksum_at = sealed.len() - CHECKSUM_LEN;
        let checksum = checksum(&sealed[..checksum_at], "here");
        sealed[checksum_at..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(unseal(sealed, "here"), Err(SealError::Version(9)));
    }
}
