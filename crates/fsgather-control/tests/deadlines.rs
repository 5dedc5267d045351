//! Calls whose root hears of contributions as they come, and calls with a deadline, on the bare machines in virtual time.

#![expect(clippy::unwrap_used, reason = "a check reports by panicking")]

mod machines;

use std::time::{Duration, Instant};

use bytes::Bytes;
use fsgather_control::{
    coordinator::{Action, Coordinator},
    member::{Member, MemberAction},
};
use fsgather_core::{
    Arrival, Call, ChannelId, Contribution, Epoch, Error, Leaves, Operation, Rank, Round, Site,
    Ticket, Verdict,
};

/// The time-out of the world.
const WORLD: Duration = Duration::from_mins(1);

const RANKS: u32 = 4;

/// The root of all calls here: another rank than the one that decides.
const ROOT: usize = 1;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Ranks whose time passes as fast as things fall due.
struct Room {
    start: Instant,
    now: Instant,
    coordinator: Coordinator,
    members: Vec<Member>,
    /// Whose payloads have been removed.
    reclaimed: Vec<(Epoch, usize)>,
}

impl Room {
    fn new() -> Self {
        let now = Instant::now();
        let (coordinator, members) = machines::formed(RANKS, WORLD, now);
        Self {
            start: now,
            now,
            coordinator,
            members,
            reclaimed: Vec::new(),
        }
    }

    /// A rank comes to a call and leaves a payload.
    fn hand_in(&mut self, rank: usize, call: &Call) -> Ticket {
        let member = &mut self.members[rank];
        let ticket = member.begin(ChannelId::WORLD, call.clone()).unwrap();
        let part = Contribution {
            body: body(rank),
            leaves: Leaves::WithOwner,
            further_rounds: 0,
        };
        let now = self.now;
        member
            .contribute(&ticket, Round::VERDICT, part, now)
            .unwrap();
        self.pump();
        ticket
    }

    /// A rank comes to a call with a payload that goes through rank 0 in so many further rounds.
    fn hand_in_rounds(&mut self, rank: usize, call: &Call, further_rounds: u32) -> Ticket {
        let member = &mut self.members[rank];
        let ticket = member.begin(ChannelId::WORLD, call.clone()).unwrap();
        let part = Contribution {
            further_rounds,
            ..Contribution::inline(body(rank))
        };
        let now = self.now;
        member
            .contribute(&ticket, Round::VERDICT, part, now)
            .unwrap();
        self.pump();
        ticket
    }

    fn arrival(&mut self, ticket: &Ticket) -> Option<Result<Arrival, Error>> {
        self.members[ROOT].take_arrival(ticket.step(Round::VERDICT))
    }

    /// The ranks that the root hears of next.
    fn news(&mut self, ticket: &Ticket) -> Vec<usize> {
        let mut news = Vec::new();
        for rank in 0..RANKS {
            // No more than there can be, so that a verdict is left.
            let step = ticket.step(Round::VERDICT);
            let mut copy = self.members[ROOT].clone();
            match copy.take_arrival(step) {
                Some(Ok(Arrival::Part { from, body: got })) => {
                    assert_eq!(got, body(from.index()), "after {rank}");
                    self.members[ROOT] = copy;
                    news.push(from.index());
                }
                _ => break,
            }
        }
        news
    }

    fn verdict(&mut self, rank: usize, ticket: &Ticket) -> Option<Result<Verdict, Error>> {
        self.members[rank].take_verdict(ticket.step(Round::VERDICT))
    }

    /// Who is missing, in a verdict that has come.
    fn missing(&mut self, rank: usize, ticket: &Ticket) -> Vec<u32> {
        let verdict = self.verdict(rank, ticket).unwrap().unwrap();
        let missing = verdict.missing.iter();
        missing.map(|missing| missing.rank.get()).collect()
    }

    fn pump(&mut self) {
        loop {
            let mut is_quiet = true;
            for (rank, member) in (0..).zip(&mut self.members) {
                for action in member.take_actions() {
                    is_quiet = false;
                    match action {
                        MemberAction::Send(message) => {
                            let from = Rank::new(u32::try_from(rank).unwrap());
                            self.coordinator.on_message(from, message, self.now);
                        }
                        MemberAction::Reclaim { epoch, .. } => self.reclaimed.push((epoch, rank)),
                        _ => {}
                    }
                }
            }
            for action in self.coordinator.take_actions() {
                is_quiet = false;
                if let Action::Send { to, message } = action {
                    for to in to {
                        self.members[to.index()].on_message(message.clone(), self.now);
                    }
                }
            }
            if is_quiet {
                return;
            }
        }
    }

    /// Lets time pass until so long after the start.
    fn pass(&mut self, until: Duration) {
        let until = self.start + until;
        loop {
            let due = self.members.iter().filter_map(Member::next_tick);
            let due = due.chain(self.coordinator.next_tick()).min();
            let Some(due) = due.filter(|due| *due <= until) else {
                break;
            };
            self.now = due.max(self.now);
            self.coordinator.tick(self.now);
            for member in &mut self.members {
                member.tick(self.now);
            }
            self.pump();
        }
        self.now = until;
    }

    /// Whose payloads of a call have been removed so far.
    fn removed(&self, ticket: &Ticket) -> Vec<usize> {
        let of_call = self.reclaimed.iter();
        let of_call = of_call.filter(|(epoch, _)| *epoch == ticket.epoch);
        let mut ranks: Vec<usize> = of_call.map(|(_, rank)| *rank).collect();
        ranks.sort_unstable();
        ranks
    }
}

fn body(rank: usize) -> Bytes {
    Bytes::from(vec![u8::try_from(rank).unwrap(); 3])
}

fn root() -> Rank {
    Rank::new(u32::try_from(ROOT).unwrap())
}

fn as_completed() -> Call {
    Call::new(Operation::GatherAsCompleted, Site::named("here")).with_root(root())
}

fn partial(deadline: Duration) -> Call {
    let gather = Call::new(Operation::Gather, Site::named("here")).with_root(root());
    gather.with_deadline(deadline)
}

#[test]
fn the_root_hears_of_each_rank_as_it_comes_and_of_earlier_ones_when_it_comes_itself() {
    let mut room = Room::new();
    let call = as_completed();
    let others = [2, 3].map(|rank| room.hand_in(rank, &call));
    let ticket = room.hand_in(ROOT, &call);
    assert_eq!(room.news(&ticket), [2, 3, 1]);
    assert_eq!(room.arrival(&ticket), None);
    assert!(others.iter().all(|other| room.verdict(2, other).is_none()));
    let last = room.hand_in(0, &call);
    assert_eq!(room.news(&ticket), [0]);
    match room.arrival(&ticket) {
        Some(Ok(Arrival::Decided(verdict))) => {
            assert!(verdict.table.unwrap().acknowledge);
            assert_eq!(
                (verdict.last, verdict.missing),
                (Some(Rank::ZERO), Vec::new())
            );
        }
        other => unreachable!("{other:?}"),
    }
    assert_eq!(room.verdict(0, &last).unwrap().unwrap().table, None);
    assert_eq!(room.removed(&ticket), []);
    room.members[ROOT].done(ChannelId::WORLD, ticket.epoch);
    room.pump();
    assert_eq!(room.removed(&ticket), [0, 1, 2, 3]);
}

#[test]
fn what_was_in_before_a_failure_is_told_first_and_stays_until_the_root_is_done() {
    let mut room = Room::new();
    let call = as_completed();
    let ticket = room.hand_in(ROOT, &call);
    let other = room.hand_in(0, &call);
    room.coordinator.lost(Rank::new(2), "its connection closed");
    room.pump();
    assert_eq!(room.news(&ticket), [1, 0]);
    let failure = room.arrival(&ticket).unwrap().unwrap_err();
    assert!(
        matches!(&failure, Error::PeerFailed { peer, .. } if peer.rank == Rank::new(2)),
        "{failure}"
    );
    assert_eq!(room.verdict(0, &other).unwrap().unwrap_err(), failure);
    assert_eq!(room.removed(&ticket), []);
    let cause = Error::config("never told");
    let now = room.now;
    room.members[ROOT].abandon(&ticket, cause, now);
    room.pump();
    assert_eq!(room.removed(&ticket), [0, 1]);
}

#[test]
fn of_a_call_that_fails_nothing_stays_where_the_root_has_not_come_or_is_lost() {
    let mut room = Room::new();
    let call = as_completed();
    let ticket = room.hand_in(0, &call);
    room.coordinator.lost(Rank::new(2), "its connection closed");
    room.pump();
    assert_eq!(room.removed(&ticket), [0]);

    let mut room = Room::new();
    let ticket = room.hand_in(ROOT, &call);
    room.hand_in(0, &call);
    room.coordinator.lost(root(), "its connection closed");
    room.pump();
    assert_eq!(room.removed(&ticket), [0]);
}

#[test]
fn a_root_that_gives_up_lets_the_others_go_on_and_everything_goes() {
    let mut room = Room::new();
    let call = as_completed();
    let ticket = room.hand_in(ROOT, &call);
    room.hand_in(0, &call);
    let now = room.now;
    room.members[ROOT].abandon(&ticket, Error::config("never told"), now);
    room.pump();
    let others = [2, 3].map(|rank| (rank, room.hand_in(rank, &call)));
    for (rank, other) in others {
        assert!(room.verdict(rank, &other).unwrap().is_ok());
    }
    assert_eq!(room.removed(&ticket), [0, 1, 2, 3]);
}

#[test]
fn at_the_deadline_all_hear_the_same_and_who_comes_late_as_well() {
    let mut room = Room::new();
    let call = partial(seconds(5));
    let early = room.hand_in(0, &call);
    // It counts from when the root has come.
    room.pass(seconds(20));
    let ticket = room.hand_in(ROOT, &call);
    room.pass(Duration::from_millis(24_999));
    assert!(room.verdict(0, &early).is_none());
    room.pass(seconds(25));
    assert_eq!(room.news(&ticket), [0, 1]);
    assert_eq!(room.missing(0, &early), [2, 3]);
    assert_eq!(room.missing(ROOT, &ticket), [2, 3]);
    // The others go on with the next call; a late rank is told at once, its payload goes, and it can follow.
    let barrier = Call::new(Operation::Barrier, Site::named("there"));
    let next = room.hand_in(0, &barrier);
    let late = room.hand_in(2, &call);
    assert_eq!(room.missing(2, &late), [2, 3]);
    assert_eq!(room.removed(&late), [2]);
    assert_eq!(room.arrival(&ticket), None);
    for rank in [ROOT, 2] {
        room.hand_in(rank, &barrier);
    }
    assert!(room.verdict(0, &next).is_none());
    let latest = room.hand_in(3, &call);
    assert_eq!(room.missing(3, &latest), [2, 3]);
    room.hand_in(3, &barrier);
    assert!(room.verdict(0, &next).unwrap().is_ok());
    room.members[ROOT].done(ChannelId::WORLD, ticket.epoch);
    room.pump();
    assert_eq!(room.removed(&ticket), [0, 1, 2, 3]);
}

#[test]
fn a_deadline_beyond_the_time_out_is_waited_for_and_one_without_a_root_is_not() {
    let mut room = Room::new();
    let call = partial(seconds(600));
    let ticket = room.hand_in(ROOT, &call);
    let other = room.hand_in(0, &call);
    room.pass(seconds(599));
    assert!(room.verdict(0, &other).is_none());
    room.pass(seconds(600));
    assert_eq!(room.missing(ROOT, &ticket), [2, 3]);
    assert_eq!(room.missing(0, &other), [2, 3]);

    let mut room = Room::new();
    let other = room.hand_in(0, &call);
    room.pass(WORLD);
    let failure = room.verdict(0, &other).unwrap().unwrap_err();
    assert!(matches!(failure, Error::Timeout { .. }), "{failure}");
}

#[test]
fn all_in_time_is_decided_at_once() {
    let mut room = Room::new();
    let call = partial(seconds(5));
    let tickets: Vec<Ticket> = (0..4).map(|rank| room.hand_in(rank, &call)).collect();
    assert_eq!(room.missing(0, &tickets[0]), [0; 0]);
    room.pass(seconds(50));
    assert_eq!(room.news(&tickets[ROOT]), [0, 1, 2, 3]);
}

#[test]
fn a_late_rank_that_makes_another_call_is_told_as_ever() {
    let mut room = Room::new();
    let call = partial(seconds(5));
    let ticket = room.hand_in(ROOT, &call);
    for rank in [0, 2] {
        room.hand_in(rank, &call);
    }
    room.pass(seconds(5));
    assert_eq!(room.missing(ROOT, &ticket), [3]);
    let barrier = Call::new(Operation::Barrier, Site::named("elsewhere"));
    let late = room.hand_in(3, &barrier);
    // So long it is asked what it was called from, and does not say it here.
    room.pass(seconds(5) + machines::LEAD);
    let failure = room.verdict(3, &late).unwrap().unwrap_err();
    assert!(matches!(failure, Error::Desync { .. }), "{failure}");
    assert!(
        failure.to_string().contains("barrier at elsewhere"),
        "{failure}"
    );
}

#[test]
fn a_rank_that_is_lost_is_no_missing_one() {
    let mut room = Room::new();
    let call = partial(seconds(5));
    let ticket = room.hand_in(ROOT, &call);
    room.pass(seconds(1));
    room.coordinator.lost(Rank::new(3), "its connection closed");
    room.pump();
    assert_eq!(room.news(&ticket), [1]);
    let failure = room.arrival(&ticket).unwrap().unwrap_err();
    assert!(matches!(failure, Error::PeerFailed { .. }), "{failure}");
}

#[test]
fn what_was_handed_in_before_the_deadline_comes_whole_however_long_it_takes() {
    let mut room = Room::new();
    let call = partial(seconds(5));
    let ticket = room.hand_in_rounds(ROOT, &call, 0);
    let others = [0, 2, 3].map(|rank| (rank, room.hand_in_rounds(rank, &call, 1)));
    // The root's member has come to the further round; the deadline passes there, and long after it the others come.
    room.pass(seconds(30));
    let round = Round::new(1);
    for (rank, other) in &others {
        let (now, part) = (room.now, Contribution::inline(body(*rank)));
        room.members[*rank]
            .contribute(other, round, part, now)
            .unwrap();
        room.pump();
        room.pass(room.now - room.start + seconds(30));
    }
    assert_eq!(room.missing(ROOT, &ticket), [0; 0]);
    let verdict = room.members[ROOT].take_verdict(ticket.step(round));
    let bodies = verdict.unwrap().unwrap().table.unwrap().bodies;
    assert_eq!(bodies, [body(0), Bytes::new(), body(2), body(3)]);
}

#[test]
fn who_does_not_hand_over_what_it_has_announced_is_told_by_the_time_out() {
    let mut room = Room::new();
    let call = partial(seconds(5));
    let ticket = room.hand_in_rounds(ROOT, &call, 0);
    for rank in [0, 2, 3] {
        room.hand_in_rounds(rank, &call, 1);
    }
    room.pass(WORLD);
    let step = ticket.step(Round::new(1));
    let failure = room.members[ROOT].take_verdict(step).unwrap().unwrap_err();
    assert!(matches!(failure, Error::Timeout { .. }), "{failure}");
}

#[test]
fn further_rounds_go_on_without_those_who_were_late() {
    let mut room = Room::new();
    let call = partial(seconds(5));
    let tickets =
        [(ROOT, 0), (0, 2)].map(|(rank, rounds)| room.hand_in_rounds(rank, &call, rounds));
    room.pass(seconds(5));
    let verdict = room.verdict(0, &tickets[1]).unwrap().unwrap();
    assert_eq!((verdict.further_rounds, verdict.missing.len()), (2, 2));
    for round in [1, 2].map(Round::new) {
        // One that is too late for the call comes in the middle of it.
        if round == Round::new(2) {
            let late = room.hand_in(3, &call);
            let verdict = room.verdict(3, &late).unwrap().unwrap();
            assert_eq!((verdict.further_rounds, verdict.missing.len()), (0, 2));
        }
        let now = room.now;
        let part = Contribution::inline(body(0));
        let member = &mut room.members[0];
        member.contribute(&tickets[1], round, part, now).unwrap();
        room.pump();
        assert!(
            room.members[0]
                .take_verdict(tickets[1].step(round))
                .is_some()
        );
    }
    // The root's member goes on by itself, whenever the root comes for it.
    assert_eq!(room.news(&tickets[0]), [1, 0]);
    assert!(matches!(
        room.arrival(&tickets[0]),
        Some(Ok(Arrival::Decided(_)))
    ));
    for round in [1, 2].map(Round::new) {
        let step = tickets[0].step(round);
        let table = room.members[ROOT]
            .take_verdict(step)
            .unwrap()
            .unwrap()
            .table;
        let expected = vec![body(0), Bytes::new(), Bytes::new(), Bytes::new()];
        assert_eq!(table.unwrap().bodies, expected);
    }
    let late = room.hand_in(2, &call);
    assert_eq!(room.missing(2, &late), [2, 3]);
}

#[test]
fn who_was_late_may_end_while_the_others_are_in_further_rounds() {
    let mut room = Room::new();
    let call = partial(seconds(5));
    let ticket = room.hand_in_rounds(ROOT, &call, 0);
    let others = [0, 2].map(|rank| (rank, room.hand_in_rounds(rank, &call, 1)));
    room.pass(seconds(5));
    let late = room.hand_in(3, &call);
    assert_eq!(room.missing(3, &late), [3]);
    let now = room.now;
    room.members[3].close(Site::named("the end"), now);
    room.pump();
    let round = Round::new(1);
    for (rank, other) in &others {
        let part = Contribution::inline(body(*rank));
        room.members[*rank]
            .contribute(other, round, part, now)
            .unwrap();
        room.pump();
    }
    let verdict = room.members[ROOT].take_verdict(ticket.step(round));
    let bodies = verdict.unwrap().unwrap().table.unwrap().bodies;
    assert_eq!(bodies, [body(0), Bytes::new(), body(2), Bytes::new()]);
}
