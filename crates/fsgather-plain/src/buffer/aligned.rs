//! Bytes at an address that is aligned for items of every type: [`Aligned`].

use std::ops::{Deref, DerefMut};

use fsgather_core::room_for;

/// A multiple of the alignment of all items.
const ALIGNMENT: usize = 64;

/// A copy of some bytes that begins at a multiple of 64.
pub struct Aligned {
    bytes: Vec<u8>,
    start: usize,
}

impl Aligned {
    /// Returns true if these bytes are aligned already: items have an alignment of at most 16 bytes.
    #[must_use]
    pub fn is(bytes: &[u8]) -> bool {
        bytes.as_ptr().addr().is_multiple_of(16)
    }

    /// Copies bytes; returns none if memory runs out.
    #[must_use]
    pub fn copy(content: &[u8]) -> Option<Self> {
        let mut bytes = room_for(content.len().checked_add(ALIGNMENT)? as u64)?;
        let start = bytes.as_ptr().addr().next_multiple_of(ALIGNMENT) - bytes.as_ptr().addr();
        bytes.resize(start, 0);
        bytes.extend_from_slice(content);
        Some(Self { bytes, start })
    }
}

impl Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
}
