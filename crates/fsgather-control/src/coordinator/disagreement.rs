//! Ranks in different calls, which are asked where in the program they are before all are told: [`Disagreement`].
//!
//! The error has both calls and their lines; what a rank was called from, only its stack says. As long as the answers are on their
//! way nothing of the communicator is decided, as if it had failed already.

use std::time::Instant;

use fsgather_core::{ChannelId, Error, Rank, RollCall};

use super::{Coordinator, round::Round};

/// What all will be told.
#[derive(Clone, Debug)]
pub(super) struct Disagreement {
    /// The error, still without stacks.
    cause: Error,
    /// Who is asked.
    asked: Vec<Rank>,
    since: Instant,
    /// When it is told, whoever has not answered.
    until: Instant,
}

impl Disagreement {
    /// When it is told at the latest.
    pub(super) const fn due(&self) -> Instant {
        self.until
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
            since: now,
            until: now + lead,
        });
        self.ask_what_they_do(asked, now);
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

    /// Tells of those about which everybody who was asked has answered, or had time for it.
    pub(super) fn tell_disagreements(&mut self, now: Instant) {
        let is_ripe = |its: &Disagreement| its.until <= now || self.is_answered(its);
        let channels = self.channels.values();
        let ripe = channels.filter_map(|channel| {
            let disagreement = channel.disagreement.as_ref()?;
            is_ripe(disagreement).then(|| (channel.id, disagreement.cause.clone()))
        });
        let ripe: Vec<(ChannelId, Error)> = ripe.collect();
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

    /// The error of a disagreement, with the functions that the ranks were in.
    ///
    /// Of a rank that tells no functions, or has several threads in calls, there is nothing to say: that it waits in its call is clear.
    pub(super) fn resolve(&self, disagreement: Disagreement) -> Error {
        let Disagreement {
            mut cause,
            asked,
            since,
            ..
        } = disagreement;
        if let Error::Desync { stacks, .. } = &mut cause {
            let answers = asked.into_iter().filter_map(|rank| {
                let mut its = self.caller_of(rank, since)?;
                std::sync::Arc::make_mut(&mut its).state = None;
                (!its.frames.is_empty()).then_some((rank, its))
            });
            **stacks = RollCall::of(answers);
        }
        cause
    }
}
