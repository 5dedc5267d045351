//! Takes encrypted records apart as they arrive: [`Unsealing`]. No sockets here.

use crate::{
    tcp::noise::{NotAuthentic, Sealed},
    wire::{RECORD_LIMIT, TAG_LEN},
};

/// Number of bytes to read from a socket at once.
const READ_SIZE: usize = 256 << 10;

/// The receiving direction of an encrypted connection.
#[derive(Debug)]
pub(crate) struct Unsealing {
    sealed: Sealed,
    number: u64,
    /// Bytes as they arrived; whole records are taken from `start` on.
    raw: Vec<u8>,
    start: usize,
    plain: Vec<u8>,
}

impl Unsealing {
    /// Begins with the first record.
    pub(crate) fn new(sealed: Sealed) -> Self {
        Self {
            sealed,
            number: 0,
            raw: Vec::new(),
            start: 0,
            plain: vec![0; RECORD_LIMIT],
        }
    }

    /// Buffer to which bytes from the socket are appended.
    pub(crate) fn room(&mut self) -> &mut Vec<u8> {
        self.raw.drain(..self.start);
        self.start = 0;
        self.raw.reserve(READ_SIZE);
        &mut self.raw
    }

    /// Decrypts the next record, if it has arrived in full.
    pub(crate) fn open(&mut self) -> Result<Option<&[u8]>, NotAuthentic> {
        let pending = &self.raw[self.start..];
        let Some((prefix, rest)) = pending.split_first_chunk::<2>() else {
            return Ok(None);
        };
        let length = usize::from(u16::from_le_bytes(*prefix));
        if !(TAG_LEN..=RECORD_LIMIT).contains(&length) {
            return Err(NotAuthentic);
        }
        let Some(record) = rest.get(..length) else {
            return Ok(None);
        };
        let opened = self
            .sealed
            .open(record, &mut self.number, &mut self.plain)?;
        self.start += 2 + length;
        Ok(Some(&self.plain[..opened]))
    }

    /// Returns true if all bytes that arrived have been handed out.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.raw.len()
    }
}
