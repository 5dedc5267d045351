//! Remembers the payloads that a rank has published and was not asked to remove: [`Keeping`].

use std::collections::BTreeMap;

use fsgather_core::{ChannelId, Epoch, Leaves};

#[derive(Clone, Debug)]
struct Kept {
    leaves: Leaves,
    is_decided: bool,
}

/// Payloads of this rank, by call.
#[derive(Clone, Debug, Default)]
pub(super) struct Keeping {
    payloads: BTreeMap<(ChannelId, Epoch), Kept>,
}

impl Keeping {
    /// Notes the payload that this rank has published for a call.
    pub(super) fn publish(&mut self, channel: ChannelId, epoch: Epoch, leaves: Leaves) {
        if leaves.is_published() {
            let kept = Kept {
                leaves,
                is_decided: false,
            };
            self.payloads.entry((channel, epoch)).or_insert(kept);
        }
    }

    /// Notes that a call has succeeded: a payload that its only reader removes is not this rank's business any more.
    pub(super) fn decided(&mut self, channel: ChannelId, epoch: Epoch) {
        if let Some(kept) = self.payloads.get_mut(&(channel, epoch)) {
            kept.is_decided = true;
            if !kept.leaves.is_acknowledged() {
                self.forget(channel, epoch);
            }
        }
    }

    /// Notes that no rank needs the payload of a call any more.
    pub(super) fn forget(&mut self, channel: ChannelId, epoch: Epoch) {
        self.payloads.remove(&(channel, epoch));
    }

    /// Forgets all payloads of calls of a communicator that have not succeeded, and now never will, and returns those calls.
    pub(super) fn forget_undecided(&mut self, channel: ChannelId) -> Vec<Epoch> {
        let payloads = self.payloads.iter();
        let undecided: Vec<Epoch> = payloads
            .filter(|((of, _), kept)| *of == channel && !kept.is_decided)
            .map(|((_, epoch), _)| *epoch)
            .collect();
        for epoch in &undecided {
            self.forget(channel, *epoch);
        }
        undecided
    }

    /// Returns true if a payload is kept that goes with this rank.
    pub(super) fn is_alone(&self) -> bool {
        let mut payloads = self.payloads.values();
        payloads.any(|kept| kept.leaves == Leaves::WithOwner)
    }
}
