//! Pulls of payloads.

use std::{
    io::Write,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use fsgather_control::mesh::{Mesh, RingPart, Source};
use fsgather_core::{Error, PeerFailure, Rank};
use proptest::prelude::*;

use crate::{
    bed::{Bed, call, ignore, on_channel, payload},
    proxy::{Meddling, Proxy},
};

fn offer(mesh: &Mesh, rank: u32, epoch: u64, len: usize) {
    mesh.offer(call(epoch), Source::Memory(payload(rank, len).into()));
}

fn file(bytes: &[u8]) -> Arc<std::fs::File> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    Arc::new(file)
}

/// Fetches a payload chunk by chunk.
fn fetch(mesh: &Mesh, from: u32, epoch: u64, len: usize) -> Result<Vec<u8>, Error> {
    let mut pull = mesh.pull(call(epoch), Rank::new(from), len as u64)?;
    let mut got = Vec::new();
    while let Some(chunk) = pull.next_chunk(&mut ignore)? {
        assert!(!chunk.is_empty() && chunk.len() <= 1 << 20);
        got.extend_from_slice(&chunk);
    }
    Ok(got)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_pull_gets_chunks_or_all_from_memory_or_a_file(
        len in prop_oneof![Just(0), 1..1000_usize, 1_048_570..1_048_580_usize, 0..5_000_000_usize],
        from_file: bool,
        is_ahead: bool,
        begun in 0..3_usize,
    ) {
        let meshes = Bed::new(2).meshes();
        let own = payload(1, len);
        let source = if from_file {
            Source::File { file: file(&own), len: len as u64 }
        } else {
            Source::Memory(own.clone().into())
        };
        meshes[1].offer(call(0), source);
        prop_assert!(fetch(&meshes[0], 1, 0, len).unwrap() == own);
        let mut pull = meshes[0].pull(call(0), Rank::new(1), len as u64).unwrap();
        if is_ahead {
            pull = pull.ahead().unwrap();
        }
        let mut moved = 0;
        let mut count = |bytes| {
            moved += bytes;
            Ok(())
        };
        let mut got = Vec::new();
        for _ in 0..begun {
            if let Some(chunk) = pull.next_chunk(&mut count).unwrap() {
                got.extend_from_slice(&chunk);
            }
        }
        got.extend_from_slice(&pull.read_to_end(&mut count).unwrap());
        prop_assert!(moved >= len as u64);
        prop_assert!(got == own);
        prop_assert_eq!(meshes[1].links_accepted(), u64::from(len > 0));
    }
}

#[test]
fn several_ranks_are_asked_at_the_same_time() {
    let meshes = Bed::new(4).meshes();
    for (rank, mesh) in (0..).zip(&meshes).skip(1) {
        offer(mesh, rank, 0, 3_000_000);
    }
    let root = &meshes[0];
    std::thread::scope(|scope| {
        for rank in 1..4 {
            scope.spawn(move || {
                assert!(fetch(root, rank, 0, 3_000_000).unwrap() == payload(rank, 3_000_000));
            });
        }
    });
}

#[test]
fn an_offer_that_comes_later_is_waited_for() {
    let meshes = Bed::new(2).meshes();
    let pull = meshes[0].pull(call(5), Rank::new(1), 100).unwrap();
    let mut waited = 0;
    let got = pull.read_to_end(&mut |_| {
        waited += 1;
        if waited == 2 {
            offer(&meshes[1], 1, 5, 100);
        }
        Ok(())
    });
    assert!(got.unwrap() == payload(1, 100));
    assert!(waited >= 2);
}

fn raised(error: &Error) -> &str {
    match error {
        Error::PeerFailed {
            peer,
            failure: PeerFailure::Raised { message },
            ..
        } if peer.rank == Rank::new(1) => message,
        other => panic!("{other}"),
    }
}

#[test]
fn who_asks_for_a_withdrawn_payload_is_told() {
    let meshes = Bed::new(2).meshes();
    offer(&meshes[1], 1, 0, 100);
    meshes[1].withdraw(call(0));
    let error = fetch(&meshes[0], 1, 0, 100).unwrap_err();
    assert!(raised(&error).contains("withdrawn"), "{error}");
    // Also if that happens during the wait, and though nothing was ever offered.
    let pull = meshes[0].pull(call(1), Rank::new(1), 100).unwrap();
    let waiting = pull.read_to_end(&mut |_| {
        meshes[1].withdraw(call(1));
        Ok(())
    });
    assert!(raised(&waiting.unwrap_err()).contains("withdrawn"));
    // The link can still be used.
    assert_eq!(meshes[1].links_accepted(), 1);
}

#[test]
fn an_offer_that_never_comes_is_given_up() {
    let bed = Bed {
        timeout: Duration::from_millis(200),
        ..Bed::new(2)
    };
    let meshes = bed.meshes();
    let error = fetch(&meshes[0], 1, 0, 100).unwrap_err();
    let Error::Timeout { missing, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(missing[0].rank, Rank::new(1));
}

#[test]
fn a_transfer_may_have_a_time_out_of_its_own() {
    let meshes = Bed::new(2).meshes();
    let own = Duration::from_millis(200);
    let pull = meshes[0].pull(call(0), Rank::new(1), 100).unwrap();
    let given_up = pull.within(own).read_to_end(&mut ignore).unwrap_err();
    let members = [0, 1].map(Rank::new);
    let part = RingPart {
        members: &members,
        hosts: &[0, 1],
        own: b"a",
        lens: &[1, 1],
        has_checksums: true,
        host_memory: None,
    };
    let ring = meshes[0].ring_within(own, call(1), &part, Vec::new(), &mut ignore);
    for error in [given_up, ring.unwrap_err().cause] {
        let Error::Timeout { timeout, hint, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(timeout, own);
        assert!(hint.contains("this call"), "{hint}");
    }
}

#[test]
fn only_aware_readers_fetch_offers_without_checksums() {
    let meshes = Bed::new(2).meshes();
    let len = 2_500_000;
    let offered = |epoch| {
        let own = Source::Memory(payload(1, len).into());
        meshes[1].offer_without_checksums(call(epoch), own);
    };
    offered(0);
    let pull = meshes[0].pull(call(0), Rank::new(1), len as u64).unwrap();
    let got = pull.without_checksums().read_to_end(&mut ignore).unwrap();
    assert!(got == payload(1, len));
    offered(1);
    let refused = fetch(&meshes[0], 1, 1, len).unwrap_err();
    assert!(matches!(refused, Error::Corrupt { .. }), "{refused}");
}

#[test]
fn a_length_that_was_announced_wrongly_is_noticed() {
    let meshes = Bed::new(2).meshes();
    offer(&meshes[1], 1, 0, 100);
    let error = fetch(&meshes[0], 1, 0, 101).unwrap_err();
    assert!(matches!(&error, Error::Corrupt { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("101 bytes were announced, 100 are offered")
    );
}

#[test]
fn a_file_that_is_too_short_is_explained() {
    let meshes = Bed::new(2).meshes();
    let source = Source::File {
        file: file(&payload(1, 2_500_000)),
        len: 4_000_000,
    };
    meshes[1].offer(call(0), source);
    let mut pull = meshes[0].pull(call(0), Rank::new(1), 4_000_000).unwrap();
    let error = loop {
        match pull.next_chunk(&mut ignore) {
            Ok(chunk) => assert!(chunk.is_some()),
            Err(error) => break error,
        }
    };
    assert!(
        raised(&error).contains("cannot read its payload to the end"),
        "{error}"
    );
    assert_eq!(pull.next_chunk(&mut ignore), Err(error));
}

#[test]
fn what_is_not_wanted_yet_stays_with_its_sender() {
    let len = 100_000_000;
    let proxies = std::sync::Mutex::new(Vec::new());
    let meshes = Bed::new(2).meshes_by(|_, address| {
        let proxy = Proxy::before(address.addresses[0], Meddling::default());
        let told = proxy.in_place_of(address);
        proxies.lock().unwrap().push(proxy);
        told
    });
    offer(&meshes[1], 1, 0, len);
    let mut pull = meshes[0].pull(call(0), Rank::new(1), len as u64).unwrap();
    pull.next_chunk(&mut ignore).unwrap().unwrap();
    // Rank 0 knows of two proxies; the second is before rank 1.
    let proxies = proxies.into_inner().unwrap();
    let passed = || proxies[1].seen.back.load(Ordering::SeqCst);
    let mut before = 0;
    while before != passed() {
        before = passed();
        std::thread::park_timeout(Duration::from_millis(200));
    }
    // Only the contents of three sockets have arrived.
    assert!(before < len / 2, "{before}");
    // Letting it go ends the link; a new transfer gets a new one.
    drop(pull);
    assert!(fetch(&meshes[0], 1, 0, len).unwrap() == payload(1, len));
    assert_eq!(meshes[1].links_accepted(), 2);
}

#[test]
fn shutting_down_waits_for_what_is_offered_and_being_fetched() {
    let meshes = Bed::new(2).meshes();
    let len = 30_000_000;
    offer(&meshes[1], 1, 0, len);
    let got = std::thread::scope(|scope| {
        let ending = scope.spawn(|| meshes[1].shut_down(Duration::from_secs(3600)));
        // Offered, and not asked for yet; then half-way.
        let mut pull = meshes[0].pull(call(0), Rank::new(1), len as u64).unwrap();
        let first = pull.next_chunk(&mut ignore).unwrap().unwrap();
        assert!(!ending.is_finished());
        meshes[1].withdraw(call(0));
        let rest = pull.read_to_end(&mut ignore).unwrap();
        [first.as_ref(), &rest].concat()
    });
    assert!(got == payload(1, len));
    // After that the mesh does not answer.
    let error = fetch(&meshes[0], 1, 0, len).unwrap_err();
    assert!(
        matches!(error, Error::Rendezvous { .. } | Error::PeerFailed { .. }),
        "{error}"
    );
    let closed = meshes[1].pull(call(0), Rank::new(0), 1).unwrap_err();
    assert!(closed.to_string().contains("closed"), "{closed}");
}

#[test]
fn shutdown_waits_for_fetches_of_withdrawn_offers() {
    let meshes = Bed::new(2).meshes();
    let len = 30_000_000;
    offer(&meshes[1], 1, 0, len);
    let mut pull = meshes[0].pull(call(0), Rank::new(1), len as u64).unwrap();
    let first = pull.next_chunk(&mut ignore).unwrap().unwrap();
    meshes[1].withdraw(call(0));
    let rest = std::thread::scope(|scope| {
        let ending = scope.spawn(|| meshes[1].shut_down(Duration::from_secs(3600)));
        // More is on its way than sockets hold, so it cannot end until the bytes are read.
        std::thread::park_timeout(Duration::from_millis(200));
        assert!(!ending.is_finished());
        pull.read_to_end(&mut ignore).unwrap()
    });
    assert!([first.as_ref(), &rest].concat() == payload(1, len));
}

#[test]
fn shutting_down_does_not_wait_for_ever() {
    let meshes = Bed::new(2).meshes();
    offer(&meshes[1], 1, 0, 100_000_000);
    let mut pull = meshes[0].pull(call(0), Rank::new(1), 100_000_000).unwrap();
    pull.next_chunk(&mut ignore).unwrap().unwrap();
    meshes[1].shut_down(Duration::from_millis(50));
    let lost = loop {
        match pull.next_chunk(&mut ignore) {
            Ok(chunk) => assert!(chunk.is_some()),
            Err(error) => break error,
        }
    };
    assert!(matches!(
        lost,
        Error::PeerFailed {
            failure: PeerFailure::LinkLost { .. },
            ..
        }
    ));
}

#[test]
fn calls_of_several_channels_do_not_mix() {
    let meshes = Bed::new(2).meshes();
    for channel in 0..3 {
        let own = payload(u32::try_from(channel).unwrap(), 1000);
        meshes[1].offer(on_channel(channel, 0), Source::Memory(own.into()));
    }
    for channel in [2, 0, 1] {
        let pull = meshes[0]
            .pull(on_channel(channel, 0), Rank::new(1), 1000)
            .unwrap();
        let expected = payload(u32::try_from(channel).unwrap(), 1000);
        assert!(pull.read_to_end(&mut ignore).unwrap() == expected);
    }
}
