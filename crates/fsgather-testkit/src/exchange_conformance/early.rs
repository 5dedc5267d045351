//! Calls whose root hears of contributions before the verdict, and calls with a deadline.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use fsgather_core::{Arrival, Call, Epoch, Operation, Rank, Round, Ticket, Verdict};

use super::{
    Check, MakeWorld, RankExchange, body, on_all,
    pending::{payload, record_reclaims, start, until},
    site,
};
use crate::pace::patience;

/// On worlds of any size.
pub(super) const ALONE: &[Check] = &[the_root_hears_of_each_rank_and_then_the_verdict];

/// On worlds of several ranks.
pub(super) const TOGETHER: &[Check] = &[a_late_rank_hears_what_the_others_have_and_goes_on];

/// All that the root of an early call hears, and the verdict.
fn hear(exchange: &RankExchange, ticket: &Ticket) -> (Vec<(Rank, Bytes)>, Verdict) {
    let mut parts = Vec::new();
    loop {
        parts.extend(std::iter::from_fn(|| exchange.part_that_is_in(ticket)));
        match exchange.next_arrival(ticket).unwrap() {
            Arrival::Part { from, body } => parts.push((from, body)),
            Arrival::Decided(verdict) => {
                parts.sort();
                return (parts, verdict);
            }
        }
    }
}

fn bodies(ranks: impl IntoIterator<Item = Rank>) -> Vec<(Rank, Bytes)> {
    ranks.into_iter().map(|rank| (rank, body(rank))).collect()
}

fn the_root_hears_of_each_rank_and_then_the_verdict(make: &MakeWorld<'_>, ranks: u32) {
    let root = Rank::new(ranks - 1);
    let reclaimed: Arc<Mutex<Vec<(Epoch, Rank)>>> = Arc::default();
    let has_heard = AtomicU32::new(0);
    on_all(make(ranks, patience()), |exchange| {
        record_reclaims(&exchange, &reclaimed);
        let own = exchange.rank();
        let call = Call::new(Operation::GatherAsCompleted, site("here")).with_root(root);
        if own == root {
            let ticket = start(&exchange, call, payload(own));
            // The others come one after the other, each when the root has heard of the one before.
            let first = exchange.next_arrival(&ticket).unwrap();
            let expected = Arrival::Part {
                from: own,
                body: body(own),
            };
            assert_eq!(first, expected);
            assert_eq!(exchange.part_that_is_in(&ticket), None);
            has_heard.store(1, Ordering::SeqCst);
            for rank in 0..ranks - 1 {
                let next = exchange.next_arrival(&ticket).unwrap();
                let from = Rank::new(rank);
                let body = body(from);
                assert_eq!(next, Arrival::Part { from, body });
                has_heard.fetch_add(1, Ordering::SeqCst);
            }
            let (more, verdict) = hear(&exchange, &ticket);
            assert_eq!((more, verdict.missing), (Vec::new(), Vec::new()));
            assert!(verdict.table.unwrap().acknowledge);
            exchange.done(&ticket);
        } else {
            until(|| has_heard.load(Ordering::SeqCst) > own.get());
            let ticket = start(&exchange, call, payload(own));
            assert_eq!(exchange.wait(&ticket, Round::VERDICT).unwrap().table, None);
        }
        exchange.close(site("end")).unwrap();
    });
    let mut owners: Vec<Rank> = reclaimed
        .lock()
        .unwrap()
        .iter()
        .map(|(_, of)| *of)
        .collect();
    owners.sort();
    assert_eq!(owners, (0..ranks).map(Rank::new).collect::<Vec<_>>());
}

fn a_late_rank_hears_what_the_others_have_and_goes_on(make: &MakeWorld<'_>, ranks: u32) {
    const DEADLINE: Duration = Duration::from_millis(30);
    // The one that decides is late itself.
    let (late, root) = (Rank::ZERO, Rank::new(ranks - 1));
    let decided = AtomicU32::new(0);
    let told = on_all(make(ranks, patience()), |exchange| {
        let own = exchange.rank();
        let gather = Call::new(Operation::Gather, site("here")).with_root(root);
        // Who comes in time is not for this test to say, but that one comes late.
        let mut missing = Vec::new();
        if own == late {
            until(|| decided.load(Ordering::SeqCst) > 0);
        }
        let ticket = start(&exchange, gather.with_deadline(DEADLINE), payload(own));
        if own == root {
            let (parts, verdict) = hear(&exchange, &ticket);
            missing.extend(verdict.missing.iter().map(|missing| missing.rank));
            let in_time = exchange.world_size().ranks();
            assert_eq!(
                parts,
                bodies(in_time.filter(|rank| !missing.contains(rank)))
            );
            decided.store(1, Ordering::SeqCst);
            exchange.done(&ticket);
        } else {
            let verdict = exchange.wait(&ticket, Round::VERDICT).unwrap();
            missing.extend(verdict.missing.iter().map(|missing| missing.rank));
        }
        exchange.barrier(site("all go on")).unwrap();
        exchange.close(site("end")).unwrap();
        missing
    });
    assert!(told[0].contains(&late), "{told:?}");
    assert!(told.iter().all(|missing| *missing == told[0]), "{told:?}");
}
