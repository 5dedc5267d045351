//! Ranks that come when the deadline of a call has passed.

use std::{sync::Barrier, time::Duration};

use fsgather::{Rank, Transport};
use fsgather_config::words::Word;
use fsgather_testkit::pace::rest;
use fsgather_trace::record::Way;

use super::{
    RANKS,
    met::{on_all, payload_files},
    recorded::last,
};

/// Rank 1 of the world, which is rank 2 of the group, comes too late.
#[test]
fn who_is_late_is_told_by_its_rank_in_the_group_and_takes_back_what_it_hands_in() {
    let place = tempfile::tempdir().unwrap();
    let (named, directory) = (place.path().to_owned(), place.path().to_owned());
    let is_decided = Barrier::new(RANKS as usize);
    on_all(
        move |builder| builder.directory(&named).transport(Transport::Filesys),
        move |communicator| {
            let communicator = communicator.unwrap();
            let group = communicator.group(&[2, 0, 1]).unwrap();
            let is_late = communicator.rank().get() == 1;
            if is_late {
                is_decided.wait();
            }
            let call = group.call().deadline(Duration::from_secs(2));
            let partial = call.gather_partial(&"x".repeat(300_000), 0).unwrap();
            let missing: Vec<Rank> = partial.missing.iter().map(|late| late.rank).collect();
            assert_eq!(missing, [2]);
            if !is_late {
                is_decided.wait();
            }
            drop(partial);
            // Those of the others go once they have been read.
            while payload_files(&directory) > 0 {
                rest();
            }
            group.close().unwrap();
            communicator.close().unwrap();
        },
    );
}

#[test]
fn what_is_handed_in_too_late_takes_no_room_of_memory_that_ranks_share() {
    const LEN: usize = 100_000;
    const CALLS: usize = 4;
    let is_decided = Barrier::new(RANKS as usize);
    on_all(
        |builder| {
            // Room for two payloads.
            let builder = builder.argument("shared_memory", Word::Number(256 << 10));
            builder.unwrap().transport(Transport::Memory)
        },
        move |communicator| {
            let communicator = communicator.unwrap();
            let is_late = communicator.rank().get() == 1;
            for _ in 0..CALLS {
                if is_late {
                    is_decided.wait();
                }
                let call = communicator.call().deadline(Duration::from_millis(50));
                let partial = call.gather_partial(&"x".repeat(LEN), 0).unwrap();
                assert!(!partial.is_complete());
                if !is_late {
                    is_decided.wait();
                }
            }
            let parts = communicator.gather_bytes(&vec![7; LEN][..], 0).unwrap();
            drop(parts);
            if is_late {
                assert_eq!(last(&communicator, 0).way, Way::SharedMemory);
            }
            communicator.close().unwrap();
        },
    );
}
