//! One channel as the ledger knows it: [`Lane`].

use std::{collections::BTreeSet, time::Duration};

use fsgather_core::{ChannelId, Error, Rank, Step, Ticket};

use super::{Checked, Connected, Ledger, promise};

/// The members of a channel, and whether it has failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    /// In the order of the communicator.
    pub(super) members: Vec<Rank>,
    /// Members that have arrived in it and have not left, as far as rank 0 knows.
    pub(super) here: BTreeSet<Rank>,
    /// Members that have left it, as far as rank 0 knows.
    pub(super) left: BTreeSet<Rank>,
    /// True if something has happened after which it must have failed.
    pub(super) has_to_fail: bool,
    /// The reason why it has failed.
    pub(super) abort: Option<Error>,
    pub(super) aborted_at: Option<Duration>,
    /// True if it may have failed when no member was there to receive that.
    pub(super) is_unheard: bool,
    /// Members that were sent the abort and have not answered it.
    pub(super) untold: BTreeSet<Rank>,
}

impl Lane {
    pub(super) fn world(ranks: impl Iterator<Item = Rank>) -> Self {
        let members: Vec<Rank> = ranks.collect();
        Self {
            here: members.iter().copied().collect(),
            members,
            ..Self::default()
        }
    }

    /// Members that can receive a message.
    pub(super) fn listeners(&self, connected: Connected<'_>) -> Vec<Rank> {
        let here = self.here.iter().copied();
        here.filter(|rank| connected(*rank)).collect()
    }

    /// Returns true if a member has not left, is connected, and may still come.
    fn remains(&self, connected: Connected<'_>) -> bool {
        let mut members = self.members.iter();
        members.any(|rank| connected(*rank) && !self.left.contains(rank))
    }

    /// Returns true if `rank` takes part or may still come.
    pub(super) fn needs(&self, rank: Rank) -> bool {
        self.members.contains(&rank) && !self.left.contains(&rank)
    }
}

impl Ledger {
    /// The reason why the world has failed.
    pub(crate) fn abort(&self) -> Option<&Error> {
        self.abort_of(ChannelId::WORLD)
    }

    pub(super) fn abort_of(&self, channel: ChannelId) -> Option<&Error> {
        self.lanes.get(&channel)?.abort.as_ref()
    }

    /// The members of a channel, in the order of the communicator.
    pub(super) fn members(&self, channel: ChannelId) -> &[Rank] {
        self.lanes
            .get(&channel)
            .map_or(&[], |lane| lane.members.as_slice())
    }

    pub(super) fn opens(
        &mut self,
        from: Rank,
        channel: ChannelId,
        members: &[Rank],
        connected: Connected<'_>,
    ) {
        let lane = self.lanes.entry(channel).or_default();
        lane.is_unheard |= !lane.members.is_empty() && lane.listeners(connected).is_empty();
        lane.members = members.to_vec();
        lane.here.insert(from);
        // A rank that makes no more calls does not come.
        let stayed = members.iter().filter(|rank| self.stayed.contains_key(rank));
        lane.left.extend(stayed);
        if lane.abort.is_some() {
            // It must get the error now that the others have received.
            lane.untold.insert(from);
        }
    }

    pub(super) fn retires(&mut self, from: Rank, channel: ChannelId) {
        let lane = self.lanes.entry(channel).or_default();
        lane.here.remove(&from);
        lane.left.insert(from);
        lane.untold.remove(&from);
    }

    /// Everything that needs this rank has to fail.
    pub(super) fn breaks_all_of(&mut self, rank: Rank) {
        for lane in self.lanes.values_mut().filter(|lane| lane.needs(rank)) {
            lane.has_to_fail = true;
        }
    }

    /// Notes that a rank does not want the result of a call any more.
    pub(crate) fn abandons(&mut self, rank: Rank, ticket: &Ticket) {
        self.abandoned_calls
            .insert((rank, ticket.channel, ticket.epoch));
    }

    /// Returns true if its machine continues for a rank that has abandoned a call.
    pub(super) fn is_abandoned(&self, rank: Rank, step: Step) -> bool {
        let call = (rank, step.channel, step.epoch);
        self.abandoned_calls.contains(&call)
    }

    /// Checks that events of each channel have had their consequences, and that channels that are not needed are gone.
    pub(super) fn check_lanes(
        &self,
        all_told: bool,
        channels: usize,
        connected: Connected<'_>,
    ) -> Checked {
        let mut untold = Vec::new();
        let mut kept = 0;
        for (channel, lane) in &self.lanes {
            let listeners = lane.listeners(connected);
            promise!(
                lane.abort.is_some() || !lane.has_to_fail || listeners.is_empty(),
                "P3: a rank has failed or was lost, and {channel:?} has not failed"
            );
            let others = lane.untold.iter().filter(|rank| **rank != Rank::ZERO);
            untold.extend(others.filter(|rank| connected(**rank)).copied());
            let is_read = self.is_read(*channel, connected);
            let is_kept = *channel == ChannelId::WORLD || lane.remains(connected) || is_read;
            kept += usize::from(is_kept);
        }
        promise!(
            all_told == untold.is_empty(),
            "P3: rank 0 believes that all know of the failures: {all_told}; not so: {untold:?}"
        );
        promise!(
            channels == kept,
            "P9: rank 0 keeps {channels} channels, {kept} are needed"
        );
        Ok(())
    }
}
