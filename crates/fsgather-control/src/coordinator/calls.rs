//! What becomes of calls: contributions, releases, aborts.

use std::time::Instant;

use bytes::Bytes;
use fsgather_core::{
    Activity, Call, ChannelId, Error, Leaves, Operation, PeerFailure, Phase, Rank, Recipients, Step,
};

use super::{
    Action, Coordinator,
    channel::Reading,
    roster::Standing,
    round::{Arrival, Round},
};
use crate::message::ToMember;

impl Coordinator {
    pub(super) fn contribution(&mut self, from: Rank, step: Step, arrival: Arrival, now: Instant) {
        let phase = Phase::Waiting;
        let activity = Activity::within(phase, arrival.call.operation, step.epoch);
        self.note_activity(from, activity);
        let Some(channel) = self.channels.get_mut(&step.channel) else {
            let message = format!("rank {from} contributed to a communicator nobody made");
            self.actions.push(Action::Note(message));
            return;
        };
        if let Some(cause) = channel.failure.clone() {
            // The abort is on its way, or this member was not connected when it was sent.
            let channel = step.channel;
            self.send(vec![from], ToMember::Abort { channel, cause });
            return;
        }
        let expected = channel.members.len();
        let round = channel
            .undecided
            .entry(step)
            .or_insert_with(|| Round::new(self.world.world_size.count(), expected, now));
        if let Some((other, call)) = round.first()
            && let Some(difference) = call.difference(&arrival.call)
        {
            let cause = Error::Desync {
                epoch: step.epoch,
                difference: difference.into(),
                one: self.roster.peer(other),
                one_call: call.to_string(),
                other: self.roster.peer(from),
                other_call: arrival.call.to_string(),
            };
            self.fail_channel(step.channel, &cause);
            return;
        }
        round.arrive(from, arrival, now);
        let complete = round.is_complete();
        let absent = round
            .missing(&channel.members)
            .find(|rank| !self.roster.is_present(*rank));
        if complete {
            self.decide(step);
        } else if let Some(rank) = absent {
            let cause = self.absence(step, rank);
            self.fail_channel(step.channel, &cause);
        }
    }

    /// Releases a complete step: the only place where a call succeeds.
    pub(super) fn decide(&mut self, step: Step) {
        let Some(channel) = self.channels.get_mut(&step.channel) else {
            return;
        };
        let Some(round) = channel.undecided.remove(&step) else {
            return;
        };
        let arrivals = round.into_arrivals(&channel.members);
        let recipients = arrivals
            .first()
            .map_or(Recipients::All, |arrival| arrival.call.recipients());
        let owners: Vec<Rank> = channel
            .members
            .iter()
            .zip(&arrivals)
            .filter(|(_, arrival)| arrival.leaves == Leaves::ForOwner)
            .map(|(rank, _)| *rank)
            .collect();
        let acknowledge = !owners.is_empty();
        let members = channel.members.clone();
        if acknowledge {
            let readers = members
                .iter()
                .copied()
                .filter(|rank| recipients.include(*rank) && self.roster.is_connected(*rank))
                .collect();
            channel
                .reading
                .insert(step.epoch, Reading { owners, readers });
        }
        let further_rounds = arrivals
            .iter()
            .map(|arrival| arrival.further_rounds)
            .max()
            .unwrap_or(0);
        let bodies: Vec<Bytes> = arrivals.into_iter().map(|arrival| arrival.body).collect();
        let (told, only_released): (Vec<Rank>, Vec<Rank>) =
            members.iter().partition(|rank| recipients.include(**rank));
        let release = |bodies: Option<Vec<Bytes>>| ToMember::Release {
            step,
            acknowledge: acknowledge && bodies.is_some(),
            bodies,
            further_rounds,
        };
        for rank in members {
            self.went_on(rank);
        }
        self.send(told, release(Some(bodies)));
        self.send(only_released, release(None));
    }

    /// Aborts everything undecided of a channel: the only place where calls fail.
    pub(super) fn fail_channel(&mut self, id: ChannelId, cause: &Error) {
        let connected = self.roster.connected();
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        if channel.failure.is_some() {
            return;
        }
        channel.failure = Some(cause.clone());
        channel.undecided.clear();
        let to: Vec<Rank> = connected
            .into_iter()
            .filter(|rank| channel.members.contains(rank))
            .collect();
        channel.untold = to.iter().copied().collect();
        let cause = cause.clone();
        self.send(to, ToMember::Abort { channel: id, cause });
    }

    /// What to say when a call needs a rank that does not take part any more.
    pub(super) fn absence(&self, step: Step, rank: Rank) -> Error {
        let peer = self.roster.peer(rank);
        let activity = self
            .roster
            .get(rank)
            .map_or(Activity::outside(Phase::Joining), |member| member.activity);
        let waiting = self.channels.get(&step.channel).and_then(|channel| {
            let (other, call) = channel.undecided.get(&step)?.first()?;
            Some((self.roster.peer(other), call.to_string()))
        });
        let standing = self.roster.get(rank).map(|member| &member.standing);
        match (standing, waiting) {
            (Some(Standing::Closed(site)), Some((other, other_call))) => Error::Desync {
                epoch: step.epoch,
                difference: "different operations".into(),
                one: peer,
                one_call: Call::new(Operation::Close, site.clone()).to_string(),
                other,
                other_call,
            },
            (Some(Standing::Gone(failure)), _) => Error::PeerFailed {
                peer,
                activity,
                failure: failure.clone(),
            },
            _ => Error::PeerFailed {
                peer,
                activity,
                failure: PeerFailure::Departed,
            },
        }
    }
}
