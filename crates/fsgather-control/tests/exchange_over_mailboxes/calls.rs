//! Tests what every world must do, a long mixture of calls, and that nothing piles up.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use bytes::Bytes;
use fsgather_core::{Call, Operation, Rank, Site};
use fsgather_testkit::{
    MemoryMailbox,
    exchange_conformance::{self, RankExchange},
    pace::cases,
};

use crate::bed::{Bed, on_threads};

fn conform(post: impl Fn() -> std::sync::Arc<MemoryMailbox> + Sync, ranks: u32) {
    let make = |ranks: u32, timeout: Duration| {
        let bed = Bed {
            timeout,
            ..Bed::new(post(), ranks)
        };
        bed.world()
    };
    exchange_conformance::run(&make, ranks);
}

#[test]
fn a_post_that_shows_everything_at_once_conforms() {
    conform(MemoryMailbox::new, 3);
}

#[test]
fn a_post_with_faults_conforms() {
    on_threads(1..=cases(1, 2), |seed| {
        conform(|| MemoryMailbox::with_faults(seed), 3);
    });
}

/// What a rank hands in: all ranks can tell.
#[test]
fn the_more_ranks_the_less_each_may_contribute() {
    let limit = |ranks| Bed::new(MemoryMailbox::new(), ranks).world()[0].body_limit();
    let (of_two, of_four) = (limit(2), limit(4));
    assert!(of_four > 0);
    assert_eq!(of_two / 2, of_four);
}

fn body(rank: Rank, call: u32) -> Bytes {
    let len = (rank.get() * 7919 + call * 104_729) % 3000;
    let mut body = format!("{rank} in {call}:").into_bytes();
    body.resize(body.len() + len as usize, b'.');
    body.into()
}

/// Makes one of several kinds of calls, and compares what comes of it.
fn make_call(exchange: &RankExchange, call: u32, releases: &AtomicUsize) {
    let site = Site::named("here");
    let ranks = || exchange.world_size().ranks();
    let everything: Vec<Bytes> = ranks().map(|rank| body(rank, call)).collect();
    match call % 3 {
        0 => exchange.barrier(site).unwrap(),
        1 => {
            let table = exchange.exchange(
                Call::new(Operation::AllGather, site),
                body(exchange.rank(), call),
            );
            assert_eq!(table.unwrap().unwrap().bodies, everything, "call {call}");
        }
        _ => {
            let root = Rank::new(call % exchange.world_size().get());
            let table = exchange
                .exchange(
                    Call::new(Operation::Gather, site).with_root(root),
                    body(exchange.rank(), call),
                )
                .unwrap();
            let expected = (exchange.rank() == root).then_some(everything);
            assert_eq!(table.map(|table| table.bodies), expected, "call {call}");
        }
    }
    releases.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn hundreds_of_calls_under_faults_deliver_what_was_contributed() {
    let calls: u32 = cases(40, 200);
    let stress = |seed| {
        let bed = Bed {
            by_host: 2,
            ..Bed::new(MemoryMailbox::with_faults(seed), 4)
        };
        let releases = AtomicUsize::new(0);
        thread::scope(|scope| {
            for exchange in bed.world() {
                let releases = &releases;
                scope.spawn(move || {
                    for call in 0..calls {
                        make_call(&exchange, call, releases);
                    }
                    exchange.close(Site::named("end")).unwrap();
                });
            }
        });
        assert_eq!(releases.into_inner(), 4 * calls as usize, "seed {seed}");
        assert_eq!(bed.post.places(), 0, "seed {seed}: nothing is left");
    };
    on_threads(11..=cases(11, 14), stress);
}

#[test]
fn messages_are_taken_back_however_long_the_job_runs() {
    // Each side mentions what it has read after 32 messages at the latest.
    const BOUND_FOR_EACH_RANK: usize = 80;
    let bed = Bed::new(MemoryMailbox::new(), 3);
    thread::scope(|scope| {
        for exchange in bed.world() {
            let post = &bed.post;
            scope.spawn(move || {
                for turn in 0..cases(300, 2000) {
                    exchange.barrier(Site::named("here")).unwrap();
                    let held = post.held();
                    assert!(held < 3 * BOUND_FOR_EACH_RANK, "{held} after {turn}");
                }
                exchange.close(Site::named("end")).unwrap();
            });
        }
    });
    assert_eq!(bed.post.places(), 0);
}
