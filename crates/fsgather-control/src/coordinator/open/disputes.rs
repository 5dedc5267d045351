//! Handles ranks in different calls.
//!
//! The error has both calls and their lines; the functions that a rank was called from are only in its stack. As long as the answers
//! are on their way nothing of the communicator is decided, as if it had failed already.

use std::{sync::Arc, time::Instant};

use fsgather_core::{Call, ChannelId, Error, Operation, Rank, RollCall, Whereabouts};

use super::{OpenStage, channel::Channel, disagreement::Disagreement, round::Round};
use crate::coordinator::roster::Standing;

impl OpenStage {
    /// Fails a communicator; if ranks are in different calls, only once they have reported where they were called from.
    pub(super) fn refute(&mut self, id: ChannelId, cause: Error, now: Instant) {
        let channel = self.channels.get_mut(&id);
        let Some(channel) = channel.filter(|channel| channel.failure.is_none()) else {
            return;
        };
        if channel.disagreement.is_some() {
            return;
        }
        let (Error::Desync { one, other, .. }, Some(lead)) = (&cause, self.world.lead) else {
            self.fail_channel(id, &cause);
            return;
        };
        let rounds = channel.undecided.values();
        let waiting = rounds.flat_map(Round::waiting);
        let mut asked: Vec<Rank> = waiting.filter_map(|place| channel.rank_at(place)).collect();
        asked.extend([one.rank, other.rank]);
        let disagreement = Disagreement::new(cause, asked, lead, now);
        let asked = disagreement.asked().to_vec();
        channel.disagreement = Some(disagreement);
        self.ask_what_they_do(asked, now);
        self.tell_disagreements(now);
    }

    /// Adds a rank that has arrived meanwhile, with its call unless that is in a round.
    pub(super) fn join_disagreement(
        &mut self,
        id: ChannelId,
        rank: Rank,
        call: Option<Call>,
        now: Instant,
    ) {
        let channel = self.channels.get_mut(&id);
        let Some(its) = channel.and_then(|channel| channel.disagreement.as_mut()) else {
            return;
        };
        its.calls.extend(call.map(|call| (rank, call)));
        if its.add(rank) {
            self.ask_what_they_do(vec![rank], now);
        }
        self.tell_disagreements(now);
    }

    /// Fails a communicator because of a rank that has failed or is gone, unless its ranks are in different calls: those
    /// came first, and other ranks in them have still to report where they were called from.
    pub(super) fn fail_after_answers(&mut self, id: ChannelId, cause: &Error) {
        let channel = self.channels.get(&id);
        let disagreement = channel.and_then(|channel| channel.disagreement.as_ref());
        if disagreement.is_none_or(|its| its.is_answered(&self.roster)) {
            self.fail_channel(id, cause);
        }
    }

    /// Fails the communicators of disagreements about which all ranks that were asked have answered, or had time for it.
    pub(super) fn tell_disagreements(&mut self, now: Instant) {
        let mut ripe: Vec<(ChannelId, Error)> = Vec::new();
        let roster = &self.roster;
        for channel in self.channels.values_mut() {
            let Some(its) = &channel.disagreement else {
                continue;
            };
            let is_complete = its.has_all(channel.present(), roster, now);
            if its.is_overdue(now) || is_complete && its.is_answered(roster) {
                ripe.push((channel.id, its.cause.clone()));
            } else if let Some(its) = &mut channel.disagreement {
                its.is_complete = is_complete;
            }
        }
        for (id, cause) in ripe {
            self.fail_channel(id, &cause);
        }
    }

    /// Returns true if ranks are known to be in different calls and have not been sent the error.
    pub(in crate::coordinator) fn is_about_to_fail(&self) -> bool {
        let mut channels = self.channels.values();
        channels.any(|channel| channel.disagreement.is_some())
    }

    /// Fails the communicators of all disagreements: no rank will answer any more.
    pub(super) fn settle_disagreements(&mut self) {
        let channels = self.channels.values();
        let cause_of = |channel: &Channel| Some(channel.disagreement.as_ref()?.cause.clone());
        let all = channels.filter_map(|channel| Some((channel.id, cause_of(channel)?)));
        for (id, cause) in all.collect::<Vec<(ChannelId, Error)>>() {
            self.fail_channel(id, &cause);
        }
    }

    /// Returns the error of a disagreement, with the call of each member and the functions that it was called from.
    ///
    /// If a rank reports no functions, or has several threads in calls, the place of the call stands for them.
    pub(super) fn resolve(&self, id: ChannelId, disagreement: &Disagreement) -> Error {
        let mut cause = disagreement.cause.clone();
        if let (Error::Desync { stacks, .. }, Some(channel)) = (&mut cause, self.channels.get(&id))
        {
            let members = channel.ranks().filter_map(|rank| {
                let label = self.part_of(rank, channel, disagreement)?;
                Some((rank, label))
            });
            **stacks = RollCall::of(members);
        }
        cause
    }

    /// Returns the call that a member is in; `None` if it has left or was lost before.
    fn part_of(
        &self,
        rank: Rank,
        channel: &Channel,
        its: &Disagreement,
    ) -> Option<Arc<Whereabouts>> {
        let place = channel.place_of(rank)?;
        let mut rounds = channel.undecided.values();
        let call = match self.roster.get(rank).map(|member| &member.standing) {
            Some(Standing::Closed(site)) => Some(Call::new(Operation::Close, site.clone())),
            _ => its
                .calls
                .get(&rank)
                .cloned()
                .or_else(|| rounds.find_map(|round| round.call_of(place)).cloned()),
        };
        let caller = self.roster.caller_of(rank, its.since);
        let frames = caller.map_or_else(Vec::new, |its| its.frames.clone());
        let mut whereabouts = Whereabouts::own(frames, None);
        whereabouts.call = Some(match call {
            Some(call) if whereabouts.frames.is_empty() => channel.told(&call).to_string(),
            Some(call) => channel.told(&call).without_site(),
            None if self.roster.is_present(rank) => "in no call yet".to_owned(),
            None => return None,
        });
        Some(Arc::new(whereabouts.cut_to_size()))
    }
}
