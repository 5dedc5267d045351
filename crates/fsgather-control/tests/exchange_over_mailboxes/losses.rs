//! Ranks that vanish, and messages that cannot be left.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use bytes::Bytes;
use fsgather_core::{
    Call, Contribution, Error, Operation, PeerFailure, ProcessId, Rank, Round, Site,
};
use fsgather_testkit::{MemoryMailbox, exchange_conformance::RankExchange, pace::cases};

use crate::bed::{Bed, Running, on_threads, start};

/// EROFS: an error that does not pass by itself.
const READ_ONLY: i32 = 30;

fn call() -> Call {
    Call::new(Operation::AllGather, Site::named("here"))
}

fn barrier(exchange: &RankExchange) -> Result<(), Error> {
    exchange.barrier(Site::named("here"))
}

/// Ends a process: everything that it holds ends with it, without a message.
fn die(bed: &Bed, process: &ProcessId, exchange: RankExchange) {
    bed.post.kill(process);
    mem::forget(exchange);
}

/// A survivor's view: true if the call in which a rank vanished succeeded, and the error that followed.
type Told = (bool, Error);

/// Kills a rank in its second call, which the others make: before it contributes, or after.
fn vanish(bed: &Bed, victim: u32, contributes: bool) -> Vec<Told> {
    let running: Vec<Running<Option<Told>>> = (0..bed.world_size.get())
        .map(|rank| {
            let bed_of_rank = bed.clone();
            bed.start(rank, move |exchange| {
                let (bed, exchange) = (bed_of_rank, exchange.unwrap());
                if let Err(error) = barrier(&exchange) {
                    // Rank 0 may vanish while its last verdict is not seen yet.
                    assert_eq!(victim, 0, "{error}");
                    return Some((false, error));
                }
                if rank == victim {
                    let ticket = exchange.begin(call()).unwrap();
                    if contributes {
                        let part = Contribution::inline(vec![7]);
                        exchange.contribute(&ticket, Round::VERDICT, part).unwrap();
                    }
                    die(&bed, &bed.process(rank), exchange);
                    return None;
                }
                Some(match exchange.exchange(call(), Bytes::from_static(&[7])) {
                    Ok(_) => (true, barrier(&exchange).unwrap_err()),
                    Err(error) => (false, error),
                })
            })
        })
        .collect();
    running.into_iter().filter_map(Running::result).collect()
}

fn lost(error: &Error) -> (Rank, &PeerFailure) {
    let Error::PeerFailed { peer, failure, .. } = error else {
        panic!("{error}");
    };
    (peer.rank, failure)
}

#[test]
fn a_member_that_vanishes_is_named_alike_by_all() {
    on_threads(cases(22, 21)..=cases(22, 26), |seed| {
        let by_host = if seed % 2 == 0 { 4 } else { 2 };
        let bed = Bed {
            by_host,
            ..Bed::new(MemoryMailbox::with_faults(seed), 4)
        };
        let told = vanish(&bed, 3, seed % 4 < 2);
        assert_eq!(told.len(), 3);
        for one in &told {
            assert_eq!(one, &told[0], "seed {seed}");
            let (rank, failure) = lost(&one.1);
            assert_eq!(rank, Rank::new(3));
            assert!(matches!(failure, PeerFailure::Lost { .. }), "{failure:?}");
        }
    });
}

#[test]
fn a_rank_0_that_vanishes_is_named_by_all() {
    on_threads(31..=31 + cases(1, 5), |seed| {
        let by_host = if seed % 2 == 0 { 4 } else { 2 };
        let bed = Bed {
            by_host,
            ..Bed::new(MemoryMailbox::with_faults(seed), 4)
        };
        let told = vanish(&bed, 0, seed % 4 < 2);
        assert_eq!(told.len(), 3);
        for (_, error) in &told {
            let (rank, failure) = lost(error);
            assert_eq!(rank, Rank::ZERO, "seed {seed}");
            assert!(
                matches!(
                    failure,
                    PeerFailure::Lost { .. } | PeerFailure::OutcomeUnknown { .. }
                ),
                "seed {seed}: {failure:?}"
            );
        }
    });
}

#[test]
fn ranks_that_vanish_one_by_one_do_not_block_the_rest() {
    let bed = Bed::new(MemoryMailbox::with_faults(41), 4);
    let running: Vec<_> = (0..4)
        .map(|rank| {
            let its = bed.clone();
            bed.start(rank, move |exchange| {
                let exchange = exchange.unwrap();
                barrier(&exchange).unwrap();
                if rank >= 2 {
                    die(&its, &its.process(rank), exchange);
                    return None;
                }
                Some(barrier(&exchange).unwrap_err())
            })
        })
        .collect();
    let told: Vec<Error> = running.into_iter().filter_map(Running::result).collect();
    assert_eq!(told[0], told[1]);
    assert!(lost(&told[0]).0 >= Rank::new(2));
}

#[test]
fn all_learn_why_a_rank_could_not_leave_a_message() {
    for failing in [0, 1] {
        let bed = Bed::new(MemoryMailbox::new(), 3);
        let world = bed.world();
        bed.post.refuse_sends(&bed.process(failing), READ_ONLY, 1);
        let told: Vec<Error> = thread::scope(|scope| {
            let ranks: Vec<_> = world
                .into_iter()
                .map(|exchange| {
                    scope.spawn(move || {
                        // A call that was decided before remains valid.
                        let mut outcomes = (0..3).map(|_| barrier(&exchange));
                        outcomes.find_map(Result::err).unwrap()
                    })
                })
                .collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        for error in &told {
            let Error::Storage { cause, .. } = error else {
                panic!("{error}");
            };
            assert_eq!(cause.os_code, Some(READ_ONLY));
            assert_eq!(error, &told[0], "rank {failing} failed");
        }
    }
}

#[test]
fn all_ranks_learn_of_a_panic_of_a_poller() {
    for failing in [0, 1] {
        let bed = Bed::new(MemoryMailbox::new(), 3);
        let will_panic = Arc::new(AtomicBool::new(false));
        let running: Vec<_> = (0..3)
            .map(|rank| {
                let mut config = bed.config(rank, bed.process(rank));
                if rank == failing {
                    let (looks, panics) = (config.is_running, Arc::clone(&will_panic));
                    config.is_running = Arc::new(move |process| {
                        assert!(!panics.swap(false, Ordering::SeqCst), "on purpose");
                        looks(process)
                    });
                }
                let will_panic = Arc::clone(&will_panic);
                start(config, move |joined| {
                    let exchange = joined.unwrap();
                    barrier(&exchange).unwrap();
                    will_panic.fetch_or(rank == failing, Ordering::SeqCst);
                    let failure = loop {
                        if let Err(failure) = barrier(&exchange) {
                            break failure;
                        }
                    };
                    exchange.leave(None);
                    failure
                })
            })
            .collect();
        for failure in running.into_iter().map(Running::result) {
            let text = failure.to_string();
            let reason = format!("its thread fsgather-{failing} has panicked: on purpose");
            assert!(text.contains(&reason), "{text}");
        }
    }
}

#[test]
fn the_last_message_is_left_although_it_fails_for_a_moment() {
    let bed = Bed::new(MemoryMailbox::new(), 2);
    thread::scope(|scope| {
        for exchange in bed.world() {
            let (post, process) = (&bed.post, bed.process(1));
            scope.spawn(move || {
                barrier(&exchange).unwrap();
                if exchange.rank() == Rank::ZERO {
                    // Later messages of rank 1 fail: that it closes, and that it has read the goodbye.
                    post.refuse_sends(&process, 28, 1);
                    barrier(&exchange).unwrap();
                    post.refuse_sends(&process, 28, 3);
                } else {
                    barrier(&exchange).unwrap();
                }
                exchange.close(Site::named("end")).unwrap();
            });
        }
    });
    assert_eq!(bed.post.places(), 0);
}
