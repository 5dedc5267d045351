//! Payloads that arrive in the own arena piece by piece: [`Filling`]. Other ranks read along by
//! [`Following`](crate::Following).

use std::sync::Arc;

use fsgather_core::lock;

use crate::{
    arena::{Arena, Placement},
    location::Location,
};

/// A payload that arrives piece by piece in the own arena.
///
/// Its readers may read the part that has arrived. Its place is free again once all readers have let go of it, or have given
/// its call up, even if it never becomes complete.
#[derive(Debug)]
pub struct Filling {
    arena: Arc<Arena>,
    location: Location,
    /// Number of bytes that have arrived; never more than the length of the payload.
    filled: u64,
}

impl Arena {
    /// Takes a place for a payload of `len` bytes that has not arrived yet. Returns `None` if the payload should go another
    /// way, as in [`place`](Self::place).
    pub fn begin(self: &Arc<Self>, len: u64, placement: &Placement<'_>) -> Option<Filling> {
        if self.is_foreign() {
            return None;
        }
        let location = self.take(len, placement)?;
        self.ledger.describe(&location, placement.call);
        Some(Filling {
            arena: Arc::clone(self),
            location,
            filled: 0,
        })
    }
}

impl Filling {
    /// Place of the payload in the arena.
    #[must_use]
    pub const fn location(&self) -> &Location {
        &self.location
    }

    /// The part of the payload that has arrived.
    #[must_use]
    pub fn filled(&self) -> &[u8] {
        let len = usize::try_from(self.filled).unwrap_or_default();
        let bytes = self.arena.memory.bytes(self.location.start, len);
        bytes.unwrap_or_default()
    }

    /// The place for the part of the payload that has not arrived yet.
    pub fn room(&mut self) -> &mut [u8] {
        let len = usize::try_from(self.location.len - self.filled).unwrap_or_default();
        let room = self
            .arena
            .memory
            .room(self.location.start + self.filled, len);
        room.unwrap_or_default()
    }

    /// Notes that `bytes` bytes were written to the beginning of the [room](Self::room).
    pub fn came(&mut self, bytes: usize) {
        let filled = self.filled.saturating_add(bytes as u64);
        self.filled = filled.min(self.location.len);
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        // A reader that has given the call up reads nothing; until now, the place could not be given to another payload.
        lock(&self.arena.slots).end_writing(self.location.slot());
    }
}

#[cfg(test)]
#[path = "filling_tests.rs"]
mod tests;
