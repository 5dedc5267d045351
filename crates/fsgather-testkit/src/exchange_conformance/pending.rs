//! Calls that are pending at the same time, and abandoned calls.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fsgather_core::{
    Call, Contribution, Epoch, Error, Leaves, Operation, PeerFailure, Phase, Rank, Round, Ticket,
};

use crate::pace::{patience, rest};

use super::{
    Check, MakeWorld, RankExchange, all_gather, body, missing_ranks, on_all, site,
    with_short_timeout,
};

/// Checks for worlds of any size.
pub(super) const ALONE: &[Check] = &[
    several_calls_may_be_pending,
    several_threads_may_wait_at_once,
    whoever_only_looks_gets_the_verdict,
    an_abandoned_call_counts_for_the_others,
    an_abandoned_call_goes_on_in_further_rounds,
    a_failure_of_an_abandoned_call_is_kept,
    a_failure_ends_all_pending_calls,
    a_payload_for_one_reader_is_reclaimed_by_its_owner,
];

/// Checks for worlds of several ranks.
pub(super) const SEVERAL_RANKS: &[Check] = &[
    a_limit_that_passes_changes_nothing,
    abandoning_what_others_still_need_fails_the_call,
    pending_calls_in_another_order_are_told,
    a_late_rank_fails_only_what_it_is_late_for,
];

/// Waits for a condition that is certain to become true.
pub(super) fn until(mut it_is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience();
    while !it_is_so() {
        assert!(Instant::now() < deadline, "it does not come");
        rest();
    }
}

/// Starts a call and contributes to it.
pub(super) fn start(exchange: &RankExchange, call: Call, part: Contribution) -> Ticket {
    let ticket = exchange.begin(call).unwrap();
    exchange.contribute(&ticket, Round::VERDICT, part).unwrap();
    ticket
}

fn several_calls_may_be_pending(make: &MakeWorld<'_>, ranks: u32) {
    on_all(make(ranks, patience()), |exchange| {
        let tickets: Vec<_> = (0_u8..6)
            .map(|number| {
                let part = Contribution::inline(vec![number]);
                (start(&exchange, all_gather("here"), part), number)
            })
            .collect();
        // In a mixed order.
        let mut order: Vec<_> = tickets.iter().collect();
        order.sort_by_key(|(_, number)| number.wrapping_add(1) * 5 % 7);
        for (ticket, number) in order {
            let table = exchange
                .wait(ticket, Round::VERDICT)
                .unwrap()
                .table
                .unwrap();
            assert!(table.bodies.iter().all(|body| body.as_ref() == [*number]));
        }
        exchange.close(site("end")).unwrap();
    });
}

fn several_threads_may_wait_at_once(make: &MakeWorld<'_>, ranks: u32) {
    on_all(make(ranks, patience()), |exchange| {
        for _ in 0..3 {
            let tickets: Vec<_> = (0_u8..4)
                .map(|number| {
                    let part = Contribution::inline(vec![number]);
                    (start(&exchange, all_gather("here"), part), number)
                })
                .collect();
            thread::scope(|scope| {
                for (ticket, number) in &tickets {
                    let exchange = &exchange;
                    scope.spawn(move || {
                        let table = exchange
                            .wait(ticket, Round::VERDICT)
                            .unwrap()
                            .table
                            .unwrap();
                        assert!(table.bodies.iter().all(|body| body.as_ref() == [*number]));
                    });
                }
            });
        }
        exchange.close(site("end")).unwrap();
    });
}

fn whoever_only_looks_gets_the_verdict(make: &MakeWorld<'_>, ranks: u32) {
    on_all(make(ranks, patience()), |exchange| {
        for _ in 0..5 {
            let ticket = start(&exchange, all_gather("here"), Contribution::default());
            let look = || exchange.wait_for(&ticket, Round::VERDICT, Some(Duration::ZERO));
            until(|| look().unwrap().is_some());
        }
        exchange.close(site("end")).unwrap();
    });
}

fn a_limit_that_passes_changes_nothing(make: &MakeWorld<'_>, ranks: u32) {
    const LIMIT: Duration = Duration::from_millis(30);
    let late = Rank::new(ranks - 1);
    let looked = AtomicU32::new(0);
    on_all(make(ranks, patience()), |exchange| {
        let call = all_gather("here");
        let ticket = if exchange.rank() == late {
            until(|| looked.load(Ordering::SeqCst) == ranks - 1);
            start(&exchange, call, Contribution::default())
        } else {
            let ticket = start(&exchange, call, Contribution::default());
            let look = |limit| {
                exchange
                    .wait_for(&ticket, Round::VERDICT, Some(limit))
                    .unwrap()
            };
            assert_eq!(look(Duration::ZERO), None);
            assert_eq!(look(LIMIT), None);
            looked.fetch_add(1, Ordering::SeqCst);
            ticket
        };
        let table = exchange
            .wait(&ticket, Round::VERDICT)
            .unwrap()
            .table
            .unwrap();
        assert_eq!(table.bodies.len(), ranks as usize);
        exchange.close(site("end")).unwrap();
    });
}

/// Records all reclaims from here on: epoch and owner.
pub(super) fn record_reclaims(exchange: &RankExchange, reclaimed: &Arc<Mutex<Vec<(Epoch, Rank)>>>) {
    let reclaimed = Arc::clone(reclaimed);
    exchange.set_reclaim_sink(Arc::new(move |_, epoch, owner| {
        reclaimed.lock().unwrap().push((epoch, owner));
    }));
}

pub(super) fn payload(rank: Rank) -> Contribution {
    Contribution {
        body: body(rank),
        leaves: Leaves::ForOwner,
        further_rounds: 0,
    }
}

fn an_abandoned_call_counts_for_the_others(make: &MakeWorld<'_>, ranks: u32) {
    let careless = Rank::new(ranks - 1);
    let reclaimed = Arc::default();
    on_all(make(ranks, patience()), |exchange| {
        record_reclaims(&exchange, &reclaimed);
        let own = exchange.rank();
        // One call is dropped before its verdict can be known, the other one afterwards.
        let early = start(&exchange, all_gather("early"), payload(own));
        if own == careless {
            exchange.abandon(&early);
        }
        let late = start(&exchange, all_gather("late"), payload(own));
        exchange.barrier(site("all are decided")).unwrap();
        if own == careless {
            exchange.abandon(&late);
            // Abandoning it once is enough.
            exchange.abandon(&late);
        } else {
            for ticket in [early, late] {
                let table = exchange
                    .wait(&ticket, Round::VERDICT)
                    .unwrap()
                    .table
                    .unwrap();
                let expected: Vec<Bytes> = exchange.world_size().ranks().map(body).collect();
                assert_eq!(table.bodies, expected);
                assert!(table.acknowledge);
                exchange.done(&ticket);
            }
        }
        exchange.barrier(site("later calls go on")).unwrap();
        exchange.close(site("end")).unwrap();
    });
    let mut reclaimed = std::mem::take(&mut *reclaimed.lock().unwrap());
    reclaimed.sort();
    let expected: Vec<(Epoch, Rank)> = (0..2)
        .flat_map(|epoch| (0..ranks).map(move |rank| (Epoch::new(epoch), Rank::new(rank))))
        .collect();
    assert_eq!(reclaimed, expected);
}

fn an_abandoned_call_goes_on_in_further_rounds(make: &MakeWorld<'_>, ranks: u32) {
    let careless = Rank::new(ranks - 1);
    on_all(make(ranks, patience()), |exchange| {
        let own = exchange.rank();
        let part = |further_rounds| Contribution {
            body: body(own),
            leaves: Leaves::Nothing,
            further_rounds,
        };
        if own == careless {
            // One is abandoned before its verdict, the other between two rounds.
            let first = start(&exchange, all_gather("here"), part(0));
            exchange.abandon(&first);
            let second = start(&exchange, all_gather("there"), part(0));
            exchange.wait(&second, Round::VERDICT).unwrap();
            exchange.abandon(&second);
        } else {
            for text in ["here", "there"] {
                let ticket = start(&exchange, all_gather(text), part(2));
                let verdict = exchange.wait(&ticket, Round::VERDICT).unwrap();
                assert_eq!(verdict.further_rounds, 2);
                for round in (1..=2).map(Round::new) {
                    exchange.contribute(&ticket, round, part(0)).unwrap();
                    let verdict = exchange.wait(&ticket, round).unwrap();
                    let bodies = verdict.table.unwrap().bodies;
                    assert_eq!(bodies.last().unwrap(), &Bytes::new());
                    assert_eq!(bodies[own.index()], body(own));
                }
            }
        }
        exchange.barrier(site("after")).unwrap();
        exchange.close(site("end")).unwrap();
    });
}

fn abandoning_what_others_still_need_fails_the_call(make: &MakeWorld<'_>, ranks: u32) {
    let careless = Rank::new(ranks - 1);
    on_all(make(ranks, patience()), |exchange| {
        let part = Contribution {
            further_rounds: 1,
            ..Contribution::default()
        };
        let error = if exchange.rank() == careless {
            let ticket = start(&exchange, all_gather("here"), part);
            exchange.abandon(&ticket);
            exchange.barrier(site("after")).unwrap_err()
        } else {
            // The failure may be noticed at any of these steps.
            let call = || {
                let ticket = exchange.begin(all_gather("here"))?;
                exchange.contribute(&ticket, Round::VERDICT, part.clone())?;
                exchange.wait(&ticket, Round::VERDICT)?;
                exchange.contribute(&ticket, Round::new(1), Contribution::default())?;
                exchange.wait(&ticket, Round::new(1))
            };
            call().unwrap_err()
        };
        let Error::PeerFailed { peer, failure, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(peer.rank, careless);
        assert!(matches!(failure, PeerFailure::Raised { .. }), "{failure}");
    });
}

fn a_failure_of_an_abandoned_call_is_kept(make: &MakeWorld<'_>, ranks: u32) {
    let failing = Rank::new(ranks - 1);
    let cause = Error::config("no room");
    let abandoned = AtomicU32::new(0);
    on_all(make(ranks, patience()), |exchange| {
        if exchange.rank() == failing {
            let ticket = exchange.begin(all_gather("here")).unwrap();
            until(|| abandoned.load(Ordering::SeqCst) == ranks - 1);
            let error = exchange.fail(&ticket, Phase::Publishing, cause.clone());
            assert_eq!(error, cause);
        } else {
            let ticket = start(&exchange, all_gather("here"), Contribution::default());
            exchange.abandon(&ticket);
            abandoned.fetch_add(1, Ordering::SeqCst);
            assert_eq!(exchange.barrier(site("next")).unwrap_err(), cause);
        }
        let again = exchange.barrier(site("and again")).unwrap_err();
        assert_eq!(again, cause.poisoned());
    });
}

fn a_failure_ends_all_pending_calls(make: &MakeWorld<'_>, ranks: u32) {
    let failing = Rank::new(ranks - 1);
    let cause = Error::config("no room");
    on_all(make(ranks, patience()), |exchange| {
        let nothing = Contribution::default;
        let decided = start(&exchange, all_gather("decided"), nothing());
        exchange.wait(&decided, Round::VERDICT).unwrap();
        if exchange.rank() == failing {
            let ticket = exchange.begin(all_gather("pending")).unwrap();
            assert_eq!(
                exchange.fail(&ticket, Phase::Publishing, cause.clone()),
                cause
            );
            return;
        }
        // Calls that are started after the failure fail at once.
        let tickets: Vec<_> = (0..3)
            .map_while(|_| {
                let ticket = exchange.begin(all_gather("pending")).ok()?;
                exchange
                    .contribute(&ticket, Round::VERDICT, nothing())
                    .ok()?;
                Some(ticket)
            })
            .collect();
        for ticket in tickets {
            let error = exchange.wait(&ticket, Round::VERDICT).unwrap_err();
            assert_eq!(error, cause);
        }
        assert_eq!(
            exchange.barrier(site("after")).unwrap_err().root_cause(),
            &cause
        );
    });
}

fn pending_calls_in_another_order_are_told(make: &MakeWorld<'_>, ranks: u32) {
    let errors = on_all(make(ranks, patience()), |exchange| {
        let mut calls = [
            all_gather("first.rs:1:1"),
            Call::new(Operation::Barrier, site("second.rs:2:2")),
        ];
        if exchange.rank().get() == ranks - 1 {
            calls.reverse();
        }
        let mut error = None;
        let tickets: Vec<_> = calls
            .into_iter()
            .filter_map(|call| {
                let handed_in = exchange.begin(call).and_then(|ticket| {
                    exchange.contribute(&ticket, Round::VERDICT, Contribution::default())?;
                    Ok(ticket)
                });
                handed_in.map_err(|failure| error = Some(failure)).ok()
            })
            .collect();
        for ticket in &tickets {
            error = Some(exchange.wait(ticket, Round::VERDICT).unwrap_err());
        }
        error.unwrap().root_cause().clone()
    });
    for error in &errors {
        let text = error.to_string();
        assert!(matches!(error, Error::Desync { .. }), "{text}");
        assert!(text.contains("all_gather at first.rs:1:1"), "{text}");
        assert!(text.contains("barrier at second.rs:2:2"), "{text}");
        assert_eq!(error, &errors[0]);
    }
}

fn a_late_rank_fails_only_what_it_is_late_for(make: &MakeWorld<'_>, ranks: u32) {
    let late = Rank::new(ranks - 1);
    with_short_timeout(late, |timeout| {
        let missing = on_all(make(ranks, patience()), |exchange| {
            let first = start(&exchange, all_gather("first"), Contribution::default());
            if exchange.rank() == late {
                exchange.wait(&first, Round::VERDICT).unwrap();
                let error = super::wait_for_failure(&exchange).expect_err("the time-out came");
                return missing_ranks(&error);
            }
            let call = Call {
                timeout: Some(timeout),
                ..all_gather("second")
            };
            let second = start(&exchange, call, Contribution::default());
            let error = exchange.wait(&second, Round::VERDICT).unwrap_err();
            let Error::Timeout { during, .. } = &error else {
                panic!("{error}");
            };
            assert_eq!(during, "all_gather #2 at second");
            // Earlier decisions remain valid.
            let verdict = exchange.wait(&first, Round::VERDICT).unwrap();
            assert!(verdict.table.is_some());
            missing_ranks(&error)
        });
        assert_eq!(missing, vec![missing[0].clone(); ranks as usize]);
        missing.into_iter().next().unwrap()
    });
}

fn a_payload_for_one_reader_is_reclaimed_by_its_owner(make: &MakeWorld<'_>, ranks: u32) {
    let root = Rank::new(ranks / 2);
    let reclaimed = Arc::default();
    on_all(make(ranks, patience()), |exchange| {
        record_reclaims(&exchange, &reclaimed);
        let call = Call::new(Operation::Gather, site("here")).with_root(root);
        let ticket = start(&exchange, call, payload(exchange.rank()));
        let verdict = exchange.wait(&ticket, Round::VERDICT).unwrap();
        exchange.barrier(site("nobody has read yet")).unwrap();
        assert_eq!(*reclaimed.lock().unwrap(), []);
        exchange.barrier(site("all have looked")).unwrap();
        if let Some(table) = verdict.table {
            assert_eq!(exchange.rank(), root);
            assert!(table.acknowledge);
            exchange.done(&ticket);
        }
        exchange.close(site("end")).unwrap();
    });
    let mut owners: Vec<Rank> = reclaimed.lock().unwrap().iter().map(|(_, o)| *o).collect();
    owners.sort();
    assert_eq!(owners, (0..ranks).map(Rank::new).collect::<Vec<_>>());
}
