//! Ranks of which the user is warned while payloads go from rank to rank and nothing moves: on the bare machines, in virtual time.

#![expect(clippy::unwrap_used, reason = "a check reports by panicking")]

mod machines;

use std::time::{Duration, Instant};

use bytes::Bytes;
use fsgather_control::{
    coordinator::Action,
    member::{Member, MemberAction},
    message::{CallRequest, Probe, StallReport, ToCoordinator, ToMember},
};
use fsgather_core::{
    Activity, Call, CallName, ChannelId, Contribution, Epoch, Leaves, Neighbour, Operation, Phase,
    Rank, Round, Site, Step, ThreadState, Whereabouts,
};
use proptest::prelude::*;

/// Interval at which a rank notes that nothing moves.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Reads payloads in the third call.
fn reading() -> Activity {
    let call = CallName {
        operation: Operation::AllGather,
        number: 3,
        epoch: Epoch::new(3),
        tag: None,
        site: Site::default(),
    };
    Activity::within(Phase::Reading, call)
}

/// A ring in which some ranks are stopped, for this many seconds; returns each warning with its second. Ranks stop moving
/// bytes a little one after the other, and look only at intervals.
fn warnings(ranks: u32, stopped: &[u32], seconds: u64) -> Vec<(u64, String)> {
    let start = Instant::now();
    let (mut coordinator, mut members) = machines::formed(ranks, Duration::from_secs(1800), start);
    let mut warnings = Vec::new();
    for look in 0..=seconds * 2 {
        let (second, passed) = (look / 2, LOOK_EVERY * u32::try_from(look).unwrap());
        let now = start + passed;
        for (rank, member) in (0..).zip(&mut members) {
            if stopped.contains(&rank) {
                continue;
            }
            let idle = passed + Duration::from_millis(7) * (rank + 1);
            let left = Rank::new((rank + ranks - 1) % ranks);
            member.stalled(ChannelId::WORLD, reading(), &[left], (idle, None), now);
            for action in member.take_actions() {
                if let MemberAction::Look { number, neighbour } = action {
                    member.seen(
                        number,
                        neighbour.map_or(Rank::new(rank), |it| it.rank),
                        None,
                    );
                    continue;
                }
                // Rank 0 is there, and reports for all.
                assert!(matches!(action, MemberAction::Send(_)), "{action:?}");
                if let MemberAction::Send(message) = action {
                    coordinator.on_message(Rank::new(rank), message, now);
                }
            }
        }
        for action in coordinator.take_actions() {
            match action {
                Action::Warn(text) => warnings.push((second, text)),
                Action::Send { to, message } => {
                    for rank in to.iter().filter(|rank| !stopped.contains(&rank.get())) {
                        members[rank.index()].on_message(message.clone(), now);
                    }
                }
                _ => {}
            }
        }
    }
    warnings
}

proptest! {
    #[test]
    fn those_who_do_not_move_are_named_and_nobody_who_waits(
        ranks in 2..9_u32,
        stopped in prop::collection::btree_set(0..9_u32, 1..4),
    ) {
        let stopped: Vec<u32> = stopped.into_iter().filter(|rank| *rank < ranks).collect();
        prop_assume!(!stopped.is_empty() && stopped.len() < ranks as usize);
        let warnings = warnings(ranks, &stopped, 250);
        let times: Vec<u64> = warnings.iter().map(|(at, _)| *at).collect();
        prop_assert_eq!(times, [30, 60, 120, 240]);
        for (_, text) in warnings {
            prop_assert!(text.starts_with("all_gather #3 is still waiting for rank "), "{}", text);
            for rank in 0..ranks {
                let is_named = text.contains(&format!("rank {rank} on "));
                prop_assert_eq!(is_named, stopped.contains(&rank), "rank {} in {}", rank, text);
            }
        }
    }
}

#[test]
fn a_rank_that_comes_to_a_rest_once_more_is_told_of_once_more() {
    let start = Instant::now();
    let (_, mut members) = machines::formed(2, Duration::from_secs(1800), start);
    let member = &mut members[1];
    let mut tells = |at: u64, idle: u64| {
        let (now, idle) = (start + Duration::from_secs(at), Duration::from_secs(idle));
        member.stalled(
            ChannelId::WORLD,
            reading(),
            &[Rank::ZERO],
            (idle, None),
            now,
        );
        let actions = member.take_actions().into_iter();
        let mut told = actions.filter(|action| {
            matches!(
                action,
                MemberAction::Send(ToCoordinator::Call(CallRequest::Stalled { .. }))
            )
        });
        told.next().is_some()
    };
    assert!(!tells(0, 0));
    assert!(tells(30, 30));
    assert!(!tells(31, 31));
    // It has moved in between.
    assert!(!tells(40, 1));
    assert!(tells(59, 20));
}

#[test]
fn all_are_named_where_all_wait_for_each_other() {
    let warnings = warnings(3, &[], 40);
    let [(30, text)] = &*warnings else {
        panic!("{warnings:?}");
    };
    for rank in 0..3 {
        assert!(text.contains(&format!("rank {rank} on ")), "{text}");
    }
}

#[test]
fn nobody_is_warned_of_a_short_rest() {
    assert_eq!(warnings(4, &[2], 29), []);
}

/// The actions of a member, with their seconds, that waits for a rank 0 that answers until `stopped_at`, and says nothing
/// from then on.
fn asks_and_warnings(
    mut wait: impl FnMut(&mut Member, Duration, Instant),
    stopped_at: u64,
    seconds: u64,
) -> Vec<(u64, String)> {
    let start = Instant::now();
    let (_, mut members) = machines::formed(2, Duration::from_secs(1800), start);
    let member = &mut members[1];
    let mut done = Vec::new();
    for second in 0..=seconds {
        let passed = Duration::from_secs(second);
        let now = start + passed;
        wait(member, passed, now);
        while member.next_tick().is_some_and(|due| due <= now) {
            member.tick(now);
        }
        for action in member.take_actions() {
            match action {
                MemberAction::Send(ToCoordinator::Probe(Probe::Ask)) => {
                    done.push((second, "asks".into()));
                    if second < stopped_at {
                        member.on_message(ToMember::Probe(Probe::Here), now);
                    }
                }
                MemberAction::Warn(text) => done.push((second, text)),
                _ => {}
            }
        }
    }
    done
}

/// Waits for the verdict on the first call.
fn for_a_verdict(member: &mut Member, passed: Duration, now: Instant) {
    if passed == Duration::from_secs(1) {
        let call = Call::new(Operation::Barrier, Site::default());
        let ticket = member.begin(ChannelId::WORLD, call).unwrap();
        let nothing = Contribution::inline(Bytes::new());
        member
            .contribute(&ticket, Round::VERDICT, nothing, now)
            .unwrap();
    }
}

/// Waits for payloads that go from rank to rank.
fn for_neighbours(member: &mut Member, passed: Duration, now: Instant) {
    let idle = passed.saturating_sub(Duration::from_secs(1));
    member.stalled(
        ChannelId::WORLD,
        reading(),
        &[Rank::ZERO],
        (idle, None),
        now,
    );
}

fn for_the_end(member: &mut Member, passed: Duration, now: Instant) {
    if passed == Duration::from_secs(1) {
        member.close(Site::default(), now);
    }
}

type Wait = fn(&mut Member, Duration, Instant);

/// Each kind of wait, and its name.
const WAITS: [(Wait, &str); 3] = [
    (for_a_verdict, "barrier #1"),
    (for_neighbours, "all_gather #3"),
    (for_the_end, "close"),
];

#[test]
fn who_waits_for_a_rank_0_that_does_not_answer_warns_itself() {
    for (wait, what) in WAITS {
        let done = asks_and_warnings(wait, 0, 250);
        let times: Vec<u64> = done.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [21, 31, 61, 121, 241], "{what}: {done:?}");
        let expected = format!(
            "{what} is still waiting for rank 0 on here (pid 1), which has not said for 30 s that it is there; see \
             whether it is stopped or its host unreachable"
        );
        let (text, end) = done[1].1.rsplit_once("; times out in ").unwrap();
        assert_eq!(text, expected);
        assert!(!end.is_empty());
    }
}

#[test]
fn a_neighbour_looks_at_a_silent_rank_0_and_reports_it() {
    let root = Neighbour {
        rank: Rank::ZERO,
        pid: 1,
        start_time: 7,
    };
    for (wait, what) in WAITS {
        let start = Instant::now();
        let (_, mut members) = machines::formed(2, Duration::from_secs(1800), start);
        let mut member = members.swap_remove(1).beside(root);
        let (mut looks, mut told) = (Vec::new(), Vec::new());
        for second in 0..=70 {
            let passed = Duration::from_secs(second);
            wait(&mut member, passed, start + passed);
            member.tick(start + passed);
            for action in member.take_actions() {
                match action {
                    MemberAction::Look { number, neighbour } => {
                        assert_eq!(neighbour, Some(root));
                        let state = if second < 40 {
                            ThreadState::Stopped
                        } else {
                            ThreadState::Running
                        };
                        let seen = Whereabouts::silent(Some(state));
                        member.seen(number, Rank::ZERO, Some(seen));
                        looks.push(second);
                    }
                    MemberAction::Warn(text) => told.push(text),
                    _ => {}
                }
            }
        }
        assert_eq!(looks, [29, 59], "{what}");
        let seen: Vec<&str> = told
            .iter()
            .filter_map(|text| text.split_once('\n'))
            .map(|(_, seen)| seen)
            .collect();
        let stopped = "  rank 0: does not answer; its process is stopped";
        let runs = "  rank 0: does not answer; its process is running";
        assert_eq!(seen, [stopped, runs], "{what}: {told:?}");
    }
}

#[test]
fn waiting_ranks_poll_a_live_rank_0_without_warnings() {
    for (wait, what) in WAITS {
        let done = asks_and_warnings(wait, u64::MAX, 250);
        let expected: Vec<u64> = (1..=12).map(|ask| 1 + 20 * ask).collect();
        let times: Vec<u64> = done.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, expected, "{what}: {done:?}");
        assert!(done.iter().all(|(_, what)| what == "asks"), "{done:?}");
        // It stops later on.
        let done = asks_and_warnings(wait, 50, 100);
        let times: Vec<u64> = done.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [21, 41, 61, 71], "{what}: {done:?}");
    }
}

/// The error for all if rank 0 has made its next call and does not reach it, while the others read rank 0's payload of an
/// earlier one.
fn told_of_the_next_call(says: impl Fn(u32) -> Vec<ToCoordinator>) -> String {
    let (start, timeout) = (Instant::now(), Duration::from_secs(8));
    let (mut coordinator, _) = machines::formed(3, timeout, start);
    let contribute = |operation, epoch, leaves| {
        ToCoordinator::Call(CallRequest::Contribute {
            step: Step {
                channel: ChannelId::WORLD,
                epoch: Epoch::new(epoch),
                round: Round::VERDICT,
            },
            call: Call::new(operation, Site::default()),
            contribution: Contribution {
                leaves,
                ..Contribution::default()
            },
        })
    };
    for rank in 0..3 {
        let call = contribute(Operation::AllGather, 3, Leaves::WithOwner);
        coordinator.on_message(Rank::new(rank), call, start);
    }
    let done = ToCoordinator::Call(CallRequest::Done {
        channel: ChannelId::WORLD,
        epoch: Epoch::new(3),
    });
    coordinator.on_message(Rank::ZERO, done, start);
    let next = contribute(Operation::Gather, 4, Leaves::Nothing);
    coordinator.on_message(Rank::ZERO, next, start);
    for rank in 1..3 {
        let mut said = start + timeout / 2;
        for message in says(rank) {
            coordinator.on_message(Rank::new(rank), message, said);
            said += Duration::from_millis(1);
        }
    }
    loop {
        if let Some(failure) = coordinator.failure() {
            return failure.to_string();
        }
        coordinator.tick(coordinator.next_tick().unwrap());
    }
}

fn stalled(waits_for: Vec<Rank>) -> ToCoordinator {
    ToCoordinator::Call(CallRequest::Stalled {
        channel: ChannelId::WORLD,
        activity: reading(),
        wait: StallReport {
            waits_for,
            idle: Duration::from_secs(4),
            timeout: Duration::from_secs(8),
        },
    })
}

#[test]
fn timeout_error_names_what_missing_ranks_wait_for() {
    // Rank 2 waits for rank 1, and that for rank 0.
    let text = told_of_the_next_call(|rank| vec![stalled(vec![Rank::new(rank - 1)])]);
    assert!(
        text.contains("in gather #0: waiting for rank 1 on "),
        "{text}"
    );
    assert!(
        text.contains("rank 2 on ") && text.contains("rank 0 on "),
        "{text}"
    );

    // A rank with progress since, or that has read all, waits for no other.
    let moved = ToCoordinator::Call(CallRequest::Status {
        channel: ChannelId::WORLD,
        activity: reading(),
        bytes: 7,
    });
    let done = ToCoordinator::Call(CallRequest::Done {
        channel: ChannelId::WORLD,
        epoch: Epoch::new(3),
    });
    for later in [moved, done] {
        let text = told_of_the_next_call(|_| vec![stalled(vec![Rank::ZERO]), later.clone()]);
        assert!(
            text.contains("rank 2 on ") && !text.contains("rank 0 on "),
            "{text}"
        );
    }
}

#[test]
fn rank_0_hears_of_a_stall_before_the_next_call_times_out() {
    let (start, timeout) = (Instant::now(), Duration::from_secs(8));
    let (_, mut members) = machines::formed(2, timeout, start);
    let member = &mut members[1];
    let mut tells = |idle: Duration| {
        member.stalled(
            ChannelId::WORLD,
            reading(),
            &[Rank::ZERO],
            (idle, None),
            start + idle,
        );
        let actions = member.take_actions().into_iter();
        let mut told = actions.filter(|action| {
            matches!(
                action,
                MemberAction::Send(ToCoordinator::Call(CallRequest::Stalled { .. }))
            )
        });
        told.next().is_some()
    };
    assert!(!tells(Duration::from_millis(3999)));
    assert!(tells(Duration::from_secs(4)));
    assert!(!tells(Duration::from_secs(5)));
}

#[test]
fn stalled_transfer_is_announced_with_its_own_timeout() {
    let start = Instant::now();
    let (mut coordinator, mut members) = machines::formed(2, Duration::from_secs(1800), start);
    let (idle, own) = (Duration::from_secs(30), Duration::from_secs(50));
    let now = start + idle;
    let member = &mut members[1];
    let stalled = (idle, Some(own));
    member.stalled(ChannelId::WORLD, reading(), &[Rank::ZERO], stalled, now);
    for action in member.take_actions() {
        if let MemberAction::Send(message) = action {
            coordinator.on_message(Rank::new(1), message, now);
        }
    }
    let end = "no progress for 30 s; times out in 20 s unless something moves";
    let actions = coordinator.take_actions();
    let warned = actions
        .iter()
        .any(|action| matches!(action, Action::Warn(text) if text.contains(end)));
    assert!(warned, "{actions:?}");
}
