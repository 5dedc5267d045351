//! Checks how long payloads stay, and which rank removes them.

use std::{collections::BTreeSet, time::Duration};

use fsgather_core::{ChannelId, Epoch, Leaves, Rank, Round, Step};

use super::{Checked, Connected, Ledger, promise};
use crate::script::TIME_LIMIT;

/// A call within its channel.
pub(super) type CallId = (ChannelId, Epoch);

/// Payloads of a decided call that ranks may still read.
#[derive(Clone, Debug, Default)]
pub(super) struct Payloads {
    pub(super) owners: BTreeSet<Rank>,
    /// Ranks whose payload is gone with their process.
    pub(super) keepers: BTreeSet<Rank>,
    /// Ranks that receive them.
    pub(super) recipients: BTreeSet<Rank>,
    /// Ranks whose payload has to be removed, or is removed by rank 0.
    pub(super) reclaimed: BTreeSet<Rank>,
    /// Ranks whose payload is not there any more.
    pub(super) removed: BTreeSet<Rank>,
    pub(super) done: BTreeSet<Rank>,
}

impl Ledger {
    /// Returns true if rank 0 waits for this rank to report that it has read a payload.
    pub(super) fn reads(&self, rank: Rank, connected: Connected<'_>) -> bool {
        let calls = self.payloads.keys();
        calls
            .into_iter()
            .any(|call| self.readers(*call, connected).contains(&rank))
    }

    /// Ranks that read a payload of a channel.
    pub(super) fn readers_of(
        &self,
        channel: ChannelId,
        connected: Connected<'_>,
    ) -> BTreeSet<Rank> {
        let calls = self.payloads.keys().filter(|call| call.0 == channel);
        calls
            .flat_map(|call| self.readers(*call, connected))
            .collect()
    }

    /// Returns true if a payload of a channel is being read.
    pub(super) fn is_read(&self, channel: ChannelId, connected: Connected<'_>) -> bool {
        !self.readers_of(channel, connected).is_empty()
    }

    pub(crate) fn reclaims(
        &mut self,
        call: CallId,
        owner: Rank,
        connected: Connected<'_>,
    ) -> Checked {
        if !self.is_released(call) {
            // If no rank is left to receive an abort, this is its only sign: nothing may be released after it.
            self.given_up.insert(call);
            return self.check_left(call, owner);
        }
        let reading = self.readers(call, connected);
        let payloads = self.payloads.entry(call).or_default();
        promise!(
            reading.is_empty(),
            "P4: the payload of rank {owner} in call {call:?} goes while {reading:?} read it"
        );
        promise!(
            payloads.owners.contains(&owner),
            "P4: rank {owner} left no payload in call {call:?}"
        );
        promise!(
            payloads.reclaimed.insert(owner),
            "P4: the payload of rank {owner} in call {call:?} is reclaimed twice"
        );
        self.reclaims += 1;
        let abandoned = self.abandoned_calls.iter();
        let was_abandoned = abandoned
            .map(|(_, channel, epoch)| (*channel, *epoch))
            .any(|abandoned| abandoned == call);
        self.reclaims_of_abandoned += usize::from(was_abandoned);
        Ok(())
    }

    /// Notes that rank 0 removes the payload of an owner that is gone.
    pub(crate) fn reclaims_for(
        &mut self,
        call: CallId,
        owner: Rank,
        connected: Connected<'_>,
    ) -> Checked {
        promise!(
            !connected(owner),
            "P4: rank 0 removes the payload of rank {owner}, which is there to do so"
        );
        self.reclaims(call, owner, connected)?;
        self.reclaims_for_others += 1;
        self.removes(owner, call)
    }

    /// Returns true if a call has not succeeded, and never will.
    fn has_failed(&self, call: CallId) -> bool {
        let is_over = self.abort_of(call.0).is_some()
            || !self.goodbyes.is_empty()
            || self.given_up.contains(&call);
        is_over && !self.is_released(call)
    }

    fn is_released(&self, (channel, epoch): CallId) -> bool {
        let step = Step {
            channel,
            epoch,
            round: Round::VERDICT,
        };
        let exchange = self.exchanges.get(&step);
        exchange.is_some_and(|exchange| exchange.released)
    }

    /// Checks that a payload of a call that has failed was contributed by its owner; it concerns no other rank.
    fn check_left(&self, (channel, epoch): CallId, owner: Rank) -> Checked {
        let step = Step {
            channel,
            epoch,
            round: Round::VERDICT,
        };
        let exchange = self.exchanges.get(&step);
        let handed_in = exchange.and_then(|exchange| exchange.handed_in.get(&owner));
        promise!(
            handed_in.is_some_and(|(_, part)| part.leaves != Leaves::Nothing),
            "P4: rank {owner} left no payload in call {step:?}, which has failed"
        );
        Ok(())
    }

    /// Notes that a payload is removed, by its owner unless that is gone.
    pub(crate) fn removes(&mut self, owner: Rank, call: CallId) -> Checked {
        if self.has_failed(call) {
            return self.check_left(call, owner);
        }
        let payloads = self.payloads.entry(call).or_default();
        promise!(
            payloads.reclaimed.contains(&owner) && payloads.removed.insert(owner),
            "P4: the payload of rank {owner} in call {call:?} is removed unasked or twice"
        );
        Ok(())
    }

    /// Payloads of decided calls that are still there.
    pub(crate) fn kept_payloads(&self) -> Vec<(CallId, Rank)> {
        let payloads = self.payloads.iter();
        payloads
            .flat_map(|(call, payloads)| {
                let kept = payloads.owners.difference(&payloads.removed);
                kept.map(|owner| (*call, *owner))
            })
            .collect()
    }

    /// Ranks that read a payload that is gone with `keeper`; for rank 0, which removes everything, any payload.
    fn readers_of_keeper(&self, keeper: Rank, connected: Connected<'_>) -> BTreeSet<Rank> {
        let calls = self.payloads.iter();
        let kept = calls
            .filter(|(_, payloads)| keeper == Rank::ZERO || payloads.keepers.contains(&keeper));
        let mut readers: BTreeSet<Rank> = kept
            .flat_map(|(call, _)| self.readers(*call, connected))
            .collect();
        readers.remove(&keeper);
        readers
    }

    /// Notes that a rank makes no more calls and stays until its payloads have been read.
    pub(super) fn stays_on(&mut self, rank: Rank, connected: Connected<'_>) {
        let channels: Vec<ChannelId> = self.lanes.keys().copied().collect();
        for channel in channels {
            if self.members(channel).contains(&rank) {
                self.retires(rank, channel);
            }
        }
        let is_read = !self.readers_of_keeper(rank, connected).is_empty();
        self.stayed.insert(rank, is_read);
    }

    /// Checks that rank 0 lets a rank go only when its payloads have been read, or their readers make no progress.
    pub(super) fn may_go(
        &mut self,
        rank: Rank,
        now: Duration,
        connected: Connected<'_>,
    ) -> Checked {
        let Some(was_read) = self.stayed.get(&rank).copied() else {
            return Ok(());
        };
        let readers = self.readers_of_keeper(rank, connected);
        self.stays_to_the_end += usize::from(was_read && readers.is_empty());
        self.stays_given_up += usize::from(!readers.is_empty());
        for reader in readers {
            let moved = self.moved.get(&reader).copied().unwrap_or_default();
            promise!(
                now >= moved + Duration::from_secs(TIME_LIMIT) || self.rank_0_was_disturbed,
                "P4: rank {rank} may go at {now:?} while rank {reader}, which got on at {moved:?}, reads what it keeps"
            );
        }
        Ok(())
    }

    /// Ranks that still read payloads of a call.
    pub(super) fn readers(&self, call: CallId, connected: Connected<'_>) -> Vec<Rank> {
        let (Some(payloads), Some(lane)) = (self.payloads.get(&call), self.lanes.get(&call.0))
        else {
            return Vec::new();
        };
        let recipients = payloads.recipients.iter().copied();
        recipients
            .filter(|rank| connected(*rank) && !lane.left.contains(rank))
            .filter(|rank| !payloads.done.contains(rank))
            .collect()
    }
}
