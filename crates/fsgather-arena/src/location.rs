//! A place in an arena, as announced to other ranks: [`Location`].

use serde::{Deserialize, Serialize};

/// Place of a payload in its owner's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// Index of the slot.
    pub(crate) slot: u32,
    /// Number of the payload.
    pub(crate) generation: u64,
    /// Offset of the payload in the arena, in bytes.
    pub(crate) start: u64,
    /// Length of the payload in bytes.
    pub(crate) len: u64,
}

impl Location {
    /// Length of an encoded location in bytes.
    pub const BYTES: usize = 28;

    /// Encodes slot, number, start and length, little-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.slot.to_le_bytes());
        for (place, value) in
            bytes[4..]
                .chunks_exact_mut(8)
                .zip([self.generation, self.start, self.len])
        {
            place.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// Decodes the output of [`to_bytes`](Self::to_bytes).
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| {
            let word = bytes[at..].first_chunk().copied();
            word.map_or(0, u64::from_le_bytes)
        };
        Self {
            slot: bytes.first_chunk().copied().map_or(0, u32::from_le_bytes),
            generation: word(4),
            start: word(12),
            len: word(20),
        }
    }

    /// Length of the payload in bytes.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "it says how much there is to read"
    )]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Index of the slot among all. It is beyond the last if another rank announced an invalid number.
    pub(crate) const fn slot(&self) -> usize {
        self.slot as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_convert_both_ways() {
        let location = Location {
            slot: 1,
            generation: u64::MAX - 2,
            start: 3 << 40,
            len: 4,
        };
        let bytes = location.to_bytes();
        assert_eq!(Location::from_bytes(&bytes), location);
        assert_eq!((bytes[0], bytes[20]), (1, 4));
    }
}
