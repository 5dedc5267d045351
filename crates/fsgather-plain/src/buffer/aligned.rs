//! Bytes at an address that suits items of every type: [`Aligned`].

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
    /// Whether these bytes are well where they are: items have at most 16 bytes of alignment.
    #[must_use]
    pub fn is(bytes: &[u8]) -> bool {
        bytes.as_ptr().addr().is_multiple_of(16)
    }

    /// None where there is no memory for it.
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
