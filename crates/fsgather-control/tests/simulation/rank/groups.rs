//! Takes a simulated rank into groups and out of them.

use fsgather_core::{ChannelId, Rank};

use super::{Clock, Process, Way, work::Current};
use crate::{
    program::Slot,
    promises::{Checked, Ledger, promise},
    script::Group,
};

impl Process {
    /// Channel, own number and size of the communicator that calls of this slot are made on, if it still exists.
    pub(super) fn place(&self, slot: Slot) -> Option<(ChannelId, Rank, u32)> {
        let Some(line) = slot else {
            let place = (ChannelId::WORLD, self.rank, self.ranks);
            return (!self.world_failed).then_some(place);
        };
        let group = self.groups.get(&line)?;
        let own = group.members.iter().position(|rank| *rank == self.rank)?;
        let own = u32::try_from(own).ok()?;
        let size = u32::try_from(group.members.len()).ok()?;
        Some((group.channel, Rank::new(own), size))
    }

    pub(super) fn open(&mut self, line: usize, group: Group, clock: Clock) -> Checked {
        let opened = self
            .member
            .open(group.channel, group.members.clone(), clock.instant());
        promise!(
            opened.is_ok(),
            "simulation: rank {} cannot make a group: {opened:?}",
            self.rank
        );
        self.groups.insert(line, group);
        Ok(())
    }

    pub(super) fn drop_channel(&mut self, channel: ChannelId, clock: Clock, ledger: &mut Ledger) {
        for current in &self.pending {
            if current.ticket.channel == channel {
                ledger.abandons(self.rank, &current.ticket);
            }
        }
        self.pending
            .retain(|current| current.ticket.channel != channel);
        self.groups.retain(|_, group| group.channel != channel);
        self.member.retire(channel, clock.instant());
    }

    pub(super) fn drop_group(&mut self, slot: Slot, clock: Clock, ledger: &mut Ledger) {
        if let Some(channel) = self.channel(slot) {
            self.drop_channel(channel, clock, ledger);
        }
    }

    fn channel(&self, slot: Slot) -> Option<ChannelId> {
        let group = slot.and_then(|line| self.groups.get(&line));
        group.map(|group| group.channel)
    }

    /// A call of the group in which this rank still has to hand over something.
    pub(super) fn take_owing(&mut self, slot: Slot) -> Option<Current> {
        let channel = self.channel(slot)?;
        let owes = |current: &Current| {
            current.ticket.channel == channel && current.further_rounds > current.round
        };
        let index = self.pending.iter().position(owes)?;
        Some(self.pending.remove(index))
    }

    pub(super) fn drop_groups(&mut self, clock: Clock, ledger: &mut Ledger) {
        while let Some(line) = self.groups.keys().next().copied() {
            self.drop_group(Some(line), clock, ledger);
        }
    }

    /// Returns true if it has waited for every call that it has started, or does not want it.
    pub(crate) fn has_settled(&self) -> bool {
        self.pending.is_empty() && self.way != Way::Left
    }

    /// Number of communicators.
    pub(crate) fn channels(&self) -> usize {
        1 + self.groups.len()
    }
}
