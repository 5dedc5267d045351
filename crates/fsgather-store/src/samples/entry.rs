//! The bytes of one entry of a file of samples: [`encode_entry`], [`EntryHeader`], [`EntryHead`]. Pure.
//!
//! ```text
//! u32 length of the head    u64 length of the value    u64 XXH3 of the value    u64 check    head    value
//! ```
//!
//! The head holds the sequence number of the entry in its process, its kind and the sample's id. The check is the XXH3 of the
//! process's nonce, the three fields before it, and the head. So an entry is recognized wherever it is found, and only
//! as one of its process.

use fsgather_core::{Error, bytes_text, hash::Hash64, read_value};
use serde::{Deserialize, Serialize};

use crate::samples::sample_id::SampleId;

/// Length of what precedes the head.
pub(crate) const ENTRY_HEADER_BYTES: usize = 28;
/// Longest head, in bytes: an id has at most this length.
pub(crate) const MAX_HEAD_BYTES: usize = 1 << 20;

/// Kind of an entry. The order of the variants is a part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// The value is a result.
    Result,
    /// The sample has failed; the value is the reason, as text.
    Failure,
}

/// Lengths and hashes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryHeader {
    pub(crate) head_len: usize,
    pub(crate) value_len: u64,
    pub(crate) value_hash: u64,
    check: u64,
}

/// Decoded head of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct EntryHead {
    pub(crate) sequence: u64,
    pub(crate) kind: EntryKind,
    pub(crate) id: SampleId,
}

/// Appends an entry, whose value comes in pieces, to `buffer`, which stays as it was if the id is too long or there is no memory.
pub(crate) fn encode_entry(
    buffer: &mut Vec<u8>,
    nonce: u64,
    sequence: u64,
    kind: EntryKind,
    id: &SampleId,
    value: &[&[u8]],
) -> Result<(), Error> {
    let start = buffer.len();
    let head_start = start + ENTRY_HEADER_BYTES;
    buffer.resize(head_start, 0);
    // Into memory everything can be written.
    let _ = postcard::to_io(&(sequence, kind, id), &mut *buffer);
    let head_len = buffer.len() - head_start;
    if head_len > MAX_HEAD_BYTES {
        buffer.truncate(start);
        let most = bytes_text(MAX_HEAD_BYTES as u64);
        return Err(Error::config(format!(
            "the id of a sample has {most} at most"
        )));
    }
    let value_len = value.iter().map(|piece| piece.len()).sum();
    if buffer.try_reserve(value_len).is_err() {
        buffer.truncate(start);
        return Err(Error::config(format!(
            "there is no memory for the result of sample {id}, which takes {}",
            bytes_text(value_len as u64)
        )));
    }
    let mut header = EntryHeader {
        head_len,
        value_len: value_len as u64,
        value_hash: hash_of(value),
        check: 0,
    };
    header.check = header.check_for(nonce, &buffer[head_start..]);
    buffer[start..head_start].copy_from_slice(&header.to_bytes());
    for piece in value {
        buffer.extend_from_slice(piece);
    }
    Ok(())
}

fn hash_of(value: &[&[u8]]) -> u64 {
    if let [whole] = value {
        return Hash64::of(whole);
    }
    let mut hash = Hash64::new();
    for piece in value {
        hash.write(piece);
    }
    hash.finish()
}

impl EntryHeader {
    pub(crate) fn from_bytes(bytes: &[u8; ENTRY_HEADER_BYTES]) -> Option<Self> {
        let (head_len, rest) = bytes.split_first_chunk()?;
        let (value_len, rest) = rest.split_first_chunk()?;
        let (value_hash, rest) = rest.split_first_chunk()?;
        let (check, _) = rest.split_first_chunk()?;
        let head_len = usize::try_from(u32::from_le_bytes(*head_len)).ok()?;
        (head_len <= MAX_HEAD_BYTES).then_some(Self {
            head_len,
            value_len: u64::from_le_bytes(*value_len),
            value_hash: u64::from_le_bytes(*value_hash),
            check: u64::from_le_bytes(*check),
        })
    }

    fn to_bytes(self) -> [u8; ENTRY_HEADER_BYTES] {
        let mut bytes = [0; ENTRY_HEADER_BYTES];
        // Heads are shorter than 4 GiB.
        let head_len = u32::try_from(self.head_len).unwrap_or(u32::MAX);
        bytes[..4].copy_from_slice(&head_len.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.value_len.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.value_hash.to_le_bytes());
        bytes[20..].copy_from_slice(&self.check.to_le_bytes());
        bytes
    }

    fn check_for(&self, nonce: u64, head: &[u8]) -> u64 {
        let mut hash = Hash64::new();
        hash.write(&nonce.to_le_bytes());
        hash.write(&self.to_bytes()[..20]);
        hash.write(head);
        hash.finish()
    }

    /// Decodes the head that follows, if it belongs to this header and to the process with this nonce.
    pub(crate) fn read_head(&self, nonce: u64, head: &[u8]) -> Option<EntryHead> {
        if self.check_for(nonce, head) != self.check {
            return None;
        }
        let (head, rest) = read_value(head).ok()?;
        rest.is_empty().then_some(head)
    }

    /// Length of the whole entry.
    pub(crate) const fn entry_len(&self) -> u64 {
        let head = (ENTRY_HEADER_BYTES + self.head_len) as u64;
        self.value_len.saturating_add(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: u64 = 77;

    fn entry() -> Vec<u8> {
        let mut buffer = Vec::new();
        let id = SampleId::from("one");
        encode_entry(
            &mut buffer,
            NONCE,
            300,
            EntryKind::Result,
            &id,
            &[b"val", b"ue"],
        )
        .unwrap();
        buffer
    }

    fn read(bytes: &[u8], nonce: u64) -> Option<EntryHead> {
        let (header, rest) = bytes.split_first_chunk()?;
        let header = EntryHeader::from_bytes(header)?;
        header.read_head(nonce, rest.get(..header.head_len)?)
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let head = EntryHead {
            sequence: 300,
            kind: EntryKind::Result,
            id: "one".into(),
        };
        assert_eq!(read(&entry(), NONCE), Some(head));
        assert_eq!(read(&entry(), NONCE + 1), None);
    }

    #[test]
    fn any_changed_bit_before_the_value_is_noticed() {
        let bytes = entry();
        for at in 0..(bytes.len() - 5) * 8 {
            let mut changed = bytes.clone();
            changed[at / 8] ^= 1 << (at % 8);
            assert_eq!(read(&changed, NONCE), None, "bit {at}");
        }
    }

    #[test]
    fn too_long_ids_leave_the_buffer_as_it_was() {
        let mut buffer = entry();
        let id = SampleId::from("x".repeat(MAX_HEAD_BYTES));
        let refused = encode_entry(&mut buffer, NONCE, 0, EntryKind::Result, &id, &[]);
        assert!(refused.unwrap_err().to_string().contains("1.0 MiB"));
        assert_eq!(buffer, entry());
    }
}
