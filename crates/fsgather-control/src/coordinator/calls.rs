//! Decides calls: contributions, releases, aborts.

use std::{collections::BTreeSet, time::Instant};

use bytes::Bytes;
use fsgather_core::{
    Activity, Call, CallName, ChannelId, Error, Leaves, Operation, PeerFailure, Phase, Rank,
    Recipients, Round as RoundNumber, Step,
};

use super::{
    Coordinator,
    channel::{PartialCall, Reading},
    roster::Standing,
    round::{Round, RoundArrival},
    stalls::Stalls,
};
use crate::message::ToMember;

impl Coordinator {
    pub(super) fn contribution(
        &mut self,
        from: Rank,
        step: Step,
        arrival: RoundArrival,
        now: Instant,
    ) {
        let phase = Phase::Waiting;
        let activity = Activity::within(phase, CallName::of(&arrival.call, step.epoch));
        self.record_activity(from, activity);
        let id = step.channel;
        let channel = self.channels.get_mut(&id);
        let place = channel.as_ref().and_then(|channel| {
            let is_here = channel.is_here(from);
            is_here.then(|| channel.place_of(from)).flatten()
        });
        let (Some(channel), Some(place)) = (channel, place) else {
            let who = self.names.of(from);
            let cause = Error::config(format!("rank {who} made a call in a group it is not in"));
            return self.turn_away(from, step, &arrival, cause);
        };
        if let Some(cause) = channel.failure.clone() {
            // The abort is on its way, or this member was not connected when it was sent.
            return self.turn_away(from, step, &arrival, cause);
        }
        if step.round == RoundNumber::VERDICT && channel.partial.contains_key(&step.epoch) {
            return self.too_late(from, step, &arrival, now);
        }
        let (size, timeout, lead) = (channel.size(), self.world.timeout, self.world.lead);
        let partial = channel.partial.get(&step.epoch);
        let round = channel.undecided.entry(step).or_insert_with(|| {
            let mut round = Round::new(step.round, size, timeout, lead, now);
            // Who was too late for a call has no part in what follows of it.
            round.excuse(partial.iter().flat_map(|partial| partial.places.clone()));
            round
        });
        let fits = round
            .first()
            .is_none_or(|(_, call)| call.difference(&arrival.call).is_none());
        let cause = if fits {
            round.arrive(place, arrival, now);
            let is_complete = round.is_complete();
            self.record_movement(from, now);
            self.announce(step);
            if is_complete {
                self.decide(step);
                return;
            }
            self.absentee(step).map(|rank| self.absence(step, rank))
        } else {
            // It has got on all the same, for whatever else waits for it.
            self.record_movement(from, now);
            let first = self.first_call(step);
            first.and_then(|first| self.difference(step, &first, from, &arrival.call))
        };
        if let Some(cause) = cause {
            self.refute(id, cause, now);
        }
    }

    /// Tells a member whose contribution nobody will get why that is so.
    fn turn_away(&mut self, from: Rank, step: Step, arrival: &RoundArrival, cause: Error) {
        let channel = step.channel;
        self.send(vec![from], ToMember::Abort { channel, cause });
        // Of such a call the abort alone does not say it.
        if arrival.call.is_early() && arrival.leaves != Leaves::Nothing {
            self.reclaim(channel, step.epoch, vec![(from, arrival.leaves)]);
        }
    }

    /// A member that an undecided step waits for and that will not come.
    fn absentee(&self, step: Step) -> Option<Rank> {
        let channel = self.channels.get(&step.channel)?;
        if !self.roster.is_broken_up() && !channel.is_broken_up() {
            return None;
        }
        let missing = channel.undecided.get(&step)?.missing();
        let mut missing = missing.filter_map(|place| channel.rank_at(place));
        missing.find(|rank| !self.roster.is_present(*rank) || channel.has_left(*rank))
    }

    /// Tells the root of a call that wants to know of what has been handed in since it was told last.
    fn announce(&mut self, step: Step) {
        let Some(channel) = self.channels.get_mut(&step.channel) else {
            return;
        };
        let Some(round) = channel.undecided.get_mut(&step) else {
            return;
        };
        if step.round != RoundNumber::VERDICT {
            return;
        }
        let Some(root) = round.early_root() else {
            return;
        };
        let news = round.take_news();
        let root: Vec<Rank> = channel.rank_at(root).into_iter().collect();
        for (place, body) in news {
            let from = Rank::new(u32::try_from(place).unwrap_or(u32::MAX));
            self.send(root.clone(), ToMember::Arrived { step, from, body });
        }
    }

    /// Decides a call whose deadline has passed with what is there.
    pub(super) fn decide_without_missing(&mut self, step: Step, now: Instant) {
        let channel = self.channels.get(&step.channel);
        // Ranks that are in different calls are to be told so, and nobody that it is late for one of them.
        let Some(channel) = channel.filter(|channel| channel.disagreement.is_none()) else {
            return;
        };
        let Some(round) = channel.undecided.get(&step) else {
            return;
        };
        let Some((place, call)) = round.first() else {
            return;
        };
        let places: Vec<usize> = round.missing().collect();
        let ranks: Vec<Rank> = channel.missing(round);
        let partial = PartialCall {
            first: (place, call.clone()),
            missing: ranks
                .iter()
                .map(|rank| self.roster.missing(*rank, now))
                .collect(),
            places: places.clone(),
            to_come: ranks.into_iter().collect(),
            last_round: None,
        };
        if let Some(channel) = self.channels.get_mut(&step.channel) {
            channel.partial.insert(step.epoch, partial);
            if let Some(round) = channel.undecided.get_mut(&step) {
                round.excuse(places);
            }
        }
        self.decide(step);
    }

    /// Tells a rank that comes to a call after it was decided without it.
    fn too_late(&mut self, from: Rank, step: Step, arrival: &RoundArrival, now: Instant) {
        self.record_movement(from, now);
        let Some(channel) = self.channels.get_mut(&step.channel) else {
            return;
        };
        let Some(partial) = channel.partial.get_mut(&step.epoch) else {
            return;
        };
        if partial.first.1.difference(&arrival.call).is_some() {
            let first = partial.first.clone();
            let cause = self.difference(step, &first, from, &arrival.call);
            if let Some(cause) = cause {
                self.refute(step.channel, cause, now);
            }
            return;
        }
        if !partial.to_come.remove(&from) {
            return;
        }
        let missing = partial.missing.clone();
        channel.forget_partial();
        self.went_on(from);
        if arrival.leaves != Leaves::Nothing {
            let owners = vec![(from, arrival.leaves)];
            self.reclaim(step.channel, step.epoch, owners);
        }
        let release = ToMember::Release {
            step,
            bodies: None,
            acknowledge: false,
            further_rounds: 0,
            last: None,
            missing,
        };
        self.send(vec![from], release);
    }

    /// The first call that came to a step, and the place of who made it.
    fn first_call(&self, step: Step) -> Option<(usize, Call)> {
        let channel = self.channels.get(&step.channel)?;
        let (place, call) = channel.undecided.get(&step)?.first()?;
        Some((place, call.clone()))
    }

    /// What to say when a rank makes another call than the first that came to a step.
    fn difference(
        &self,
        step: Step,
        (place, first): &(usize, Call),
        from: Rank,
        call: &Call,
    ) -> Option<Error> {
        let channel = self.channels.get(&step.channel)?;
        let difference = first.difference(call)?.into();
        let name = channel.name();
        let said = |rank, one: &Call, other: &Call| {
            let call = format!("{}{name}", channel.told(one).beside(other));
            (self.roster.peer(rank), call)
        };
        let earlier = channel.rank_at(*place)?;
        let mut both = [said(earlier, first, call), said(from, call, first)];
        // The text is the same whoever comes first.
        both.sort_by_key(|(peer, _)| peer.rank);
        let [(one, one_call), (other, other_call)] = both;
        Some(Error::Desync {
            number: call.number,
            difference,
            one: one.into(),
            one_call,
            other: other.into(),
            other_call,
            stacks: Box::default(),
        })
    }

    /// Releases a complete step: the only place where a call succeeds.
    pub(super) fn decide(&mut self, step: Step) {
        let Some(channel) = self.channels.get_mut(&step.channel) else {
            return;
        };
        if channel.disagreement.is_some() {
            return;
        }
        // A group has come to its end only when all its payloads have been read.
        let is_early = |round: &Round| round.is_end() && !channel.reading.is_empty();
        if channel.undecided.get(&step).is_none_or(is_early) {
            return;
        }
        let Some(round) = channel.undecided.remove(&step) else {
            return;
        };
        let last = round.last().and_then(|place| channel.rank_at(place));
        let arrivals = round.into_arrivals();
        let came = || arrivals.iter().flatten();
        let recipients = came()
            .next()
            .map_or(Recipients::All, |arrival| arrival.call.recipients());
        let owners: Vec<(Rank, Leaves)> = channel
            .ranks()
            .zip(&arrivals)
            .filter_map(|(rank, arrival)| Some((rank, arrival.as_ref()?.leaves)))
            .filter(|(_, leaves)| leaves.is_acknowledged())
            .collect();
        let acknowledge = !owners.is_empty();
        let further_rounds = came().map(|arrival| arrival.further_rounds).max();
        let further_rounds = further_rounds.unwrap_or(0);
        // Who comes later is told then.
        let absent: BTreeSet<Rank> = channel
            .ranks()
            .zip(&arrivals)
            .filter(|(_, arrival)| arrival.is_none())
            .map(|(rank, _)| rank)
            .collect();
        let bodies: Vec<Bytes> = arrivals
            .into_iter()
            .map(|arrival| arrival.map(|arrival| arrival.body).unwrap_or_default())
            .collect();
        let is_told = |rank: &Rank| !absent.contains(rank);
        let told: Vec<Rank> = channel.recipients(recipients).filter(is_told).collect();
        let members: Vec<Rank> = channel.present().filter(is_told).collect();
        let missing = channel.follow_partial(step, further_rounds);
        let receives: BTreeSet<Rank> = told.iter().copied().collect();
        let others = members.iter().copied();
        let only_released: Vec<Rank> = others.filter(|rank| !receives.contains(rank)).collect();
        let mut readers = receives;
        readers.retain(|rank| self.roster.is_connected(*rank));
        let unread = if acknowledge && !readers.is_empty() {
            let reading = Reading { owners, readers };
            channel.reading.insert(step.epoch, reading);
            Vec::new()
        } else {
            // All who were to read it may have left.
            owners
        };
        let release = |bodies: Option<Vec<Bytes>>| ToMember::Release {
            step,
            acknowledge: acknowledge && bodies.is_some(),
            bodies,
            further_rounds,
            last,
            missing: missing.clone(),
        };
        for rank in members {
            self.went_on(rank);
        }
        self.send(told, release(Some(bodies)));
        self.send(only_released, release(None));
        self.reclaim(step.channel, step.epoch, unread);
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
        // That came first, whatever has happened since.
        let disagreement = channel.disagreement.take();
        let cause = disagreement.map_or_else(|| cause.clone(), |its| self.resolve(its));
        let cause = &cause.cut_to_size();
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        channel.failure = Some(cause.clone());
        channel.hearsay = None;
        channel.stalls = Stalls::default();
        channel.partial.clear();
        let undecided = std::mem::take(&mut channel.undecided);
        // What a root has been told of it may still read, and its owners wait for it.
        let mut unread = channel.keep_told(&undecided);
        // Members that are here know by the abort which of their other payloads nobody will read.
        let others: Vec<_> = undecided
            .iter()
            .filter(|(_, round)| !round.is_early())
            .flat_map(|(step, round)| {
                round
                    .left()
                    .map(move |(place, leaves)| (step, place, leaves))
            })
            .filter_map(|(step, place, leaves)| Some((step.epoch, channel.rank_at(place)?, leaves)))
            .filter(|(_, rank, _)| !channel.is_here(*rank))
            .collect();
        unread.extend(others);
        // Those that have not come yet are told when they do.
        let to: Vec<Rank> = connected
            .into_iter()
            .filter(|rank| channel.is_here(*rank))
            .collect();
        channel.untold = to.iter().copied().collect();
        let cause = cause.clone();
        self.send(to, ToMember::Abort { channel: id, cause });
        for (epoch, owner, leaves) in unread {
            self.reclaim(id, epoch, vec![(owner, leaves)]);
        }
    }

    /// What to say when a call needs a rank that does not take part any more.
    pub(super) fn absence(&self, step: Step, rank: Rank) -> Error {
        let peer = self.roster.peer(rank);
        let activity = self
            .roster
            .get(rank)
            .map_or(Activity::outside(Phase::Joining), |member| {
                member.activity.clone()
            });
        let waiting = self.channels.get(&step.channel).and_then(|channel| {
            let (other, call) = channel.undecided.get(&step)?.first()?;
            let text = format!("{}{}", channel.told(call), channel.name());
            Some((self.roster.peer(channel.rank_at(other)?), text, call.number))
        });
        let standing = self.roster.get(rank).map(|member| &member.standing);
        match (standing, waiting) {
            (Some(Standing::Closed(site)), Some((other, other_call, number))) => Error::Desync {
                number,
                difference: "different operations".into(),
                one: peer.into(),
                one_call: Call::new(Operation::Close, site.clone()).to_string(),
                other: other.into(),
                other_call,
                stacks: Box::default(),
            },
            (Some(Standing::Staying(failure) | Standing::Gone(failure)), _)
                if *failure != PeerFailure::Departed =>
            {
                Error::peer_failed(peer, activity, failure.clone())
            }
            // Whoever leaves a world that has lost somebody does so for that.
            _ => match self.failure() {
                Some(lost @ Error::PeerFailed { .. }) => lost,
                _ => Error::peer_failed(peer, activity, PeerFailure::Departed),
            },
        }
    }
}
