//! Of whom the user is warned while payloads go from rank to rank and nothing moves: on the bare machines, in
//! virtual time.

#![expect(clippy::unwrap_used, reason = "a check reports by panicking")]

mod machines;

use std::time::{Duration, Instant};

use fsgather_control::{coordinator::Action, member::MemberAction};
use fsgather_core::{Activity, ChannelId, Epoch, Operation, Phase, Rank};
use proptest::prelude::*;

/// A ring in which some ranks are stopped, for so many seconds; each warning with its second.
fn warnings(ranks: u32, stopped: &[u32], seconds: u64) -> Vec<(u64, String)> {
    let start = Instant::now();
    let (mut coordinator, mut members) = machines::formed(ranks, Duration::from_mins(30), start);
    let doing = Activity::within(Phase::Reading, Operation::AllGather, Epoch::new(3));
    let mut warnings = Vec::new();
    for second in 0..=seconds {
        let idle = Duration::from_secs(second);
        let now = start + idle;
        for (rank, member) in (0..).zip(&mut members) {
            if stopped.contains(&rank) {
                continue;
            }
            let left = Rank::new((rank + ranks - 1) % ranks);
            member.stalled(ChannelId::WORLD, doing, &[left], idle, now);
            for action in member.take_actions() {
                if let MemberAction::Send(message) = action {
                    coordinator.hear(Rank::new(rank), message, now);
                }
            }
        }
        for action in coordinator.take_actions() {
            match action {
                Action::Warn(text) => warnings.push((second, text)),
                Action::Send { to, message } => {
                    for rank in to.iter().filter(|rank| !stopped.contains(&rank.get())) {
                        members[rank.index()].hear(message.clone(), now);
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
