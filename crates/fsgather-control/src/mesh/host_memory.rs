//! Memory that members of a ring on one host share: [`HostMemory`], and their messages about payloads in it, [`HandOver`].
//!
//! Between two members that share memory each payload begins with a hand-over. All numbers are little-endian.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | 0 the payload follows, 1 it is in memory, so that of each chunk only the bytes after it follow |
//! | 1 | 3 | 0 |
//! | 4 | 4 | rank in whose memory it is |
//! | 8 | 28 | its location |

use std::fmt;

use fsgather_arena::{Arenas, Filling, Following, Leased, Location};
use fsgather_core::{CallId, Rank};

/// Memory that a rank shares with the other members of a ring on its host.
#[derive(Clone, Copy)]
pub struct HostMemory<'a> {
    /// The memory.
    pub arenas: &'a Arenas,
    /// Payloads that members on this host have placed there for each other, this rank's own included, by place in the ring.
    /// These payloads are handed only to other hosts. All members on this host must name the same.
    pub placed: &'a [Option<&'a [u8]>],
    /// Finds a place for a payload of this length from another host, for all members on this one, if there is any.
    pub begin: &'a dyn Fn(u64) -> Option<Filling>,
}

impl<'a> HostMemory<'a> {
    /// Returns true if the payload of the member at this place is there already.
    pub(super) fn has(&self, place: usize) -> bool {
        self.placed(place).is_some()
    }

    pub(super) fn placed(&self, place: usize) -> Option<&'a [u8]> {
        self.placed.get(place).copied().flatten()
    }

    pub(super) fn follow(&self, owner: Rank, at: &Location, call: CallId) -> Option<Following> {
        self.arenas.follow(owner, at, call)
    }

    pub(super) fn lease(&self, owner: Rank, at: &Location, call: CallId) -> Option<Leased> {
        self.arenas.lease(owner, at, call)
    }
}

impl fmt::Debug for HostMemory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let placed = self.placed.iter().map(|payload| payload.map(<[u8]>::len));
        f.debug_tuple("HostMemory")
            .field(&placed.collect::<Vec<_>>())
            .finish()
    }
}

/// Way of a payload to a member on the same host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandOver {
    /// The bytes follow.
    Bytes,
    /// It is in memory that both share.
    InMemory {
        /// The rank whose memory it is.
        owner: Rank,
        /// The place in that memory.
        location: Location,
    },
}

impl HandOver {
    pub(super) const LEN: usize = 8 + Location::BYTES;

    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        if let Self::InMemory { owner, location } = self {
            bytes[0] = 1;
            bytes[4..8].copy_from_slice(&owner.get().to_le_bytes());
            bytes[8..].copy_from_slice(&location.to_bytes());
        }
        bytes
    }

    /// Decodes one; `None` if the bytes are not a hand-over.
    pub(super) fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let kind = bytes.first_chunk()?;
        let (owner, location) = (bytes[4..].first_chunk()?, bytes[8..].first_chunk()?);
        match *kind {
            [0, 0, 0, 0] => bytes.iter().all(|byte| *byte == 0).then_some(Self::Bytes),
            [1, 0, 0, 0] => Some(Self::InMemory {
                owner: Rank::new(u32::from_le_bytes(*owner)),
                location: Location::from_bytes(location),
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hand_overs_convert_both_ways(owner: u32, place: [u8; Location::BYTES]) {
            let in_memory = HandOver::InMemory {
                owner: Rank::new(owner),
                location: Location::from_bytes(&place),
            };
            for hand_over in [in_memory, HandOver::Bytes] {
                prop_assert_eq!(HandOver::from_bytes(&hand_over.to_bytes()), Some(hand_over));
            }
        }

        #[test]
        fn other_bytes_are_none(first in 2_u8.., mut bytes: [u8; HandOver::LEN]) {
            bytes[0] = first;
            prop_assert_eq!(HandOver::from_bytes(&bytes), None);
        }
    }
}
