//! Tests of calls as they are recorded for `fsgather trace`: route, bytes and result.

use std::{fs, io, path::Path, sync::Barrier, thread, time::Duration};

use fsgather::{Builder, Communicator, ErrorKind, Pieces, Stream, Transport, Verify, bindings};
use fsgather_core::Route;
use fsgather_observe::trace::{
    black_box::BlackBox,
    cause::Cause,
    record::{CallRecord, Outcome},
};
use fsgather_testkit::pace::rest;

use super::{
    RANKS,
    met::{on_all, on_all_alone},
};

const LEN: usize = 100_000;

/// The last call but `before`.
pub(super) fn last(communicator: &Communicator, before: usize) -> CallRecord {
    let (count, bytes) = bindings::last_calls(communicator).unwrap();
    let mut records = BlackBox::from_bytes(&bytes).unwrap().records;
    assert_eq!(records.last().unwrap().count, count);
    records.remove(records.len() - 1 - before)
}

fn below(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory.join("all_gather_via_filesys")) else {
        return Vec::new();
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn each_way_is_told_with_what_it_has_moved() {
    let ways = [
        (Transport::Auto, Route::SharedMemory),
        (Transport::Filesys, Route::File),
        (Transport::Memory, Route::SharedMemory),
    ];
    for (transport, large) in ways {
        let place = tempfile::tempdir().unwrap();
        let named = place.path().to_owned();
        on_all(
            move |builder| builder.directory(&named).transport(transport),
            move |communicator| {
                let communicator = communicator.unwrap();
                let own = vec![7; LEN];
                // Memory is shared from the second call of a size on.
                for _ in 0..3 {
                    communicator.all_gather(Pieces::from(&own[..])).unwrap();
                }
                let call = last(&communicator, 0);
                assert_eq!(call.route, large, "{transport:?}");
                assert_eq!((call.operation.as_str(), call.ranks), ("all_gather", RANKS));
                assert_eq!((call.outcome, call.cause), (Outcome::Done, Cause::None));
                assert!(call.site.contains("recorded.rs"), "{}", call.site);
                assert_eq!(call.bytes, LEN as u64);
                assert!(call.moved >= LEN as u64, "{}", call.moved);
                assert!(call.begun <= call.handed_in.unwrap());
                assert!(call.handed_in <= call.decided && call.decided <= call.ended);
                communicator.all_gather(Pieces::from(b"a few")).unwrap();
                let call = last(&communicator, 0);
                assert_eq!((call.route, call.bytes), (Route::Message, 5));
                communicator.barrier().unwrap();
                let barrier = last(&communicator, 0);
                assert_eq!((barrier.operation.as_str(), barrier.bytes), ("barrier", 0));
                assert_eq!(
                    (barrier.number, barrier.count),
                    (call.number + 1, call.count + 1)
                );
                communicator.close().unwrap();
            },
        );
    }
}

#[test]
fn of_what_goes_round_in_a_ring_each_payload_is_counted_once() {
    on_all(
        // Verified payloads are not in shared memory.
        |builder| builder.transport(Transport::Memory).verify(Verify::Always),
        move |communicator| {
            let communicator = communicator.unwrap();
            communicator
                .all_gather(Pieces::from(&vec![7; LEN][..]))
                .unwrap();
            let call = last(&communicator, 0);
            assert_eq!((call.route, call.bytes), (Route::Link, LEN as u64));
            // Besides them the heads of streams.
            let all = u64::from(RANKS) * LEN as u64;
            let moved = call.moved;
            assert!((all..all + 1000).contains(&moved), "{moved}");
            communicator.close().unwrap();
        },
    );
}

#[test]
fn parts_for_a_root_on_the_same_host_use_shared_memory() {
    on_all(
        |builder| builder.transport(Transport::Memory),
        move |communicator| {
            let communicator = communicator.unwrap();
            let me = communicator.rank().get();
            for _ in 0..3 {
                let parts = communicator
                    .gather(Pieces::from(&vec![7; LEN][..]), 1)
                    .unwrap();
                if let Some(parts) = parts {
                    assert!(parts.map(Result::unwrap).all(|(_, part)| part.len() == LEN));
                }
            }
            if me != 1 {
                assert_eq!(last(&communicator, 0).route, Route::SharedMemory);
            }
            communicator.close().unwrap();
        },
    );
}

#[test]
fn agreement_before_the_first_call_is_recorded() {
    on_all(Builder::set_up_later, |communicator| {
        let communicator = communicator.unwrap();
        let call = last(&communicator, 0);
        assert_eq!(
            (call.operation.as_str(), call.ranks, call.outcome),
            ("first call", RANKS, Outcome::Done)
        );
        communicator.close().unwrap();
    });
}

#[test]
fn the_end_of_a_group_is_told_as_the_last_of_its_calls() {
    on_all(
        |builder| builder,
        |communicator| {
            let communicator = communicator.unwrap();
            let group = communicator.group(&[2, 1, 0]).unwrap();
            group.close().unwrap();
            let call = last(&communicator, 0);
            assert_eq!((call.operation.as_str(), call.ranks), ("close", RANKS));
            assert_eq!((call.outcome, call.cause), (Outcome::Done, Cause::None));
            communicator.close().unwrap();
        },
    );
}

/// A stream that gives little at a time, as pipes do.
struct Slow(usize);

impl io::Read for Slow {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = into.len().min(self.0).min(60_000);
        self.0 -= len;
        into[..len].fill(7);
        Ok(len)
    }
}

#[test]
fn a_stream_goes_the_way_of_what_it_brings_as_a_whole() {
    for (transport, large) in [
        (Transport::Filesys, Route::File),
        (Transport::Memory, Route::Link),
    ] {
        let place = tempfile::tempdir().unwrap();
        let named = place.path().to_owned();
        on_all(
            move |builder| builder.directory(&named).transport(transport),
            move |communicator| {
                let communicator = communicator.unwrap();
                for (len, way) in [
                    (50_000, Route::Message),
                    (200_000, large),
                    ((9 << 20) + 5, large),
                ] {
                    communicator
                        .all_gather(Stream::new(&mut Slow(len)))
                        .unwrap();
                    let call = last(&communicator, 0);
                    assert_eq!((call.route, call.bytes), (way, len as u64), "{transport:?}");
                }
                communicator.close().unwrap();
            },
        );
    }
}

#[test]
fn a_root_is_told_how_much_lies_in_files() {
    for (transport, files) in [(Transport::Filesys, 2), (Transport::Memory, 0)] {
        let place = tempfile::tempdir().unwrap();
        let named = place.path().to_owned();
        on_all(
            move |builder| builder.directory(&named).transport(transport),
            move |communicator| {
                let communicator = communicator.unwrap();
                // The root's own payload is not sent.
                let parts = communicator
                    .gather(Pieces::from(&vec![1; LEN][..]), 0)
                    .unwrap();
                if let Some(mut parts) = parts {
                    assert_eq!(parts.files_left(), files, "{transport:?}");
                    assert_eq!(parts.bytes_left(), u64::from(RANKS) * LEN as u64);
                    for left in (0..RANKS).rev() {
                        parts.next().unwrap().unwrap();
                        assert_eq!(parts.bytes_left(), u64::from(left) * LEN as u64);
                    }
                    assert_eq!(parts.files_left(), 0);
                }
                communicator.close().unwrap();
            },
        );
    }
}

#[test]
fn a_rank_that_gives_up_a_result_is_recorded_as_such() {
    let place = tempfile::tempdir().unwrap();
    let named = place.path().to_owned();
    let is_dropped = Barrier::new(RANKS as usize);
    on_all(
        move |builder| builder.directory(&named).transport(Transport::Filesys),
        move |communicator| {
            let communicator = communicator.unwrap();
            let me = communicator.rank().get();
            let own = vec![1; LEN];
            if me != 0 {
                is_dropped.wait();
            }
            let pending = communicator
                .start_all_gather(Pieces::from(&own[..]))
                .unwrap();
            if me == 0 {
                drop(pending);
                is_dropped.wait();
            } else {
                pending.wait().unwrap();
            }
            communicator.barrier().unwrap();
            let gives_up = if me == 0 {
                Outcome::GivenUp
            } else {
                Outcome::Done
            };
            assert_eq!(last(&communicator, 1).outcome, gives_up, "rank {me}");
            communicator.close().unwrap();
        },
    );
    assert_eq!(below(place.path()), Vec::<String>::new());
}

#[test]
fn a_started_call_is_awaited_only_while_a_thread_waits() {
    let is_seen = Barrier::new(RANKS as usize);
    on_all(
        |builder| builder,
        move |communicator| {
            let communicator = communicator.unwrap();
            if communicator.rank().get() > 0 {
                is_seen.wait();
                let all = communicator.start_all_gather(&1).unwrap().wait();
                assert_eq!(all.unwrap(), [1; RANKS as usize]);
                communicator.close().unwrap();
                return;
            }
            let mut pending = communicator.start_all_gather(&1).unwrap();
            let is_awaited = || last(&communicator, 0).awaited.is_some();
            assert!(pending.try_wait().unwrap().is_none());
            assert!(!is_awaited());
            assert!(
                pending
                    .wait_timeout(Duration::from_millis(1))
                    .unwrap()
                    .is_none()
            );
            assert!(!is_awaited());
            thread::scope(|scope| {
                scope.spawn(move || pending.wait().unwrap());
                while !is_awaited() {
                    rest();
                }
                is_seen.wait();
            });
            assert!(!is_awaited());
            communicator.close().unwrap();
        },
    );
}

#[test]
fn of_a_world_that_fails_the_calls_stay_and_say_why() {
    let place = tempfile::tempdir().unwrap();
    let named = place.path().to_owned();
    // A program that continues, and ends successfully, has recovered from the earlier failure.
    on_all_alone(
        move |builder| builder.directory(&named),
        |communicator| {
            let communicator = communicator.unwrap();
            communicator.barrier().unwrap();
            let root = communicator.rank().get().min(1);
            let error = communicator.broadcast(&1, root).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Desync);
            let call = last(&communicator, 0);
            assert_eq!((call.outcome, call.cause), (Outcome::Failed, Cause::Desync));
            assert_eq!(last(&communicator, 1).outcome, Outcome::Done);
        },
        || {
            let left = below(place.path());
            let calls = left.iter().filter(|name| name.starts_with("calls-"));
            assert_eq!(calls.count(), RANKS as usize, "{left:?}");
        },
    );
}

#[test]
fn files_of_an_all_gather_go_once_all_have_read_them() {
    let place = tempfile::tempdir().unwrap();
    let (named, directory) = (place.path().to_owned(), place.path().to_owned());
    on_all(
        move |builder| builder.directory(&named).transport(Transport::Filesys),
        move |communicator| {
            let communicator = communicator.unwrap();
            for _ in 0..3 {
                communicator
                    .all_gather(Pieces::from(&vec![1; LEN][..]))
                    .unwrap();
            }
            communicator.barrier().unwrap();
            let files = || -> usize {
                let gathers = below(&directory).into_iter();
                let gathers = gathers.filter(|name| name.starts_with("gather-"));
                gathers
                    .filter_map(|name| {
                        let inside = directory.join("all_gather_via_filesys").join(name);
                        fs::read_dir(inside.join("payloads")).ok()
                    })
                    .map(Iterator::count)
                    .sum()
            };
            while files() > 0 {
                rest();
            }
            communicator.barrier().unwrap();
            communicator.close().unwrap();
        },
    );
}
