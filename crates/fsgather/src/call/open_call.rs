//! Holds a call open in its group and in the world: [`OpenCall`].

use std::sync::Arc;

use fsgather_core::Ticket;

use crate::{call::open_calls::Open, group_state::GroupState};

/// An open call, for as long as this exists.
pub(crate) struct OpenCall {
    inner: Arc<GroupState>,
    /// Its numbers in the group and in the world.
    numbers: (u64, u64),
}

/// Says of an open call that nobody wants it any more.
#[cfg(feature = "async")]
#[derive(Clone, Copy)]
pub(crate) struct GiveUp {
    numbers: (u64, u64),
}

#[cfg(feature = "async")]
impl GiveUp {
    /// Says so of a call of this group.
    pub(crate) fn give_up(self, group: &GroupState) {
        let (own, world) = self.numbers;
        group.open_calls.give_up(own);
        group.world.open_calls.give_up(world);
    }
}

impl OpenCall {
    pub(crate) fn new(inner: &Arc<GroupState>, ticket: &Ticket, left: Open) -> Self {
        let call = &*ticket.call;
        let numbers = (
            inner.open_calls.insert(left, call),
            inner.world.open_calls.insert(left, call),
        );
        let inner = Arc::clone(inner);
        Self { inner, numbers }
    }

    /// What says of this call that nobody wants it any more.
    #[cfg(feature = "async")]
    pub(crate) const fn give_up(&self) -> GiveUp {
        GiveUp {
            numbers: self.numbers,
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let (group, world) = self.numbers;
        self.inner.open_calls.remove(group);
        self.inner.world.open_calls.remove(world);
    }
}
