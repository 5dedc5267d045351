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
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let (group, world) = self.numbers;
        self.inner.open_calls.remove(group);
        self.inner.world.open_calls.remove(world);
    }
}
