//! One communicator as rank 0 sees it: [`Channel`].

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use fsgather_core::{
    Call, CallName, ChannelId, Epoch, Error, Leaves, Operation, Rank, RankNames, Recipients,
    Round as RoundNumber, Step,
};

use super::{disagreement::Disagreement, hearsay::Hearsay, round::Round, stalls::Stalls};

/// Payloads of a decided call that ranks still read.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) owners: Vec<(Rank, Leaves)>,
    pub(super) readers: BTreeSet<Rank>,
}

/// State of a rank in a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attendance {
    /// It belongs to it and has not come yet.
    Expected,
    Here,
    /// It has left, or is gone altogether.
    Over,
}

#[derive(Clone, Debug)]
struct ChannelMember {
    rank: Rank,
    part: Attendance,
    /// Number of bytes that it has moved for this communicator.
    bytes: u64,
}

/// The undecided and unread calls of one communicator.
///
/// A member's *place* is its number within the communicator, its rank the one it has in the world.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    pub(super) id: ChannelId,
    members: Vec<ChannelMember>,
    /// The place of each rank, sorted by rank.
    places: Vec<(Rank, usize)>,
    /// Number of members that have not left.
    remaining: usize,
    pub(super) undecided: BTreeMap<Step, Round>,
    pub(super) reading: BTreeMap<Epoch, Reading>,
    pub(super) failure: Option<Error>,
    /// The failure that follows once the ranks that it names have answered.
    pub(super) disagreement: Option<Disagreement>,
    /// Reports of members about others, as long as these may still speak for themselves.
    pub(super) hearsay: Option<Hearsay>,
    /// Calls whose payloads go from rank to rank and make no progress.
    pub(super) stalls: Stalls,
    /// Members that were sent the failure and have not acknowledged it.
    pub(super) untold: BTreeSet<Rank>,
    /// Names of its ranks in messages.
    names: RankNames,
}

impl Channel {
    /// The communicator of all ranks, which are there from the start.
    pub(super) fn world(ranks: impl Iterator<Item = Rank>) -> Self {
        Self::new(ChannelId::WORLD, ranks, Attendance::Here)
    }

    /// A group; its members are still to come.
    pub(super) fn group(id: ChannelId, members: &[Rank], names: &RankNames) -> Self {
        Self {
            names: names.clone(),
            ..Self::new(id, members.iter().copied(), Attendance::Expected)
        }
    }

    fn new(id: ChannelId, ranks: impl Iterator<Item = Rank>, part: Attendance) -> Self {
        let member = |rank| ChannelMember {
            rank,
            part,
            bytes: 0,
        };
        let members: Vec<ChannelMember> = ranks.map(member).collect();
        let ranks = members.iter().map(|member| member.rank);
        let mut places: Vec<(Rank, usize)> = ranks.zip(0..).collect();
        places.sort_unstable();
        Self {
            id,
            remaining: members.len(),
            members,
            places,
            undecided: BTreeMap::new(),
            reading: BTreeMap::new(),
            failure: None,
            disagreement: None,
            hearsay: None,
            stalls: Stalls::default(),
            untold: BTreeSet::new(),
            names: RankNames::default(),
        }
    }

    pub(super) fn size(&self) -> usize {
        self.members.len()
    }

    /// All members by their ranks in the world, in the order of the communicator.
    pub(super) fn ranks(&self) -> impl ExactSizeIterator<Item = Rank> + '_ {
        self.members.iter().map(|member| member.rank)
    }

    pub(super) fn place_of(&self, rank: Rank) -> Option<usize> {
        let found = self.places.binary_search_by_key(&rank, |(rank, _)| *rank);
        found.ok().map(|index| self.places[index].1)
    }

    pub(super) fn rank_at(&self, place: usize) -> Option<Rank> {
        self.members.get(place).map(|member| member.rank)
    }

    fn member(&self, rank: Rank) -> Option<&ChannelMember> {
        self.members.get(self.place_of(rank)?)
    }

    fn member_mut(&mut self, rank: Rank) -> Option<&mut ChannelMember> {
        let place = self.place_of(rank)?;
        self.members.get_mut(place)
    }

    /// Returns true if `rank` belongs to it.
    pub(super) fn includes(&self, rank: Rank) -> bool {
        self.place_of(rank).is_some()
    }

    /// Returns true if `rank` has come and has not left.
    pub(super) fn is_here(&self, rank: Rank) -> bool {
        self.member(rank)
            .is_some_and(|member| member.part == Attendance::Here)
    }

    /// Returns true if `rank` has left.
    pub(super) fn has_left(&self, rank: Rank) -> bool {
        self.member(rank)
            .is_some_and(|member| member.part == Attendance::Over)
    }

    /// All members that have come and have not left.
    pub(super) fn present(&self) -> impl Iterator<Item = Rank> + '_ {
        let here = self.members.iter();
        here.filter(|member| member.part == Attendance::Here)
            .map(|member| member.rank)
    }

    /// The members among them that receive.
    pub(super) fn recipients(&self, recipients: Recipients) -> impl Iterator<Item = Rank> + '_ {
        let receives = move |place: &u32| recipients.include(Rank::new(*place));
        let members = self.members.iter().zip(0..);
        members
            .filter(move |(member, place)| member.part == Attendance::Here && receives(place))
            .map(|(member, _)| member.rank)
    }

    /// Notes that `rank` has come.
    pub(super) fn admit(&mut self, rank: Rank) {
        if let Some(member) = self.member_mut(rank) {
            member.part = Attendance::Here;
        }
    }

    /// Notes that `rank` has left, and returns true if it had not before.
    pub(super) fn dismiss(&mut self, rank: Rank) -> bool {
        self.untold.remove(&rank);
        let Some(member) = self.member_mut(rank) else {
            return false;
        };
        let was_in = std::mem::replace(&mut member.part, Attendance::Over) != Attendance::Over;
        self.remaining -= usize::from(was_in);
        was_in
    }

    /// Returns true if some member has left.
    pub(super) fn is_broken_up(&self) -> bool {
        self.remaining < self.members.len()
    }

    /// Returns true if ranks were to meet there and all that came have left again, so that no rank waits for the others.
    pub(super) fn is_deserted(&self) -> bool {
        let mut calls = self.undecided.values().filter_map(Round::first);
        self.present().next().is_none()
            && !self.undecided.is_empty()
            && calls.all(|(_, call)| call.operation == Operation::Meet)
    }

    /// Returns true if no rank needs it any more.
    pub(super) fn is_over(&self) -> bool {
        self.remaining == 0 && self.reading.is_empty()
    }

    /// Notes the number of bytes that `rank` has moved for this communicator, and returns true if it has grown.
    pub(super) fn has_moved(&mut self, rank: Rank, bytes: u64) -> bool {
        self.member_mut(rank)
            .is_some_and(|member| std::mem::replace(&mut member.bytes, bytes) < bytes)
    }

    /// Notes progress in all undecided calls.
    pub(super) fn moved(&mut self, now: Instant) {
        for round in self.undecided.values_mut() {
            round.clock.moved(now);
        }
    }

    /// The undecided steps in which `rank` waits.
    pub(super) fn waited_in(&self, rank: Rank) -> impl Iterator<Item = (Step, &Round)> + '_ {
        let place = self.place_of(rank);
        let waits = move |round: &Round| place.is_some_and(|place| round.has(place));
        let undecided = self.undecided.iter();
        undecided
            .filter(move |(_, round)| waits(round))
            .map(|(step, round)| (*step, round))
    }

    /// Ranks that an undecided step waits for: those that have not contributed, or if all have, those that still read.
    pub(super) fn missing(&self, round: &Round) -> Vec<Rank> {
        if round.is_complete() {
            let reading = self.reading.values();
            let readers: BTreeSet<Rank> = reading
                .flat_map(|reading| reading.readers.iter().copied())
                .collect();
            return readers.into_iter().collect();
        }
        let places = round.missing();
        places.filter_map(|place| self.rank_at(place)).collect()
    }

    /// Returns true if `rank` has still to report that it has read all payloads of some decided call.
    pub(super) fn is_read_by(&self, rank: Rank) -> bool {
        let mut reading = self.reading.values();
        reading.any(|reading| reading.readers.contains(&rank))
    }

    /// Returns true if `rank` has still to report that it has read all payloads of this call.
    pub(super) fn is_read_by_in(&self, rank: Rank, epoch: Epoch) -> bool {
        let reading = self.reading.get(&epoch);
        reading.is_some_and(|reading| reading.readers.contains(&rank))
    }

    /// Ranks that have still to read a payload that goes with `owner`, or may have to once its call is decided.
    pub(super) fn readers_of(&self, owner: Rank) -> impl Iterator<Item = Rank> + '_ {
        let is_kept =
            move |(rank, leaves): &(Rank, Leaves)| *rank == owner && *leaves == Leaves::WithOwner;
        let reading = self.reading.values();
        let readers = reading
            .filter(move |reading| reading.owners.iter().any(is_kept))
            .flat_map(|reading| reading.readers.iter().copied());
        let place = self.place_of(owner);
        let undecided = self.undecided.values();
        let awaited = undecided
            .filter(move |round| {
                let mut left = round.left();
                left.any(|(at, leaves)| Some(at) == place && leaves == Leaves::WithOwner)
            })
            .flat_map(Round::missing)
            .filter_map(|place| self.rank_at(place));
        readers.chain(awaited)
    }

    /// Ranks that have still to read any payload.
    pub(super) fn readers(&self) -> impl Iterator<Item = Rank> + '_ {
        let reading = self.reading.values();
        reading.flat_map(|reading| reading.readers.iter().copied())
    }

    /// Notes that `rank` reads no more of `epoch`, and returns the owners whose payloads no rank needs now.
    pub(super) fn finished_reading(&mut self, epoch: Epoch, rank: Rank) -> Vec<(Rank, Leaves)> {
        let Some(reading) = self.reading.get_mut(&epoch) else {
            return Vec::new();
        };
        reading.readers.remove(&rank);
        if !reading.readers.is_empty() {
            return Vec::new();
        }
        self.reading
            .remove(&epoch)
            .map(|reading| reading.owners)
            .unwrap_or_default()
    }

    /// A call of its members as messages show it: its root, if it has one, by its name in the job.
    pub(super) fn told(&self, call: &Call) -> Call {
        let root = call.root.and_then(|root| self.rank_at(root.index()));
        Call {
            root: root.map(|rank| self.names.of(rank)).or(call.root),
            ..call.clone()
        }
    }

    /// The name of a round of a call in messages.
    pub(super) fn round_text(&self, call: &CallName, round: RoundNumber) -> String {
        let part = match round {
            RoundNumber::VERDICT => String::new(),
            round => format!(" (part {})", round.get()),
        };
        let text = format!("{}{part}{}", call.short(), self.name());
        if call.site.is_known() {
            format!("{text} at {}", call.site)
        } else {
            text
        }
    }

    /// Its name in messages, after a blank; empty for the world.
    pub(super) fn name(&self) -> String {
        const IN_FULL: usize = 8;
        match self.size() {
            _ if self.id == ChannelId::WORLD => String::new(),
            1..=IN_FULL => {
                let ranks = self.ranks().map(|rank| self.names.of(rank).to_string());
                let ranks: Vec<String> = ranks.collect();
                format!(" in the group of ranks {}", ranks.join(" "))
            }
            size => format!(" in a group of {size} ranks"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use fsgather_core::{Contribution, Operation, Site};

    use super::*;

    #[test]
    fn the_root_of_a_group_call_is_named_by_its_world_rank() {
        let names = RankNames::new((0..8).map(|rank| Rank::new(100 + rank)));
        let group = Channel::group(ChannelId::new(7), &[2, 5].map(Rank::new), &names);
        let gather = Call::new(Operation::Gather, Site::default()).with_root(Rank::new(1));
        assert_eq!(group.told(&gather).root, Some(Rank::new(105)));
        assert_eq!(group.name(), " in the group of ranks 102 105");
        let world = Channel::world((0..8).map(Rank::new));
        assert_eq!(world.told(&gather).root, Some(Rank::new(1)));
    }

    #[test]
    fn who_keeps_a_payload_is_needed_by_its_readers_and_nobody_else() {
        let [keeper, other, reader] = [0, 1, 2].map(Rank::new);
        let mut world = Channel::world([keeper, other, reader].into_iter());
        let reading = Reading {
            owners: vec![(keeper, Leaves::WithOwner), (other, Leaves::ForOwner)],
            readers: BTreeSet::from([reader]),
        };
        world.reading.insert(Epoch::new(1), reading);
        let readers_of = |rank| world.readers_of(rank).collect::<Vec<Rank>>();
        assert_eq!(readers_of(keeper), [reader]);
        assert!(readers_of(other).is_empty());
        assert!(readers_of(reader).is_empty());
    }

    #[test]
    fn a_late_rank_counts_as_reader_of_kept_payloads() {
        let [keeper, other, late] = [0, 1, 2].map(Rank::new);
        let mut world = Channel::world([keeper, other, late].into_iter());
        let (now, timeout) = (Instant::now(), Duration::from_secs(1));
        let mut round = Round::new(3, timeout, None, now);
        for (place, leaves) in [(0, Leaves::WithOwner), (1, Leaves::ForOwner)] {
            let contribution = Contribution {
                leaves,
                ..Contribution::default()
            };
            let call = Call::new(Operation::AllGather, Site::default());
            round.arrive(place, call, contribution, now);
        }
        let step = Step {
            channel: ChannelId::WORLD,
            epoch: Epoch::new(1),
            round: fsgather_core::Round::VERDICT,
        };
        world.undecided.insert(step, round);
        let readers_of = |rank| world.readers_of(rank).collect::<Vec<Rank>>();
        assert_eq!(readers_of(keeper), [late]);
        assert!(readers_of(other).is_empty());
        assert!(readers_of(late).is_empty());
    }
}
