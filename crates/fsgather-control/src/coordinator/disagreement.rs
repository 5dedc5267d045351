//! Ranks in different calls, which are asked where in the program they are before all are told: [`Disagreement`].
//!
//! The error has both calls and their lines; what a rank was called from, only its stack says. As long as the answers are on their
//! way nothing of the communicator is decided, as if it had failed already.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use fsgather_core::{Call, ChannelId, Error, Operation, Rank, RollCall, Whereabouts};

use super::{Coordinator, channel::Channel, roster::Standing, round::Round};

/// Ranks that are on their way to a call have so long to arrive, so that the error has their calls as well.
const ARRIVAL_GRACE: Duration = Duration::from_millis(200);

/// What all will be told.
#[derive(Clone, Debug)]
pub(super) struct Disagreement {
    /// The error, still without stacks.
    cause: Error,
    /// Who is asked.
    asked: Vec<Rank>,
    /// The calls of ranks that are in none of the rounds.
    calls: BTreeMap<Rank, Call>,
    since: Instant,
    /// Whether all members have arrived, or had [`ARRIVAL_GRACE`] for it.
    is_complete: bool,
    /// When it is told, whoever has not answered.
    until: Instant,
}

impl Disagreement {
    /// When there is something to do about it.
    pub(super) fn due(&self) -> Instant {
        if self.is_complete {
            return self.until;
        }
        self.until.min(self.since + ARRIVAL_GRACE)
    }
}

impl Coordinator {
    /// Has a communicator fail, where ranks are in different calls once they have said what they were called from.
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
        asked.sort_unstable();
        asked.dedup();
        channel.disagreement = Some(Disagreement {
            cause,
            asked: asked.clone(),
            calls: BTreeMap::new(),
            since: now,
            is_complete: false,
            until: now + lead,
        });
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
        if !its.asked.contains(&rank) {
            its.asked.push(rank);
            its.asked.sort_unstable();
            self.ask_what_they_do(vec![rank], now);
        }
        self.tell_disagreements(now);
    }

    /// Has a communicator fail because of a rank that has failed or is gone, unless it is to be told of different calls: those came
    /// first, and others who are in them have still to say what they were called from.
    pub(super) fn fail_after_answers(&mut self, id: ChannelId, cause: &Error) {
        let channel = self.channels.get(&id);
        let disagreement = channel.and_then(|channel| channel.disagreement.as_ref());
        if disagreement.is_none_or(|its| self.is_answered(its)) {
            self.fail_channel(id, cause);
        }
    }

    /// Whether nothing more is to be heard of those who were asked.
    fn is_answered(&self, its: &Disagreement) -> bool {
        let mut asked = its.asked.iter();
        asked.all(|rank| self.has_answered(*rank, its.since))
    }

    /// Whether all members that take part have arrived in some call.
    fn have_all_arrived(&self, channel: &Channel, its: &Disagreement) -> bool {
        channel
            .present()
            .all(|rank| !self.roster.is_present(rank) || its.asked.contains(&rank))
    }

    /// Tells of those about which everybody who was asked has answered, or had time for it.
    pub(super) fn tell_disagreements(&mut self, now: Instant) {
        let mut ripe: Vec<(ChannelId, Error)> = Vec::new();
        let mut complete: Vec<ChannelId> = Vec::new();
        for channel in self.channels.values() {
            let Some(its) = &channel.disagreement else {
                continue;
            };
            let is_complete = its.is_complete
                || now >= its.since + ARRIVAL_GRACE
                || self.have_all_arrived(channel, its);
            if its.until <= now || is_complete && self.is_answered(its) {
                ripe.push((channel.id, its.cause.clone()));
            } else if is_complete {
                complete.push(channel.id);
            }
        }
        for id in complete {
            let channel = self.channels.get_mut(&id);
            if let Some(its) = channel.and_then(|channel| channel.disagreement.as_mut()) {
                its.is_complete = true;
            }
        }
        for (id, cause) in ripe {
            self.fail_channel(id, &cause);
        }
    }

    /// Whether ranks are known to be in different calls, and have not been told so.
    #[must_use]
    pub fn is_about_to_fail(&self) -> bool {
        let mut channels = self.channels.values();
        channels.any(|channel| channel.disagreement.is_some())
    }

    /// Tells of all of them: nobody will be heard any more.
    pub(super) fn settle_disagreements(&mut self) {
        let channels = self.channels.values();
        let all = channels.filter_map(|channel| Some((channel.id, channel.disagreement.clone()?)));
        let all: Vec<(ChannelId, Disagreement)> = all.collect();
        for (id, its) in all {
            self.fail_channel(id, &its.cause);
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
        let caller = self.caller_of(rank, its.since);
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
