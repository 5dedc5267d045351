//! Groups: exchanges of some of the ranks, each on its own.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use bytes::Bytes;
use fsgather_core::{
    Call, ChannelId, Contribution, Epoch, Error, Operation, PeerFailure, Phase, Rank, Round,
};

use crate::pace::patience;

use super::{
    Check, MakeWorld, RankExchange, all_gather, body, missing_ranks, on_all,
    pending::{payload, record_reclaims, start, until},
    site, wait_for_failure, with_short_timeout,
};

/// Checks for worlds of any size.
pub(super) const ALONE: &[Check] = &[
    a_group_has_its_own_numbers_in_its_own_order,
    groups_may_be_made_of_groups,
    only_lists_of_different_members_are_groups,
    each_channel_fails_on_its_own,
    an_interrupted_world_takes_its_groups_along,
    channels_may_be_used_at_the_same_time,
    groups_end_with_their_world,
    groups_come_and_go,
    payloads_of_a_group_are_reclaimed,
];

/// Checks for worlds of several ranks.
pub(super) const SEVERAL_RANKS: &[Check] = &[
    closing_a_group_waits_until_all_has_been_read,
    who_drops_a_group_is_named_and_the_world_goes_on,
    a_rank_that_leaves_fails_only_its_groups,
    calls_of_a_group_are_compared,
    closing_a_group_while_others_call_is_told,
    a_late_member_of_a_group_is_named_by_its_rank_in_the_world,
];

/// Checks for worlds of at least three ranks.
pub(super) const OF_THREE: &[Check] = &[a_group_needs_neither_rank_0_nor_the_others];

/// Makes a group of these ranks of `exchange`; `use_number` is the number of earlier uses.
fn group(exchange: &RankExchange, members: &[u32], use_number: u64) -> RankExchange {
    try_group(exchange, members, use_number).unwrap()
}

fn try_group(
    exchange: &RankExchange,
    members: &[u32],
    use_number: u64,
) -> Result<RankExchange, Error> {
    let ranks: Vec<Rank> = members.iter().copied().map(Rank::new).collect();
    let peers = exchange.peers();
    let in_world = ranks
        .iter()
        .filter_map(|rank| Some(peers.get(rank.index())?.rank));
    let in_world: Vec<Rank> = in_world.collect();
    let channel = ChannelId::of_group(exchange.channel(), &in_world, use_number);
    exchange.group(channel, &ranks)
}

/// All ranks in order, and in reverse order.
fn everybody(ranks: u32) -> (Vec<u32>, Vec<u32>) {
    ((0..ranks).collect(), (0..ranks).rev().collect())
}

fn a_group_has_its_own_numbers_in_its_own_order(make: &MakeWorld<'_>, ranks: u32) {
    let (_, backwards) = everybody(ranks);
    on_all(make(ranks, patience()), |exchange| {
        let own = exchange.rank();
        let group = group(&exchange, &backwards, 0);
        assert_ne!(group.channel(), exchange.channel());
        assert_eq!(group.rank().get(), ranks - 1 - own.get());
        assert_eq!(group.world_size(), exchange.world_size());
        // Peers have the numbers that errors use.
        let mut peers = exchange.peers().to_vec();
        peers.reverse();
        assert_eq!(group.peers(), peers);
        let table = group.exchange(all_gather("here"), body(own)).unwrap();
        let expected: Vec<Bytes> = backwards.iter().copied().map(Rank::new).map(body).collect();
        assert_eq!(table.unwrap().bodies, expected);
        // Roots are numbers of the group.
        let call = Call::new(Operation::Gather, site("here")).with_root(Rank::ZERO);
        let table = group.exchange(call, body(own)).unwrap();
        assert_eq!(table.is_some(), own.get() == ranks - 1);
        // Each channel numbers its own calls.
        let ticket = exchange.begin(all_gather("first")).unwrap();
        assert_eq!(ticket.epoch, Epoch::FIRST);
        exchange
            .contribute(&ticket, Round::VERDICT, Contribution::default())
            .unwrap();
        exchange.wait(&ticket, Round::VERDICT).unwrap();
        group.close(site("end of the group")).unwrap();
        exchange.close(site("end")).unwrap();
    });
}

fn groups_may_be_made_of_groups(make: &MakeWorld<'_>, ranks: u32) {
    let (_, backwards) = everybody(ranks);
    on_all(make(ranks, patience()), |exchange| {
        let own = exchange.rank();
        let outer = group(&exchange, &backwards, 0);
        // The even or the odd numbers of the outer group, the last one first.
        let parity = outer.rank().get() % 2;
        let members: Vec<u32> = (0..ranks).filter(|r| r % 2 == parity).rev().collect();
        let inner = group(&outer, &members, 0);
        let table = inner.exchange(all_gather("here"), body(own)).unwrap();
        let expected: Vec<Bytes> = members
            .iter()
            .map(|member| body(Rank::new(ranks - 1 - member)))
            .collect();
        assert_eq!(table.unwrap().bodies, expected);
        // The outer group may be dropped before the inner one.
        outer.barrier(site("both")).unwrap();
        drop(outer);
        inner.barrier(site("inner")).unwrap();
        exchange.close(site("end")).unwrap();
    });
}

fn only_lists_of_different_members_are_groups(make: &MakeWorld<'_>, ranks: u32) {
    on_all(make(ranks, patience()), |exchange| {
        let own = exchange.rank().get();
        let others: Vec<u32> = (0..ranks).filter(|rank| *rank != own).collect();
        for list in [vec![], vec![own, own], vec![own, ranks], others] {
            let error = try_group(&exchange, &list, 0).map(drop).unwrap_err();
            assert!(matches!(error, Error::Config { .. }), "{list:?}: {error}");
        }
        let world = exchange
            .group(ChannelId::WORLD, &[exchange.rank()])
            .map(drop);
        assert!(matches!(world, Err(Error::Config { .. })));
        let alone = group(&exchange, &[own], 0);
        assert!(try_group(&exchange, &[own], 0).is_err(), "it is in use");
        alone.barrier(site("alone")).unwrap();
        let again = group(&exchange, &[own], 1);
        again.barrier(site("alone")).unwrap();
        exchange.barrier(site("nothing has failed")).unwrap();
        exchange.close(site("end")).unwrap();
    });
}

fn each_channel_fails_on_its_own(make: &MakeWorld<'_>, ranks: u32) {
    let (forwards, backwards) = everybody(ranks);
    let cause = Error::config("no room");
    let failing = Rank::new(ranks - 1);
    on_all(make(ranks, patience()), |exchange| {
        let fails = |exchange: &RankExchange, me: Rank| {
            let error = if me == failing {
                let ticket = exchange.begin(all_gather("here")).unwrap();
                exchange.fail(&ticket, Phase::Publishing, cause.clone())
            } else {
                exchange.barrier(site("here")).unwrap_err()
            };
            assert_eq!(error, cause);
            assert_eq!(
                exchange.barrier(site("after")).unwrap_err(),
                cause.poisoned(),
                "told once on each channel"
            );
        };
        let me = exchange.rank();
        let one = group(&exchange, &forwards, 0);
        let other = group(&exchange, &backwards, 10);
        fails(&one, me);
        other.barrier(site("another group")).unwrap();
        exchange.barrier(site("the world")).unwrap();
        fails(&exchange, me);
        other.barrier(site("a group of a failed world")).unwrap();
        // Survivors of a failure may start again.
        let new = group(&exchange, &forwards, 1);
        new.barrier(site("a new group")).unwrap();
        assert!(new.close(site("end")).is_ok());
        assert!(other.close(site("end")).is_ok());
        assert!(one.close(site("end")).is_err());
        assert!(exchange.close(site("end")).is_err());
    });
}

fn an_interrupted_world_takes_its_groups_along(make: &MakeWorld<'_>, ranks: u32) {
    let (forwards, _) = everybody(ranks);
    let (one, all) = (Error::config("this one"), Error::config("everything"));
    let interrupting = Rank::new(ranks - 1);
    on_all(make(ranks, patience()), |exchange| {
        let group_1 = group(&exchange, &forwards, 0);
        let group_2 = group(&exchange, &forwards, 1);
        let me = exchange.rank();
        if me == interrupting {
            group_1.interrupt(one.clone());
        }
        assert_eq!(group_1.barrier(site("here")).unwrap_err(), one);
        group_2.barrier(site("not this one")).unwrap();
        exchange.barrier(site("and not the world")).unwrap();
        if me == interrupting {
            exchange.interrupt(all.clone());
        }
        assert_eq!(exchange.barrier(site("here")).unwrap_err(), all);
        assert_eq!(group_2.barrier(site("here")).unwrap_err(), all);
        // Groups that are made later fail as well, since more could always be made.
        let group_3 = group(&exchange, &forwards, 2);
        assert_eq!(group_3.barrier(site("here")).unwrap_err(), all);
    });
}

fn channels_may_be_used_at_the_same_time(make: &MakeWorld<'_>, ranks: u32) {
    let (forwards, backwards) = everybody(ranks);
    on_all(make(ranks, patience()), |exchange| {
        let me = exchange.rank();
        let one = group(&exchange, &forwards, 0);
        let other = group(&exchange, &backwards, 10);
        let exchange = Arc::new(exchange);
        let call = |exchange: &RankExchange, calls: u8| {
            for number in 0..calls {
                let part = Bytes::from(vec![number]);
                let table = exchange
                    .exchange(all_gather("here"), part)
                    .unwrap()
                    .unwrap();
                assert!(table.bodies.iter().all(|body| body.as_ref() == [number]));
            }
        };
        // Each rank starts its threads in a different order.
        let mut exchanges: Vec<(&RankExchange, u8)> =
            vec![(&one, 10), (&other, 15), (&exchange, 5)];
        exchanges.rotate_left(me.index() % 3);
        thread::scope(|scope| {
            for (exchange, calls) in exchanges {
                let call = &call;
                scope.spawn(move || call(exchange, calls));
            }
        });
        one.close(site("end of one")).unwrap();
        other.close(site("end of the other")).unwrap();
        exchange.close(site("end")).unwrap();
    });
}

fn who_drops_a_group_is_named_and_the_world_goes_on(make: &MakeWorld<'_>, ranks: u32) {
    let (_, backwards) = everybody(ranks);
    let leaver = Rank::ZERO;
    on_all(make(ranks, patience()), |exchange| {
        let group = group(&exchange, &backwards, 0);
        // It has contributed to this call, and leaves without waiting for it.
        let ticket = start(&group, all_gather("decided"), Contribution::default());
        if exchange.rank() == leaver {
            drop(group);
        } else {
            let verdict = group.wait(&ticket, Round::VERDICT).unwrap();
            assert_eq!(verdict.table.unwrap().bodies.len(), ranks as usize);
            let error = group.barrier(site("here")).unwrap_err();
            let Error::PeerFailed { peer, failure, .. } = &error else {
                panic!("{error}");
            };
            assert!(peer.rank == leaver && failure.is_departure(), "{failure}");
            assert_eq!(group.barrier(site("after")).unwrap_err(), error.poisoned());
        }
        exchange.barrier(site("the world")).unwrap();
        exchange.close(site("end")).unwrap();
    });
}

fn a_rank_that_leaves_fails_only_its_groups(make: &MakeWorld<'_>, ranks: u32) {
    let leaver = ranks - 1;
    let cause = Error::config("it has to go");
    on_all(make(ranks, patience()), |exchange| {
        let with: Vec<u32> = (0..ranks).rev().collect();
        let without: Vec<u32> = (0..leaver).rev().collect();
        let with = group(&exchange, &with, 0);
        if exchange.rank().get() == leaver {
            exchange.leave(Some(cause.clone()));
            assert!(with.barrier(site("here")).is_err(), "its world is gone");
            return;
        }
        let without = group(&exchange, &without, 0);
        for exchange in [&with, &exchange] {
            let error = exchange.barrier(site("here")).unwrap_err();
            let Error::PeerFailed { peer, failure, .. } = &error else {
                panic!("{error}");
            };
            assert_eq!(peer.rank.get(), leaver);
            assert!(matches!(failure, PeerFailure::Raised { .. }), "{failure}");
        }
        without.barrier(site("those who are left")).unwrap();
        without.close(site("end of the group")).unwrap();
    });
}

fn a_group_needs_neither_rank_0_nor_the_others(make: &MakeWorld<'_>, ranks: u32) {
    let finished = AtomicU32::new(0);
    on_all(make(ranks, patience()), |exchange| {
        let me = exchange.rank();
        if me == Rank::ZERO {
            // It computes, and still serves them.
            until(|| finished.load(Ordering::SeqCst) == ranks - 1);
        } else {
            let members: Vec<u32> = (1..ranks).collect();
            let group = group(&exchange, &members, 0);
            assert_eq!(group.rank().get(), me.get() - 1);
            let table = group.exchange(all_gather("here"), body(me)).unwrap();
            let expected: Vec<Bytes> = (1..ranks).map(Rank::new).map(body).collect();
            assert_eq!(table.unwrap().bodies, expected);
            group.close(site("end of the group")).unwrap();
            finished.fetch_add(1, Ordering::SeqCst);
        }
        exchange.close(site("end")).unwrap();
    });
}

fn calls_of_a_group_are_compared(make: &MakeWorld<'_>, ranks: u32) {
    let (_, backwards) = everybody(ranks);
    let errors = on_all(make(ranks, patience()), |exchange| {
        let group = group(&exchange, &backwards, 0);
        let error = if exchange.rank() == Rank::ZERO {
            group.barrier(site("eval.rs:7:1")).unwrap_err()
        } else {
            let call = all_gather("train.rs:9:2");
            group.exchange(call, Bytes::new()).unwrap_err()
        };
        exchange.barrier(site("the world goes on")).unwrap();
        error
    });
    for error in &errors {
        assert_eq!(error, &errors[0]);
        let text = error.to_string();
        assert!(matches!(error, Error::Desync { .. }), "{text}");
        assert!(
            text.contains("barrier at eval.rs:7:1 in the group"),
            "{text}"
        );
        assert!(
            text.contains("all_gather at train.rs:9:2 in the group"),
            "{text}"
        );
    }
}

fn closing_a_group_while_others_call_is_told(make: &MakeWorld<'_>, ranks: u32) {
    let (forwards, _) = everybody(ranks);
    on_all(make(ranks, patience()), |exchange| {
        let group = group(&exchange, &forwards, 0);
        let error = if exchange.rank() == Rank::ZERO {
            group.close(site("end.rs:1:1")).unwrap_err()
        } else {
            group.barrier(site("loop.rs:2:2")).unwrap_err()
        };
        let text = error.to_string();
        assert!(matches!(error, Error::Desync { .. }), "{text}");
        assert!(text.contains("close at end.rs:1:1"), "{text}");
        assert!(text.contains("barrier at loop.rs:2:2"), "{text}");
        exchange.close(site("end")).unwrap();
    });
}

fn a_late_member_of_a_group_is_named_by_its_rank_in_the_world(make: &MakeWorld<'_>, ranks: u32) {
    // The first rank of the group.
    let late = Rank::new(ranks - 1);
    let (_, backwards) = everybody(ranks);
    with_short_timeout(late, |timeout| {
        let others_know = AtomicU32::new(0);
        let missing = on_all(make(ranks, timeout), |exchange| {
            let group = group(&exchange, &backwards, 0);
            if exchange.rank() == late {
                let error = wait_for_failure(&group).expect_err("the time-out came");
                until(|| others_know.load(Ordering::SeqCst) == ranks - 1);
                return missing_ranks(&error);
            }
            let error = group.barrier(site("here")).unwrap_err();
            let Error::Timeout { during, .. } = &error else {
                panic!("{error}");
            };
            assert!(during.starts_with("barrier #1 in the group of"), "{during}");
            others_know.fetch_add(1, Ordering::SeqCst);
            missing_ranks(&error)
        });
        assert_eq!(missing, vec![missing[0].clone(); ranks as usize]);
        missing.into_iter().next().unwrap()
    });
}

fn closing_a_group_waits_until_all_has_been_read(make: &MakeWorld<'_>, ranks: u32) {
    let (_, backwards) = everybody(ranks);
    let read = AtomicU32::new(0);
    on_all(make(ranks, patience()), |exchange| {
        let group = group(&exchange, &backwards, 0);
        let ticket = start(&group, all_gather("here"), payload(exchange.rank()));
        group.wait(&ticket, Round::VERDICT).unwrap();
        thread::scope(|scope| {
            let reading = scope.spawn(|| {
                // Long after all ranks have called `close`.
                exchange.barrier(site("all close")).unwrap();
                exchange.barrier(site("all have come")).unwrap();
                read.fetch_add(1, Ordering::SeqCst);
                group.done(&ticket);
            });
            group.close(site("end of the group")).unwrap();
            assert_eq!(
                read.load(Ordering::SeqCst),
                ranks,
                "rank {}",
                exchange.rank()
            );
            reading.join().unwrap();
        });
        assert!(group.barrier(site("after")).is_err(), "it is closed");
        assert!(group.close(site("again")).is_err(), "it is closed");
        exchange.barrier(site("the world")).unwrap();
        exchange.close(site("end")).unwrap();
    });
}

fn groups_end_with_their_world(make: &MakeWorld<'_>, ranks: u32) {
    let (forwards, _) = everybody(ranks);
    on_all(make(ranks, patience()), |exchange| {
        let group = group(&exchange, &forwards, 0);
        group.barrier(site("here")).unwrap();
        exchange.close(site("end")).unwrap();
        let error = group.barrier(site("after")).unwrap_err();
        assert!(error.to_string().contains("closed"), "{error}");
        assert!(try_group(&group, &forwards, 0).is_err());
        assert!(try_group(&exchange, &forwards, 1).is_err());
    });
    on_all(make(ranks, patience()), |exchange| {
        let group = group(&exchange, &forwards, 0);
        group.barrier(site("here")).unwrap();
        drop(exchange);
        let error = group.barrier(site("after")).unwrap_err();
        assert!(error.to_string().contains("closed"), "{error}");
    });
}

fn groups_come_and_go(make: &MakeWorld<'_>, ranks: u32) {
    let (forwards, backwards) = everybody(ranks);
    on_all(make(ranks, patience()), |exchange| {
        for use_number in 0..20 {
            let one = group(&exchange, &forwards, use_number);
            let other = group(&exchange, &backwards, use_number + 100);
            one.barrier(site("one")).unwrap();
            if use_number % 3 == 0 {
                other.close(site("the other")).unwrap();
            }
        }
        exchange.close(site("end")).unwrap();
    });
}

fn payloads_of_a_group_are_reclaimed(make: &MakeWorld<'_>, ranks: u32) {
    let (_, backwards) = everybody(ranks);
    let reclaimed = Arc::default();
    // Reclaims of each channel, for the rank that leaves before it has read.
    let hasty = Rank::new(ranks / 2);
    on_all(make(ranks, patience()), |exchange| {
        record_reclaims(&exchange, &reclaimed);
        exchange.barrier(site("sinks are set")).unwrap();
        let group = group(&exchange, &backwards, 0);
        let ticket = start(&group, all_gather("here"), payload(exchange.rank()));
        group.wait(&ticket, Round::VERDICT).unwrap();
        if exchange.rank() != hasty {
            group.done(&ticket);
        }
        drop(group);
        exchange.close(site("end")).unwrap();
    });
    let mut owners: BTreeMap<Rank, usize> = BTreeMap::new();
    let reclaimed: Vec<(Epoch, Rank)> = std::mem::take(&mut *Mutex::lock(&reclaimed).unwrap());
    for (epoch, owner) in reclaimed {
        assert_eq!(epoch, Epoch::FIRST);
        *owners.entry(owner).or_default() += 1;
    }
    let expected = (0..ranks).map(|rank| (Rank::new(rank), 1)).collect();
    assert_eq!(owners, expected);
}
