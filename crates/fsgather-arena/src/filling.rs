//! Payloads that come to the own arena bit by bit: [`Filling`]. Others read along by [`Following`](crate::Following).

use std::sync::Arc;

use fsgather_core::lock;

use crate::{
    arena::{Arena, Placement},
    location::Location,
};

/// A payload that comes bit by bit to a place of the own arena.
///
/// Whoever it is for may read what has come while more comes. Its place is free again once all readers have let go of it, or
/// have given its call up, also if it never becomes whole.
#[derive(Debug)]
pub struct Filling {
    arena: Arc<Arena>,
    location: Location,
    /// Number of bytes that have come; never more than the payload is long.
    filled: u64,
}

impl Arena {
    /// A place for a payload of `len` bytes that is still to come; nothing where it had better go elsewhere, as of
    /// [`place`](Self::place).
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
    /// Where it lies.
    #[must_use]
    pub const fn location(&self) -> &Location {
        &self.location
    }

    /// What has come.
    #[must_use]
    pub fn filled(&self) -> &[u8] {
        let len = usize::try_from(self.filled).unwrap_or_default();
        let bytes = self.arena.memory.bytes(self.location.start, len);
        bytes.unwrap_or_default()
    }

    /// Where what is still to come goes.
    pub fn room(&mut self) -> &mut [u8] {
        let len = usize::try_from(self.location.len - self.filled).unwrap_or_default();
        let room = self
            .arena
            .memory
            .room(self.location.start + self.filled, len);
        room.unwrap_or_default()
    }

    /// Notes that so many bytes have been put at the beginning of the [room](Self::room).
    pub fn came(&mut self, bytes: usize) {
        let filled = self.filled.saturating_add(bytes as u64);
        self.filled = filled.min(self.location.len);
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        // Whoever has given the call up meanwhile reads nothing; nobody else may have been given the place.
        lock(&self.arena.slots).end_writing(self.location.slot());
    }
}

#[cfg(test)]
#[path = "filling_tests.rs"]
mod tests;
