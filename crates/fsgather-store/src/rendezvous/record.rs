//! The file by which other ranks find rank 0: [`Record`]. Pure.
//!
//! Little-endian; the version comes before all that depends on it:
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 8 | magic `89 46 53 52 0d 0a 1a 0a` |
//! | 8 | 2 | version, 1 |
//! | 10 | 2 | zero |
//! | 12 | 4 | length p of the poster |
//! | 16 | 4 | length r of the record |
//! | 20 | p | the poster, a `ProcessId` in postcard |
//! | 20 + p | r | the record, opaque to the store |
//! | 20 + p + r | 16 | xxh3-128 of all bytes before |

use fsgather_core::{ProcessId, hash::Hash128, read_message};

const MAGIC: [u8; 8] = *b"\x89FSR\r\n\x1a\n";
const VERSION: u16 = 1;
const FIXED_LEN: usize = 20;
const CHECKSUM_LEN: usize = 16;

/// Maximum length of a record file that is written or read, in bytes.
pub(crate) const MAX_LEN: u64 = 64 * 1024;

/// A posted record and its poster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) poster: ProcessId,
    pub(crate) body: Vec<u8>,
}

/// The reason why a file is not a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("it is not a record")]
    Foreign,
    #[error("it is of version {0}")]
    Version(u16),
    #[error("it is incomplete or damaged")]
    Torn,
    #[error("it is too long")]
    TooLong,
}

impl Record {
    /// Encodes the record.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, RecordError> {
        let poster = postcard::to_stdvec(&self.poster).map_err(|_| RecordError::TooLong)?;
        let len = |part: &[u8]| u32::try_from(part.len()).map_err(|_| RecordError::TooLong);
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&len(&poster)?.to_le_bytes());
        bytes.extend_from_slice(&len(&self.body)?.to_le_bytes());
        bytes.extend_from_slice(&poster);
        bytes.extend_from_slice(&self.body);
        let checksum = Hash128::of(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        if bytes.len() as u64 > MAX_LEN {
            return Err(RecordError::TooLong);
        }
        Ok(bytes)
    }

    /// Decodes a record.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        let (magic, rest) = bytes.split_at_checked(8).ok_or(RecordError::Torn)?;
        if magic != MAGIC {
            return Err(RecordError::Foreign);
        }
        let version = rest.first_chunk().ok_or(RecordError::Torn)?;
        match u16::from_le_bytes(*version) {
            VERSION => {}
            other => return Err(RecordError::Version(other)),
        }
        let (body, checksum) = bytes
            .split_last_chunk::<CHECKSUM_LEN>()
            .ok_or(RecordError::Torn)?;
        if body.len() < FIXED_LEN || Hash128::of(body) != u128::from_le_bytes(*checksum) {
            return Err(RecordError::Torn);
        }
        let (fixed, parts) = body.split_at(FIXED_LEN);
        let len_at = |at: usize| {
            let bytes = fixed[at..].first_chunk().copied().unwrap_or_default();
            usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX)
        };
        let (poster, record) = parts
            .split_at_checked(len_at(12))
            .ok_or(RecordError::Torn)?;
        if record.len() != len_at(16) {
            return Err(RecordError::Torn);
        }
        // The first builds wrote no time namespace, which is the last field; an appended zero means that it is unknown.
        let poster = [poster, &[0]].concat();
        Ok(Self {
            poster: read_message(&poster).map_err(|_| RecordError::Torn)?,
            body: record.to_vec(),
        })
    }

    /// The version that this build reads and writes.
    pub(crate) const fn version() -> u16 {
        VERSION
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_convert_both_ways(
            body in prop::collection::vec(any::<u8>(), 0..2000), host in "[ -~äΩ€]{0,40}", pid: u32,
        ) {
            let poster = ProcessId { host, pid, ..ProcessId::default() };
            let record = Record { poster, body };
            let bytes = record.to_bytes().unwrap();
            prop_assert_eq!(Record::from_bytes(&bytes), Ok(record));
        }

        #[test]
        fn records_of_builds_that_wrote_no_time_namespace_are_read(host in "[ -~äΩ€]{0,40}", pid: u32) {
            let poster = ProcessId { host, pid, ..ProcessId::default() };
            let body = b"word".to_vec();
            let record = Record { poster, body };
            let mut bytes = record.to_bytes().unwrap();
            let len = u32::from_le_bytes(*bytes[12..].first_chunk().unwrap());
            bytes.truncate(bytes.len() - CHECKSUM_LEN);
            prop_assert_eq!(bytes.remove(FIXED_LEN + len as usize - 1), 0);
            bytes[12..16].copy_from_slice(&(len - 1).to_le_bytes());
            let checksum = Hash128::of(&bytes);
            bytes.extend_from_slice(&checksum.to_le_bytes());
            prop_assert_eq!(Record::from_bytes(&bytes), Ok(record));
        }

        #[test]
        fn torn_and_damaged_records_are_refused(
            body in prop::collection::vec(any::<u8>(), 0..200),
            cut: prop::sample::Index, at: prop::sample::Index, bit in 0..8,
        ) {
            let bytes = Record { poster: ProcessId::default(), body }.to_bytes().unwrap();
            prop_assert!(Record::from_bytes(&bytes[..cut.index(bytes.len())]).is_err());
            let mut damaged = bytes.clone();
            damaged[at.index(bytes.len())] ^= 1_u8 << bit;
            prop_assert!(Record::from_bytes(&damaged).is_err());
        }
    }

    #[test]
    fn the_version_is_told_whatever_follows() {
        let bytes = [&MAGIC[..], &[2, 0], b"anything"].concat();
        assert_eq!(Record::from_bytes(&bytes), Err(RecordError::Version(2)));
    }

    #[test]
    fn a_too_short_record_is_torn_whatever_its_checksum() {
        for len in 0..FIXED_LEN - 10 {
            let body = [&MAGIC[..], &VERSION.to_le_bytes(), &vec![0; len]].concat();
            let checksum = Hash128::of(&body).to_le_bytes();
            let bytes = [&body[..], &checksum].concat();
            assert_eq!(Record::from_bytes(&bytes), Err(RecordError::Torn), "{len}");
        }
    }

    #[test]
    fn records_are_bounded() {
        let record = Record {
            poster: ProcessId::default(),
            body: vec![0; 64 * 1024],
        };
        assert_eq!(record.to_bytes(), Err(RecordError::TooLong));
    }
}
