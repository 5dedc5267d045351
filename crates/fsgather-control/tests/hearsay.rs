//! Tests which failure all ranks receive when one rank's trouble is noticed by its neighbours, and by theirs: on the bare
//! coordinator, in virtual time.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a check reports by panicking"
)]

mod machines;

use std::time::{Duration, Instant};

use fsgather_control::{
    coordinator::{Action, Coordinator},
    message::{CallReply, CallRequest, EndRequest, ToCoordinator, ToMember},
};
use fsgather_core::{
    Activity, CallName, ChannelId, Epoch, Error, Missing, Operation, Peer, PeerFailure, Phase,
    Rank, RollCall, Site,
};
use proptest::prelude::*;

/// Time for which a report about another rank is kept.
const OWN_REPORT_TIME: Duration = Duration::from_secs(8);

const OTHER_REPORTS_TIME: Duration = Duration::from_secs(4);

fn doing() -> Activity {
    let call = CallName {
        operation: Operation::AllGather,
        number: 3,
        epoch: Epoch::new(3),
        tag: None,
        site: Site::default(),
    };
    Activity::within(Phase::Reading, call)
}

fn peer(rank: u32) -> Peer {
    Peer {
        rank: Rank::new(rank),
        host: String::new(),
        pid: 0,
    }
}

/// The error of `from` when its link to `other` has ended.
fn link_lost(from: u32, other: u32) -> Error {
    Error::peer_failed(
        peer(from),
        doing(),
        PeerFailure::LinkLost {
            other: peer(other),
            how: "its connection closed".into(),
        },
    )
}

fn no_way(other: u32) -> Error {
    Error::unreached(format!("no way to rank {other}"), Rank::new(other))
}

/// The error of a rank that was interrupted.
fn interrupted(rank: u32) -> Error {
    Error::raised(peer(rank), doing(), "KeyboardInterrupt")
}

/// The error of a rank that has waited for these in vain.
fn timed_out(others: &[u32]) -> Error {
    let missing = others.iter().map(|rank| Missing {
        rank: Rank::new(*rank),
        process: None,
        last_seen: None,
    });
    Error::timed_out(
        "moving payloads",
        Duration::from_secs(60),
        missing.collect(),
        RollCall::default(),
        "wait longer",
    )
}

/// An event on rank 0.
#[derive(Clone, Debug)]
enum Event {
    Fail(u32, Error),
    Lost(u32),
    Leave(u32),
    Stay(u32),
}

/// The failure that all ranks receive after these events, each with its time in milliseconds after the start, and the time
/// of the failure after the start.
fn told(ranks: u32, mut events: Vec<(u64, Event)>) -> (Error, Duration) {
    events.sort_by_key(|(at, _)| *at);
    let start = Instant::now();
    let (mut coordinator, _members) = machines::formed(ranks, Duration::from_secs(60), start);
    let mut events = events.into_iter().peekable();
    loop {
        let next = events
            .peek()
            .map(|(at, _)| start + Duration::from_millis(*at));
        let tick = coordinator.next_tick();
        let now = next.into_iter().chain(tick).min().unwrap();
        coordinator.tick(now);
        if let Some((_, event)) =
            events.next_if(|(at, _)| start + Duration::from_millis(*at) <= now)
        {
            happen(&mut coordinator, event, now);
        }
        if let Some(failure) = coordinator.failure() {
            assert_told_once(&mut coordinator, &failure);
            return (failure, now - start);
        }
    }
}

fn happen(coordinator: &mut Coordinator, event: Event, now: Instant) {
    match event {
        Event::Fail(from, cause) => {
            let fail = ToCoordinator::Call(CallRequest::Fail {
                channel: ChannelId::WORLD,
                cause,
                activity: doing(),
            });
            coordinator.on_message(Rank::new(from), fail, now);
        }
        Event::Lost(rank) => coordinator.lost(Rank::new(rank), "its connection closed"),
        Event::Leave(rank) => {
            let leave = ToCoordinator::End(EndRequest::Leave { cause: None });
            coordinator.on_message(Rank::new(rank), leave, now);
        }
        Event::Stay(rank) => {
            let stay = ToCoordinator::End(EndRequest::Stay { cause: None });
            coordinator.on_message(Rank::new(rank), stay, now);
        }
    }
}

fn assert_told_once(coordinator: &mut Coordinator, failure: &Error) {
    let actions = coordinator.take_actions();
    let aborts = actions.iter().filter_map(|action| match action {
        Action::Send {
            message: ToMember::Call(CallReply::Abort { cause, .. }),
            ..
        } => Some(cause),
        _ => None,
    });
    assert_eq!(aborts.collect::<Vec<_>>(), [failure]);
}

/// The rank that an error names, and true if it is lost.
fn named(told: &Error) -> (u32, bool) {
    match told {
        Error::PeerFailed { peer, failure, .. } => {
            let is_lost = matches!(failure, PeerFailure::Lost { .. });
            (peer.rank.get(), is_lost)
        }
        other => panic!("{other}"),
    }
}

/// A ring in which one rank has trouble: the reports of its neighbours, and of theirs, up to some distance, in any order.
fn ripples() -> impl Strategy<Value = (u32, u32, Vec<(u64, Event)>)> {
    (3..9_u32)
        .prop_flat_map(|ranks| (Just(ranks), 0..ranks, 1..ranks, any::<bool>()))
        .prop_flat_map(|(ranks, victim, reach, dials)| {
            let times = prop::collection::vec(0..7000_u64, reach as usize + 1);
            (Just(ranks), Just(victim), Just(dials), times)
        })
        .prop_map(|(ranks, victim, dials, times)| {
            let after = |steps: u32| (victim + steps) % ranks;
            let mut events: Vec<(u64, Event)> = (1..)
                .zip(&times[1..])
                .map(|(step, at)| {
                    let (from, about) = (after(step), after(step - 1));
                    (*at, Event::Fail(from, link_lost(from, about)))
                })
                .collect();
            // Its left neighbour sends to it, or tries to reach it.
            let left = after(ranks - 1);
            let cause = if dials {
                no_way(victim)
            } else {
                link_lost(left, victim)
            };
            events.push((times[0], Event::Fail(left, cause)));
            (ranks, victim, events)
        })
}

proptest! {
    #[test]
    fn a_killed_rank_is_named_whoever_is_heard_first(
        (ranks, victim, mut events) in ripples(),
        at in 0..7000_u64,
    ) {
        prop_assume!(victim != 0);
        events.push((at, Event::Lost(victim)));
        let (told, after) = told(ranks, events);
        prop_assert_eq!(named(&told), (victim, true), "{}", told);
        prop_assert!(after.as_millis() <= u128::from(at));
    }

    #[test]
    fn a_failed_rank_is_reported_with_its_cause_in_any_order(
        (ranks, victim, mut events) in ripples(),
        at in 0..7000_u64,
    ) {
        events.push((at, Event::Fail(victim, interrupted(victim))));
        // Later reports of its neighbours are ignored.
        let (told, _) = told(ranks, events);
        prop_assert_eq!(told, interrupted(victim));
    }

    #[test]
    fn both_ends_name_a_broken_link_between_living_ranks(
        (ranks, victim, events) in ripples(),
    ) {
        let first = events.iter().map(|(at, _)| *at).min().unwrap();
        let from_all = (0..ranks).all(|rank| {
            events.iter().any(|(_, event)| matches!(event, Event::Fail(from, _) if *from == rank))
        });
        prop_assume!(!from_all);
        let (told, after) = told(ranks, events);
        prop_assert_eq!(after, Duration::from_millis(first) + OWN_REPORT_TIME);
        let teller = match &told {
            Error::PeerFailed { peer, .. } => peer.rank,
            _ => Rank::new((victim + ranks - 1) % ranks),
        };
        prop_assert_eq!(told.blamed_by(teller), [Rank::new(victim)]);
    }

    #[test]
    fn a_time_out_names_all_stopped_ranks_and_no_waiting_one(
        ranks in 3..9_u32,
        stopped in prop::collection::btree_set(0..9_u32, 1..3),
        times in prop::collection::vec(1..1900_u64, 9),
    ) {
        let stopped: Vec<u32> = stopped.into_iter().filter(|rank| *rank < ranks).collect();
        prop_assume!(!stopped.is_empty());
        let waiting = (0..ranks).filter(|rank| !stopped.contains(rank));
        let events: Vec<(u64, Event)> = waiting
            .zip(times)
            .map(|(rank, at)| {
                let neighbours = [(rank + ranks - 1) % ranks, (rank + 1) % ranks];
                (at, Event::Fail(rank, timed_out(&neighbours)))
            })
            .collect();
        let first = events.iter().map(|(at, _)| *at).min().unwrap();
        let expected: Vec<Rank> = stopped.iter().map(|rank| Rank::new(*rank)).collect();
        let (told, after) = told(ranks, events);
        prop_assert_eq!(after, Duration::from_millis(first) + OTHER_REPORTS_TIME);
        let Error::Timeout { missing, .. } = told else {
            return Err(TestCaseError::fail(told.to_string()));
        };
        let named: Vec<Rank> = missing.iter().map(|missing| missing.rank).collect();
        prop_assert_eq!(named, expected);
        // They come with rank 0's knowledge of them.
        prop_assert!(missing.iter().all(|missing| missing.last_seen.is_some()));
    }
}

#[test]
fn a_rank_that_left_is_named_rather_than_the_link_to_it() {
    let lost = |at| (at, Event::Fail(2, link_lost(2, 1)));
    for leaves_at in [5, 15] {
        let (told, after) = told(3, vec![lost(10), (leaves_at, Event::Leave(1))]);
        let text = told.to_string();
        assert!(
            text.contains("rank 1 on  (pid 0) had already left"),
            "{text}"
        );
        assert_eq!(after, Duration::from_millis(leaves_at.max(10)));
    }
}

#[test]
fn a_rank_killed_while_it_lingers_is_named_as_lost() {
    let unread = |at| (at, Event::Fail(2, link_lost(2, 1)));
    for lost_at in [5, 15] {
        let events = vec![(0, Event::Stay(1)), unread(10), (lost_at, Event::Lost(1))];
        let (told, after) = told(3, events);
        assert_eq!(named(&told), (1, true), "{told}");
        assert_eq!(after, Duration::from_millis(lost_at.max(10)));
    }
}

#[test]
fn a_resumed_rank_0_reads_messages_before_it_judges() {
    let start = Instant::now();
    let (mut coordinator, _members) = machines::formed(3, Duration::from_secs(60), start);
    happen(&mut coordinator, Event::Fail(2, link_lost(2, 1)), start);
    let woken = start + Duration::from_secs(30);
    coordinator.tick(woken);
    assert_eq!(coordinator.failure(), None);
    assert!(coordinator.next_tick().is_some_and(|due| due > woken));
    happen(&mut coordinator, Event::Lost(1), woken);
    assert_eq!(named(&coordinator.failure().unwrap()), (1, true));
}

#[test]
fn rank_0_that_is_always_late_believes_in_the_end() {
    let start = Instant::now();
    let (mut coordinator, _members) = machines::formed(3, Duration::from_secs(60), start);
    happen(&mut coordinator, Event::Fail(2, link_lost(2, 1)), start);
    for seconds in [30, 60] {
        coordinator.tick(start + Duration::from_secs(seconds));
    }
    assert_eq!(coordinator.failure(), Some(link_lost(2, 1)));
}
