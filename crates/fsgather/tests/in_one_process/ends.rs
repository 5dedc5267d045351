//! Tests of calls that end before they have a result: by interrupts, by groups that are dropped, by panics, by payloads
//! beyond their bound.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Barrier,
};

use fsgather::{Error, ErrorKind, Interrupt, Options, Pieces, Rank, Stream, Transport, Verify};

use super::{
    RANKS, bytes_of,
    met::{gather_directories, on_all},
};

#[test]
fn an_interrupt_of_the_builder_ends_the_calls_of_all() {
    let interrupt = Interrupt::default();
    let (own, raised) = (interrupt.clone(), interrupt);
    let are_met = Barrier::new(RANKS as usize);
    let said = on_all(
        move |builder| builder.interrupt(&own),
        move |communicator| {
            let communicator = communicator.unwrap();
            assert_eq!(communicator.world_size().get(), RANKS);
            are_met.wait();
            if communicator.rank().get() == 0 {
                raised.raise("enough for today");
                return None;
            }
            // Rank 0 does not make this call, and has not left: only the interrupt ends this call.
            let error = communicator.all_gather(&0).unwrap_err();
            Some((error, communicator))
        },
    );
    for (error, _) in said.into_iter().flatten() {
        assert!(error.to_string().contains("enough for today"), "{error}");
    }
}

#[test]
fn the_others_of_a_group_hear_that_a_rank_has_dropped_it() {
    on_all(
        |builder| builder,
        |communicator| {
            let communicator = communicator.unwrap();
            let me = communicator.rank().get();
            let all: Vec<u32> = (0..RANKS).collect();
            let group = communicator.group(&all).unwrap();
            group.barrier().unwrap();
            if me == 1 {
                drop(group);
            } else {
                let error = group.barrier().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
                assert!(error.to_string().contains("rank 1"), "{error}");
            }
            // The world is as it was.
            communicator.barrier().unwrap();
            communicator.close().unwrap();
        },
    );
}

#[test]
fn the_others_hear_that_a_rank_has_panicked() {
    on_all(
        |builder| builder,
        |communicator| {
            let communicator = communicator.unwrap();
            communicator.barrier().unwrap();
            if communicator.rank().get() == 1 {
                let panicked = catch_unwind(AssertUnwindSafe(move || {
                    let _held = communicator;
                    panic!("the program is wrong");
                }));
                panicked.unwrap_err();
            } else {
                let error = communicator.barrier().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
                let text = error.to_string();
                assert!(
                    text.contains("rank 1") && text.contains("it panicked"),
                    "{text}"
                );
            }
        },
    );
}

#[test]
fn values_over_their_bound_fail_and_those_at_it_arrive() {
    const BOUND: usize = 300_000;
    for transport in [Transport::Filesys, Transport::Memory] {
        for beyond in [0, 1, 2 * BOUND] {
            let place = tempfile::tempdir().unwrap();
            let named = place.path().to_owned();
            // Three bytes hold the length of a text.
            let long = BOUND - 3 + beyond;
            let results = on_all(
                move |builder| builder.directory(&named).transport(transport),
                move |communicator| {
                    let communicator = communicator.unwrap();
                    let len = if communicator.rank().get() == 1 {
                        long
                    } else {
                        5
                    };
                    communicator
                        .with(Options::new().bound(BOUND as u64))
                        .all_gather(&"x".repeat(len))
                },
            );
            for result in results {
                if beyond == 0 {
                    let lens: Vec<usize> = result.unwrap().iter().map(String::len).collect();
                    assert_eq!(lens, [5, long, 5]);
                    continue;
                }
                let error = result.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
                let text = error.to_string();
                assert!(text.contains("rank 1"), "{text}");
                assert!(text.contains(&(long + 3).to_string()), "{text}");
            }
        }
    }
}

#[test]
fn payload_over_the_bound_leaves_the_communicator_usable() {
    const BOUND: usize = 300_000;
    for transport in [Transport::Filesys, Transport::Memory, Transport::Auto] {
        let place = tempfile::tempdir().unwrap();
        let named = place.path().to_owned();
        on_all(
            move |builder| builder.directory(&named).transport(transport),
            move |communicator| {
                let communicator = communicator.unwrap();
                let excess = usize::from(communicator.rank().get() == 1);
                let own = vec![7; BOUND + excess];
                let call = communicator.with(Options::new().bound(BOUND as u64));
                for _ in 0..2 {
                    let stream = &mut &own[..];
                    for result in [
                        call.all_gather(Pieces::from(&own)).map(drop),
                        call.gather(Pieces::from(&own), 0).map(drop),
                        call.gather(Stream::new(stream), 2).map(drop),
                        call.broadcast(Pieces::from(&own), 1).map(drop),
                    ] {
                        let error = result.unwrap_err();
                        let Error::TooLarge { peer, bound, .. } = &error else {
                            panic!("{error}");
                        };
                        assert_eq!((peer.rank, *bound), (Rank::new(1), BOUND as u64));
                    }
                    assert!(!communicator.has_failed());
                    let all = communicator.all_gather(Pieces::from(&own)).unwrap();
                    let lens: Vec<usize> = all.iter().map(|part| part.len()).collect();
                    assert_eq!(lens, [BOUND, BOUND + 1, BOUND]);
                }
                communicator.close().unwrap();
            },
        );
        let left = gather_directories(place.path());
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_broken_named_directory_fails_all_without_fallback() {
    let place = tempfile::tempdir().unwrap();
    let (named, directory) = (place.path().to_owned(), place.path().to_owned());
    let is_gone = Barrier::new(RANKS as usize);
    let kinds = on_all(
        move |builder| {
            // Verified payloads are not in shared memory.
            let builder = builder.transport(Transport::Auto).verify(Verify::Always);
            builder.directory(&named)
        },
        move |communicator| {
            let communicator = communicator.unwrap();
            let me = communicator.rank().get();
            communicator.barrier().unwrap();
            if me == 0 {
                for name in gather_directories(&directory) {
                    let used = directory.join("all_gather_via_filesys").join(name);
                    fs::remove_dir(used.join("payloads")).unwrap();
                }
            }
            is_gone.wait();
            let got = communicator.all_gather(Pieces::from(&bytes_of(me, 1)[..]));
            got.map(drop).unwrap_err().kind()
        },
    );
    assert_eq!(kinds, [ErrorKind::Storage; RANKS as usize]);
}
