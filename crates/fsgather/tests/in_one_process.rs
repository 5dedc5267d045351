//! Tests of calls of worlds whose ranks are threads of this process: the results of every kind of call.

#![expect(clippy::unwrap_used, reason = "a check reports by panicking")]

#[path = "in_one_process/ends.rs"]
mod ends;
#[path = "in_one_process/met.rs"]
mod met;
#[path = "in_one_process/own.rs"]
mod own;
#[cfg(feature = "observe")]
#[path = "in_one_process/recorded.rs"]
mod recorded;
#[path = "in_one_process/sharing.rs"]
mod sharing;
#[path = "in_one_process/streams.rs"]
mod streams;

use std::{
    io::Read,
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use fsgather::{Communicator, Error, ErrorKind, Options, Payload, Pieces, Rank, Stream};
use fsgather_testkit::pace::within_patience;

/// The number of ranks of a world.
const RANKS: u32 = 3;

/// Makes all ranks of a world act at the same time. Returns the results in rank order.
fn on_all<R: Send + 'static>(act: impl Fn(Communicator) -> R + Send + Sync + 'static) -> Vec<R> {
    let act = Arc::new(act);
    within_patience(|| {
        let ranks: Vec<_> = Communicator::threads(RANKS)
            .unwrap()
            .into_iter()
            .map(|communicator| {
                let act = Arc::clone(&act);
                thread::spawn(move || act(communicator))
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Returns the input of a rank: other bytes and another length on each, none on the last.
fn bytes_of(rank: u32, call: u32) -> Vec<u8> {
    let len = if rank + 1 == RANKS {
        0
    } else {
        100_000 + 1000 * rank as usize
    };
    (0..len)
        .map(|at| (at * 7 + at / 251 + (rank + 3 * call) as usize).to_le_bytes()[0])
        .collect()
}

fn everything(call: u32) -> Vec<Vec<u8>> {
    (0..RANKS).map(|rank| bytes_of(rank, call)).collect()
}

fn plain(payloads: impl IntoIterator<Item = Payload>) -> Vec<Vec<u8>> {
    payloads
        .into_iter()
        .map(|payload| payload.to_vec())
        .collect()
}

#[test]
fn bytes_and_streams_arrive_whole_and_in_rank_order() {
    on_all(move |communicator| {
        let me = communicator.rank().get();
        assert_eq!(communicator.world_size().get(), RANKS);
        communicator.barrier().unwrap();
        let got = communicator
            .all_gather(Pieces::from(&bytes_of(me, 1)[..]))
            .unwrap();
        assert!(plain(got) == everything(1));
        let got = communicator
            .all_gather(Stream::new(&mut &bytes_of(me, 2)[..]))
            .unwrap();
        assert!(plain(got) == everything(2));
        let got = communicator
            .broadcast(Pieces::from(&bytes_of(me, 3)[..]), 1)
            .unwrap();
        assert!(*got == bytes_of(1, 3));
        let got = communicator
            .broadcast(Stream::new(&mut &bytes_of(me, 4)[..]), 0)
            .unwrap();
        assert!(*got == bytes_of(0, 4));
        communicator.close().unwrap();
    });
}

#[test]
fn a_gather_root_gets_all_parts_one_after_the_other() {
    on_all(move |communicator| {
        let me = communicator.rank().get();
        let parts = communicator
            .gather(Pieces::from(&bytes_of(me, 1)[..]), 1)
            .unwrap();
        assert_eq!(parts.is_some(), me == 1);
        if let Some(parts) = parts {
            assert_eq!((parts.len(), parts.is_empty()), (RANKS as usize, false));
            let total: usize = everything(1).iter().map(Vec::len).sum();
            assert_eq!(parts.bytes_left(), total as u64);
            let got: Vec<(Rank, Payload)> = parts.map(Result::unwrap).collect();
            let ranks: Vec<u32> = got.iter().map(|(rank, _)| rank.get()).collect();
            assert_eq!(ranks, [0, 1, 2]);
            let payloads = got.into_iter().map(|(_, payload)| payload);
            assert!(plain(payloads) == everything(1));
        }
        let parts = communicator
            .gather(Stream::new(&mut &bytes_of(me, 2)[..]), 2)
            .unwrap();
        if let Some(parts) = parts {
            for (rank, reader) in (0..).zip(parts.into_readers()) {
                let (mut reader, mut got) = (reader.unwrap(), Vec::new());
                assert_eq!(reader.rank().get(), rank);
                assert_eq!(reader.total_len(), bytes_of(rank, 2).len() as u64);
                reader.read_to_end(&mut got).unwrap();
                assert!(got == bytes_of(rank, 2));
                assert!(reader.take_error().is_none());
            }
        }
        communicator.close().unwrap();
    });
}

#[test]
fn values_of_all_kinds_of_calls_are_those_that_were_handed_in() {
    on_all(move |communicator| {
        let me = communicator.rank().get();
        let value = |rank: u32| (rank, "x".repeat(500 * rank as usize), vec![rank; 40]);
        let all: Vec<_> = (0..RANKS).map(value).collect();
        assert_eq!(communicator.all_gather(&value(me)).unwrap(), all);
        assert_eq!(
            communicator
                .with(Options::new().bound(1 << 20))
                .all_gather(&value(me))
                .unwrap(),
            all
        );
        assert_eq!(communicator.broadcast(&value(me), 2).unwrap(), value(2));
        let parts = communicator.gather(&value(me), 0).unwrap();
        if let Some(parts) = parts {
            let got: Vec<_> = parts.map(|part| part.unwrap().1).collect();
            assert_eq!(got, all);
        }
        communicator.close().unwrap();
    });
}

#[test]
fn several_calls_at_a_time_are_waited_for_in_any_order() {
    on_all(move |communicator| {
        let me = communicator.rank().get();
        let mut first = communicator.start_all_gather(&me).unwrap();
        let second = communicator
            .start_all_gather(Pieces::from(&bytes_of(me, 2)[..]))
            .unwrap();
        let third = communicator.start_gather(&(me, 3), 1).unwrap();
        let fourth = communicator
            .start_gather(Pieces::from(&bytes_of(me, 4)[..]), 0)
            .unwrap();
        let parts = fourth.wait().unwrap();
        assert_eq!(parts.is_some(), me == 0);
        if let Some(parts) = parts {
            let payloads = parts.map(|part| part.unwrap().1);
            assert!(plain(payloads) == everything(4));
        }
        if let Some(parts) = third.wait().unwrap() {
            let got: Vec<_> = parts.map(|part| part.unwrap().1).collect();
            assert_eq!(got, [(0, 3), (1, 3), (2, 3)]);
        }
        assert!(plain(second.wait().unwrap()) == everything(2));
        let got = loop {
            match first.wait_timeout(Duration::from_secs(1)).unwrap() {
                Some(got) => break got,
                None => assert!(first.try_wait().unwrap().is_none()),
            }
        };
        assert_eq!(got, [0, 1, 2]);
        communicator.close().unwrap();
    });
}

#[test]
fn groups_have_calls_of_their_own() {
    on_all(move |communicator| {
        let me = communicator.rank().get();
        let color = (me != 1).then_some(7);
        let pair = communicator.split(color, -i64::from(me)).unwrap();
        assert_eq!(pair.is_some(), me != 1);
        if let Some(pair) = pair {
            // The key reverses their order.
            assert_eq!(
                (pair.world_size().get(), pair.rank().get()),
                (2, u32::from(me == 0))
            );
            assert_eq!(pair.all_gather(&me).unwrap(), [2, 0]);
            let got = pair.all_gather(Pieces::from(&bytes_of(me, 1)[..])).unwrap();
            assert!(plain(got) == [bytes_of(2, 1), bytes_of(0, 1)]);
            pair.close().unwrap();
        }
        if me < 2 {
            let group = communicator.group(&[1, 0]).unwrap();
            assert_eq!(group.broadcast(&me, 0).unwrap(), 1);
            group.close().unwrap();
        } else {
            let error = communicator.group(&[1, 0]).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Config);
        }
        communicator.barrier().unwrap();
        communicator.close().unwrap();
    });
}

#[test]
fn a_call_ends_when_a_time_out_of_its_own_is_over() {
    let is_over = Arc::new(Barrier::new(RANKS as usize));
    let kinds = on_all(move |communicator| {
        let result = if communicator.rank().get() == 0 {
            let call = communicator.with(Options::new().timeout(Duration::from_secs(1)));
            let result = call.barrier();
            is_over.wait();
            result
        } else {
            is_over.wait();
            communicator.barrier()
        };
        result.unwrap_err().kind()
    });
    assert!(
        kinds.iter().all(|kind| *kind == ErrorKind::Timeout),
        "{kinds:?}"
    );
}

#[test]
fn a_bound_is_nothing_to_a_call_without_payloads() {
    on_all(|communicator| {
        let bound = communicator.rank().get().into();
        communicator
            .with(Options::new().bound(bound))
            .barrier()
            .unwrap();
        communicator.close().unwrap();
    });
}

/// A call that cannot succeed, as the rank of this number makes it.
type WrongCall = fn(&Communicator, u32) -> Result<(), Error>;

#[test]
fn what_is_wrong_with_a_call_is_told_to_all_alike() {
    let wrong: [(ErrorKind, WrongCall); 3] = [
        (ErrorKind::Desync, |communicator, me| {
            if me == 1 {
                return communicator.barrier();
            }
            communicator.all_gather(&me).map(drop)
        }),
        (ErrorKind::Desync, |communicator, me| {
            communicator.broadcast(&1, me).map(drop)
        }),
        (ErrorKind::Desync, |communicator, me| {
            if me == 2 {
                return communicator.all_gather(&"text".to_owned()).map(drop);
            }
            communicator.all_gather(&1_u64).map(drop)
        }),
    ];
    for (number, (kind, call)) in wrong.into_iter().enumerate() {
        let errors = on_all(move |communicator| {
            let error = call(&communicator, communicator.rank().get()).unwrap_err();
            // Any later call fails as well.
            let later = communicator.barrier().unwrap_err();
            assert_eq!(later.kind(), error.kind());
            error
        });
        for error in &errors {
            assert_eq!(error.kind(), kind, "{number}: {error}");
            assert_eq!(error.to_string(), errors[0].to_string());
        }
    }
}

#[test]
fn a_root_that_is_not_there_is_told_before_anything_is_sent() {
    let solo = Communicator::solo();
    for error in [
        solo.broadcast(&1, 1).unwrap_err(),
        solo.gather(&1, 9).err().unwrap(),
        solo.group(&[0, 0]).err().unwrap(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    }
    assert_eq!(solo.all_gather(&7).unwrap(), [7]);
    assert_eq!(
        format!("{solo:?}"),
        "Communicator { rank: Rank(0), world_size: WorldSize(1), .. }"
    );
    assert!(fsgather::bindings::last_calls(&solo).is_none());
    solo.close().unwrap();
}

#[test]
fn a_rank_that_leaves_with_a_reason_is_named_with_it() {
    let errors = on_all(|communicator| {
        if communicator.rank() == 1 {
            communicator.leave_with("KeyError: 3");
            return None;
        }
        Some(communicator.barrier().unwrap_err())
    });
    for error in errors.into_iter().flatten() {
        assert!(
            error.is_peer_failed() && error.to_string().contains("KeyError: 3"),
            "{error}"
        );
    }
}

#[test]
fn the_others_hear_why_a_rank_has_ended_its_work() {
    let ends = on_all(|communicator| {
        let me = communicator.rank();
        communicator
            .run(|world| {
                if me == 1 {
                    return Err(Box::<dyn std::error::Error>::from("no such model"));
                }
                world.barrier()?;
                Ok(())
            })
            .map_err(|error| error.to_string())
    });
    for (rank, end) in ends.into_iter().enumerate() {
        let text = end.unwrap_err();
        assert!(text.contains("no such model"), "{rank}: {text}");
        assert_eq!(text.contains("rank 1 on"), rank != 1, "{text}");
    }
    let ends = on_all(|communicator| communicator.run(|world| world.all_gather(&1)));
    assert!(
        ends.into_iter()
            .all(|end| end == Ok(vec![1; RANKS as usize]))
    );
}
