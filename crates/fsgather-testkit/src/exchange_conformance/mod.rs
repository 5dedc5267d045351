//! Tests the requirements on every implementation of [`Exchange`]: [`run`].
//!
//! Each check gets a fresh world and runs every rank on a thread of its own. Checks are named after the promise they test; a failing check
//! panics with the rank concerned.

mod groups;
mod pending;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fsgather_core::{
    Call, Contribution, Epoch, Error, Exchange, Leaves, Operation, PeerFailure, Phase, Rank, Round,
    Site, Table,
};

use crate::pace::{cases, patience, rest, within_patience};

/// One rank's exchange.
pub type RankExchange = Box<dyn Exchange>;

/// Makes a world with this number of ranks and this time-out.
pub type MakeWorld<'a> = dyn Fn(u32, Duration) -> Vec<RankExchange> + Sync + 'a;

/// Runs a check with a short time-out, and with longer ones as long as punctual ranks are missing too, as on a busy machine.
///
/// The check returns the ranks that were missing at the time-out; in the end that must be only `late`.
fn with_short_timeout(late: Rank, check: impl Fn(Duration) -> Vec<Rank>) {
    let mut timeout = Duration::from_millis(200);
    loop {
        let missing = check(timeout);
        assert!(missing.contains(&late), "{missing:?}");
        if missing == [late] {
            return;
        }
        timeout *= 2;
        assert!(timeout < patience(), "{missing:?}, not only rank {late}");
    }
}

/// The ranks that a time-out error names as missing.
fn missing_ranks(error: &Error) -> Vec<Rank> {
    let Error::Timeout { missing, .. } = error else {
        panic!("{error}");
    };
    missing.iter().map(|missing| missing.rank).collect()
}

/// A check, on a world with this number of ranks.
type Check = fn(&MakeWorld<'_>, u32);

/// Number of checks that run at the same time: most of them spend most of their time waiting.
const CONCURRENT_CHECKS: usize = 6;

/// Runs all checks on worlds of 1 to `largest` ranks; quick tests use at most 2.
///
/// Several worlds exist at the same time.
pub fn run(make: &MakeWorld<'_>, largest: u32) {
    let largest = largest.min(cases(2, largest));
    let mut checks: Vec<(Check, u32)> = Vec::new();
    // It takes seconds with any number of ranks.
    if largest > 1 && cases(false, true) {
        checks.push((progress_postpones_the_time_out, largest));
    }
    for ranks in (1..=largest).rev() {
        let all = ALONE.iter().chain(pending::ALONE);
        let all = all.chain(groups::ALONE);
        let several = [
            (2, SEVERAL_RANKS),
            (2, pending::SEVERAL_RANKS),
            (2, groups::SEVERAL_RANKS),
            (3, groups::OF_THREE),
        ];
        let several = several.into_iter().filter(|(least, _)| ranks >= *least);
        let all = all.chain(several.flat_map(|(_, checks)| checks));
        checks.extend(all.map(|check| (*check, ranks)));
    }
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((check, ranks)) = checks.get(next.fetch_add(1, Ordering::Relaxed)) {
            check(make, *ranks);
        }
    };
    thread::scope(|scope| {
        for _ in 0..CONCURRENT_CHECKS {
            scope.spawn(work);
        }
    });
}

/// Checks for worlds of any size.
const ALONE: &[Check] = &[
    a_barrier_holds_everybody_until_the_last_has_come,
    an_exchange_delivers_all_bodies_in_rank_order,
    a_gather_delivers_to_its_root_only,
    calls_are_numbered_in_order,
    further_rounds_belong_to_their_call,
    payloads_are_reclaimed_once_everybody_has_read,
    closing_together_succeeds_and_nothing_works_after,
    what_removes_payloads_is_let_go_of_at_the_end,
    a_failure_is_the_same_on_all_ranks_and_poisons,
    refusals_reach_all_ranks_and_leave_the_channel_usable,
    an_interrupt_ends_everything,
    a_time_out_may_be_as_long_as_durations_go,
];

/// Checks for worlds of several ranks.
const SEVERAL_RANKS: &[Check] = &[
    a_text_of_any_length_reaches_all_ranks,
    different_calls_are_told_with_both_sites,
    different_roots_are_told,
    a_late_rank_is_named_by_all_others,
    a_rank_that_left_is_named,
    who_leaves_stays_until_others_have_read,
    closing_while_others_call_is_told,
    a_failure_after_the_verdict_reaches_others_at_their_next_call,
];

fn site(text: &str) -> Site {
    Site::named(text)
}

fn all_gather(text: &str) -> Call {
    Call::new(Operation::AllGather, site(text))
}

fn body(rank: Rank) -> Bytes {
    Bytes::from(vec![u8::try_from(rank.get()).unwrap(); rank.index() * 3])
}

/// Runs `act` on every rank at the same time; results in rank order.
fn on_all<R: Send>(world: Vec<RankExchange>, act: impl Fn(RankExchange) -> R + Sync) -> Vec<R> {
    let run = || {
        thread::scope(|scope| {
            let act = &act;
            let ranks: Vec<_> = world
                .into_iter()
                .map(|exchange| scope.spawn(move || act(exchange)))
                .collect();
            ranks
                .into_iter()
                .map(|rank| rank.join().expect("a rank panicked"))
                .collect()
        })
    };
    within_patience(run)
}

fn a_barrier_holds_everybody_until_the_last_has_come(make: &MakeWorld<'_>, ranks: u32) {
    let arrived = Arc::new(Mutex::new(0));
    on_all(make(ranks, patience()), |exchange| {
        for turn in 1..=20 {
            *arrived.lock().unwrap() += 1;
            exchange.barrier(site("here")).unwrap();
            let seen = *arrived.lock().unwrap();
            assert!(seen >= turn * ranks, "rank {} left early", exchange.rank());
        }
        exchange.close(site("end")).unwrap();
    });
}

fn a_time_out_may_be_as_long_as_durations_go(make: &MakeWorld<'_>, ranks: u32) {
    // The last time-out is the longest that a user can write out.
    let years = Duration::from_secs(584_000_000_000 * 8_766 * 3600);
    let clock = Duration::from_secs(i64::MAX.unsigned_abs());
    for timeout in [Duration::MAX, Duration::MAX / 2, clock, years] {
        on_all(make(ranks, timeout), |exchange| {
            let call = Call {
                timeout: Some(timeout),
                ..all_gather("here")
            };
            for call in [all_gather("here"), call] {
                let ticket = exchange.begin(call).unwrap();
                let part = Contribution::default();
                exchange.contribute(&ticket, Round::VERDICT, part).unwrap();
                let verdict = exchange.wait_for(&ticket, Round::VERDICT, Some(timeout));
                assert!(verdict.unwrap().is_some());
            }
            exchange.close(site("end")).unwrap();
        });
    }
}

fn a_text_of_any_length_reaches_all_ranks(make: &MakeWorld<'_>, ranks: u32) {
    let errors = on_all(make(ranks, patience()), |exchange| {
        if exchange.rank().get() + 1 == ranks {
            let ticket = exchange.begin(all_gather("here")).unwrap();
            let cause = Error::config("x".repeat(9 << 20));
            return exchange.fail(&ticket, Phase::Publishing, cause);
        }
        // The call may have failed before this rank begins.
        let part = body(exchange.rank());
        exchange.exchange(all_gather("here"), part).unwrap_err()
    });
    for error in &errors {
        assert!(error.to_string().ends_with("(cut; 9.0 MiB in all)"));
        assert_eq!(error, &errors[0]);
    }
}

fn an_exchange_delivers_all_bodies_in_rank_order(make: &MakeWorld<'_>, ranks: u32) {
    on_all(make(ranks, patience()), |exchange| {
        let table = exchange
            .exchange(all_gather("here"), body(exchange.rank()))
            .unwrap();
        let expected: Vec<Bytes> = exchange.world_size().ranks().map(body).collect();
        assert_eq!(table.unwrap().bodies, expected);
        exchange.close(site("end")).unwrap();
    });
}

fn a_gather_delivers_to_its_root_only(make: &MakeWorld<'_>, ranks: u32) {
    let root = Rank::new(ranks - 1);
    on_all(make(ranks, patience()), |exchange| {
        let call = Call::new(Operation::Gather, site("here")).with_root(root);
        let table = exchange.exchange(call, body(exchange.rank())).unwrap();
        assert_eq!(table.is_some(), exchange.rank() == root);
        exchange.close(site("end")).unwrap();
    });
}

fn calls_are_numbered_in_order(make: &MakeWorld<'_>, ranks: u32) {
    on_all(make(ranks, patience()), |exchange| {
        for number in 0..3 {
            let ticket = exchange.begin(all_gather("here")).unwrap();
            assert_eq!(ticket.epoch, Epoch::new(number));
            let nothing = Contribution::default();
            exchange
                .contribute(&ticket, Round::VERDICT, nothing)
                .unwrap();
            exchange.wait(&ticket, Round::VERDICT).unwrap();
        }
        exchange.close(site("end")).unwrap();
    });
}

fn further_rounds_belong_to_their_call(make: &MakeWorld<'_>, ranks: u32) {
    on_all(make(ranks, patience()), |exchange| {
        let ticket = exchange.begin(all_gather("here")).unwrap();
        for round in 0..3 {
            let part = Contribution {
                body: vec![u8::try_from(round).unwrap()].into(),
                leaves: Leaves::Nothing,
                further_rounds: exchange.rank().get() + round,
            };
            let round = Round::new(round);
            exchange.contribute(&ticket, round, part.clone()).unwrap();
            let verdict = exchange.wait(&ticket, round).unwrap();
            assert_eq!(verdict.further_rounds, ranks - 1 + round.get());
            let table = verdict.table.unwrap();
            assert_eq!(table.bodies, vec![part.body; exchange.world_size().count()]);
        }
        exchange.close(site("end")).unwrap();
    });
}

fn payloads_are_reclaimed_once_everybody_has_read(make: &MakeWorld<'_>, ranks: u32) {
    let read = Arc::new(Mutex::new(0));
    let (reclaimed, hear) = mpsc::channel();
    let hear = Mutex::new(hear);
    on_all(make(ranks, patience()), |exchange| {
        let own = exchange.rank();
        let readers = Arc::clone(&read);
        let reclaimed = reclaimed.clone();
        exchange.set_reclaim_sink(Arc::new(move |_, epoch, owner| {
            assert_eq!(owner, own);
            let readers = *readers.lock().unwrap();
            let _ = reclaimed.send((epoch, owner, readers));
        }));
        exchange.barrier(site("sinks are set")).unwrap();
        let ticket = exchange.begin(all_gather("here")).unwrap();
        // Only even ranks leave a payload.
        let part = Contribution {
            body: body(own),
            leaves: if own.get() % 2 == 0 {
                Leaves::ForOwner
            } else {
                Leaves::Nothing
            },
            further_rounds: 0,
        };
        exchange.contribute(&ticket, Round::VERDICT, part).unwrap();
        let verdict = exchange.wait(&ticket, Round::VERDICT).unwrap();
        let Table { acknowledge, .. } = verdict.table.unwrap();
        assert!(acknowledge);
        *read.lock().unwrap() += 1;
        exchange.done(&ticket);
        exchange.close(site("end")).unwrap();
    });
    let mut owners: Vec<Rank> = hear
        .lock()
        .unwrap()
        .try_iter()
        .map(|(epoch, owner, readers)| {
            assert_eq!(epoch, Epoch::new(1));
            assert_eq!(readers, ranks, "reclaimed before everybody had read");
            owner
        })
        .collect();
    owners.sort();
    let expected: Vec<Rank> = (0..ranks).step_by(2).map(Rank::new).collect();
    assert_eq!(owners, expected);
}

fn closing_together_succeeds_and_nothing_works_after(make: &MakeWorld<'_>, ranks: u32) {
    on_all(make(ranks, patience()), |exchange| {
        exchange.close(site("end")).unwrap();
        assert!(exchange.barrier(site("too late")).is_err());
    });
}

fn a_failure_is_the_same_on_all_ranks_and_poisons(make: &MakeWorld<'_>, ranks: u32) {
    let failing = Rank::new(ranks / 2);
    let errors = on_all(make(ranks, patience()), |exchange| {
        let error = if exchange.rank() == failing {
            let ticket = exchange.begin(all_gather("here")).unwrap();
            exchange.fail(&ticket, Phase::Publishing, Error::config("no room"))
        } else {
            // The failure is the same, wherever in the call it is noticed.
            exchange
                .exchange(all_gather("here"), Bytes::new())
                .unwrap_err()
        };
        let next = exchange.barrier(site("after")).unwrap_err();
        assert_eq!(next, error.poisoned());
        error
    });
    assert_eq!(errors, vec![Error::config("no room"); ranks as usize]);
}

fn refusals_reach_all_ranks_and_leave_the_channel_usable(make: &MakeWorld<'_>, ranks: u32) {
    let refusing = Rank::new(ranks / 2);
    let reason = || Bytes::from_static(b"too large");
    on_all(make(ranks, patience()), |exchange| {
        for call in [
            all_gather("here"),
            Call::new(Operation::Gather, site("there")).with_root(Rank::ZERO),
        ] {
            let ticket = exchange.begin(call).unwrap();
            let part = if exchange.rank() == refusing {
                Contribution {
                    leaves: Leaves::Refusal,
                    ..Contribution::inline(reason())
                }
            } else {
                Contribution {
                    body: body(exchange.rank()),
                    leaves: Leaves::ForOwner,
                    further_rounds: 3,
                }
            };
            exchange.contribute(&ticket, Round::VERDICT, part).unwrap();
            let verdict = exchange.wait(&ticket, Round::VERDICT).unwrap();
            assert_eq!(verdict.further_rounds, 0);
            let table = verdict.table.unwrap();
            assert!(!table.acknowledge);
            for (rank, body) in (0..).map(Rank::new).zip(table.bodies) {
                let expected = if rank == refusing {
                    reason()
                } else {
                    Bytes::new()
                };
                assert_eq!(body, expected, "{rank}");
            }
            exchange.barrier(site("after")).unwrap();
        }
        exchange.close(site("end")).unwrap();
    });
}

fn an_interrupt_ends_everything(make: &MakeWorld<'_>, ranks: u32) {
    let cause = Error::config("ended by a test");
    let errors = on_all(make(ranks, patience()), |exchange| {
        if exchange.rank().get() == ranks - 1 {
            exchange.interrupt(cause.clone());
        }
        exchange.barrier(site("here")).unwrap_err()
    });
    assert_eq!(errors, vec![cause.clone(); ranks as usize]);
}

fn different_calls_are_told_with_both_sites(make: &MakeWorld<'_>, ranks: u32) {
    let errors = on_all(make(ranks, patience()), |exchange| {
        if exchange.rank() == Rank::new(1) {
            exchange.barrier(site("eval.rs:7:1")).unwrap_err()
        } else {
            let call = all_gather("train.rs:9:2");
            exchange.exchange(call, Bytes::new()).unwrap_err()
        }
    });
    for error in &errors {
        assert_eq!(error, &errors[0]);
        let text = error.to_string();
        assert!(matches!(error, Error::Desync { .. }), "{text}");
        assert!(text.contains("barrier at eval.rs:7:1"), "{text}");
        assert!(text.contains("all_gather at train.rs:9:2"), "{text}");
    }
}

fn different_roots_are_told(make: &MakeWorld<'_>, ranks: u32) {
    let errors = on_all(make(ranks, patience()), |exchange| {
        let root = Rank::new(u32::from(exchange.rank() == Rank::ZERO));
        let call = Call::new(Operation::Gather, site("here")).with_root(root);
        exchange.exchange(call, Bytes::new()).unwrap_err()
    });
    for error in &errors {
        assert!(matches!(error, Error::Desync { .. }), "{error}");
        assert_eq!(error, &errors[0]);
    }
}

fn a_late_rank_is_named_by_all_others(make: &MakeWorld<'_>, ranks: u32) {
    let late = Rank::new(ranks - 1);
    with_short_timeout(late, |timeout| {
        let errors = on_all(make(ranks, timeout), |exchange| {
            if exchange.rank() == late {
                // It begins after the others have given up, and gets the same error.
                let ticket = wait_for_failure(&exchange);
                return ticket.expect_err("the time-out came");
            }
            exchange.barrier(site("here")).unwrap_err()
        });
        for error in &errors {
            assert_eq!(error.to_string(), errors[0].to_string());
        }
        missing_ranks(&errors[0])
    });
}

/// Makes no call until the world has failed.
fn wait_for_failure(exchange: &RankExchange) -> Result<(), Error> {
    let ticket = exchange.begin(Call::new(Operation::Barrier, site("here")))?;
    let deadline = Instant::now() + patience();
    loop {
        exchange.progress(&ticket, Phase::Computing, 0)?;
        if Instant::now() > deadline {
            return Ok(());
        }
        rest();
    }
}

fn progress_postpones_the_time_out(make: &MakeWorld<'_>, ranks: u32) {
    // Members report once a second at most, so the time-out must be longer than that.
    let timeout = Duration::from_millis(1500);
    let slow = Rank::new(ranks - 1);
    on_all(make(ranks, timeout), |exchange| {
        let ticket = exchange.begin(all_gather("here")).unwrap();
        if exchange.rank() == slow {
            let until = Instant::now() + 2 * timeout;
            while Instant::now() < until {
                exchange.progress(&ticket, Phase::Publishing, 1).unwrap();
                rest();
            }
        }
        let part = Contribution::default();
        exchange.contribute(&ticket, Round::VERDICT, part).unwrap();
        exchange.wait(&ticket, Round::VERDICT).unwrap();
        exchange.close(site("end")).unwrap();
    });
}

fn a_rank_that_left_is_named(make: &MakeWorld<'_>, ranks: u32) {
    let leaver = Rank::new(ranks - 1);
    let errors = on_all(make(ranks, patience()), |exchange| {
        if exchange.rank() == leaver {
            exchange.leave(None);
            return None;
        }
        Some(exchange.barrier(site("here")).unwrap_err())
    });
    for error in errors.into_iter().flatten() {
        let Error::PeerFailed { peer, failure, .. } = &error else {
            panic!("{error}");
        };
        assert!(peer.rank == leaver && failure.is_departure(), "{failure}");
    }
}

fn who_leaves_stays_until_others_have_read(make: &MakeWorld<'_>, ranks: u32) {
    let late = Rank::new(ranks - 1);
    let has_read = AtomicBool::new(false);
    on_all(make(ranks, patience()), |exchange| {
        let part = Contribution {
            leaves: Leaves::WithOwner,
            ..Contribution::default()
        };
        let ticket = pending::start(&exchange, all_gather("here"), part);
        let verdict = exchange.wait(&ticket, Round::VERDICT).unwrap();
        assert!(verdict.table.is_some_and(|table| table.acknowledge));
        if exchange.rank() == late {
            // It fails because the others have left, and does not affect earlier decisions.
            let left = exchange.barrier(site("later")).unwrap_err();
            assert!(matches!(
                left,
                Error::PeerFailed {
                    failure: PeerFailure::Departed { .. },
                    ..
                }
            ));
            has_read.store(true, Ordering::SeqCst);
            exchange.done(&ticket);
        } else {
            exchange.done(&ticket);
            exchange.leave(None);
            assert!(has_read.load(Ordering::SeqCst), "rank {}", exchange.rank());
        }
    });
}

fn what_removes_payloads_is_let_go_of_at_the_end(make: &MakeWorld<'_>, ranks: u32) {
    for is_orderly in [true, false] {
        on_all(make(ranks, patience()), |exchange| {
            let held = Arc::new(());
            let kept = Arc::clone(&held);
            exchange.set_reclaim_sink(Arc::new(move |_, _, _| {
                let _ = &kept;
            }));
            assert_eq!(Arc::strong_count(&held), 2);
            if is_orderly {
                exchange.close(site("end")).unwrap();
            } else {
                exchange.leave(None);
            }
            assert_eq!(Arc::strong_count(&held), 1, "rank {}", exchange.rank());
        });
    }
}

fn closing_while_others_call_is_told(make: &MakeWorld<'_>, ranks: u32) {
    let errors = on_all(make(ranks, patience()), |exchange| {
        if exchange.rank() == Rank::ZERO {
            exchange.close(site("end.rs:1:1")).unwrap_err()
        } else {
            exchange.barrier(site("loop.rs:2:2")).unwrap_err()
        }
    });
    for error in errors {
        let text = error.to_string();
        assert!(matches!(error, Error::Desync { .. }), "{text}");
        assert!(text.contains("close at end.rs:1:1"), "{text}");
        assert!(text.contains("barrier at loop.rs:2:2"), "{text}");
    }
}

fn a_failure_after_the_verdict_reaches_others_at_their_next_call(make: &MakeWorld<'_>, ranks: u32) {
    let reader = Rank::new(ranks - 1);
    let cause = Error::config("the file is gone");
    on_all(make(ranks, patience()), |exchange| {
        let ticket = exchange.begin(all_gather("here")).unwrap();
        let part = Contribution::default();
        exchange.contribute(&ticket, Round::VERDICT, part).unwrap();
        let verdict = exchange.wait(&ticket, Round::VERDICT).unwrap();
        assert!(verdict.table.is_some(), "the verdict stands");
        if exchange.rank() == reader {
            let error = exchange.fail(&ticket, Phase::Reading, cause.clone());
            assert_eq!(error, cause);
        } else {
            assert_eq!(exchange.barrier(site("next")).unwrap_err(), cause);
        }
    });
}
