//! A place in an arena, as others are told of it: [`Location`].

use serde::{Deserialize, Serialize};

/// Where in its owner's arena a payload lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// The slot,
    pub(crate) slot: u32,
    /// the number of the payload,
    pub(crate) generation: u64,
    /// where it begins,
    pub(crate) start: u64,
    /// and its length in bytes.
    pub(crate) len: u64,
}

impl Location {
    /// How long the payload is, in bytes.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "it says how much there is to read"
    )]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// The slot's place among all; beyond them where a number that was announced is none.
    pub(crate) const fn slot(&self) -> usize {
        self.slot as usize
    }
}
