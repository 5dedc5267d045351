//! Tests failures while payloads move.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fsgather_control::mesh::{Mesh, Source};
use fsgather_core::{Error, PeerFailure, Rank};
use fsgather_testkit::pace::cases;

use crate::{
    bed::{Bed, call, check, ignore, on_all, payload, ranks, ring},
    proxy::{Meddling, Proxy},
};

/// Meshes that reach one rank only by a proxy.
fn with_proxy(bed: &Bed, before: u32, meddling: Meddling) -> (Vec<Mesh>, Proxy) {
    let (proxy, meddling) = (Mutex::new(None), Mutex::new(Some(meddling)));
    let meshes = bed.meshes_by(|rank, address| {
        if rank != before {
            return address;
        }
        let mut proxy = proxy.lock().unwrap();
        let proxy = proxy.get_or_insert_with(|| {
            let meddling = meddling.lock().unwrap().take().unwrap();
            Proxy::before(address.addresses[0], meddling)
        });
        proxy.in_place_of(address)
    });
    (meshes, proxy.into_inner().unwrap().unwrap())
}

#[test]
fn a_changed_byte_is_noticed_by_its_first_receiver() {
    let meddling = Meddling {
        flip: Some(2_500_000),
        ..Meddling::default()
    };
    // Rank 0's payload reaches rank 1 damaged.
    let (meshes, _proxy) = with_proxy(&Bed::new(3), 1, meddling);
    let got = ring(&meshes, call(0), &[3_000_000; 3]);
    match got[1].as_ref().unwrap_err() {
        Error::Corrupt {
            reason,
            writer: Some(writer),
            reader: Some(reader),
            ..
        } => {
            assert_eq!((writer.rank, reader.rank), (Rank::new(0), Rank::new(1)));
            assert!(reason.contains("chunk 2"), "{reason}");
        }
        other => panic!("{other}"),
    }
    // No rank got wrong bytes.
    for (rank, got) in got.into_iter().enumerate() {
        match got {
            Ok(got) => check(rank, &[3_000_000; 3], &got),
            Err(Error::Corrupt { .. } | Error::PeerFailed { .. }) => {}
            Err(other) => panic!("rank {rank}: {other}"),
        }
    }
}

#[test]
fn a_byte_of_a_pulled_payload_that_changes_is_noticed() {
    let meddling = Meddling {
        flip_back: Some(1_200_000),
        ..Meddling::default()
    };
    let (meshes, _proxy) = with_proxy(&Bed::new(2), 1, meddling);
    meshes[1].offer(call(0), Source::Memory(payload(1, 3_000_000).into()));
    let mut pull = meshes[0].pull(call(0), Rank::new(1), 3_000_000).unwrap();
    let first = pull.next_chunk(&mut ignore).unwrap().unwrap();
    assert!(first == payload(1, 1 << 20));
    let error = pull.next_chunk(&mut ignore).unwrap_err();
    assert!(matches!(&error, Error::Corrupt { .. }), "{error}");
    assert!(
        error.to_string().contains("written by rank 1 on n1"),
        "{error}"
    );
    assert!(
        error.to_string().contains("read by rank 0 on n0"),
        "{error}"
    );
}

#[test]
fn an_encrypted_byte_that_changes_ends_the_link() {
    let mut bed = Bed::new(2);
    bed.processes[1].boot_id = "another host".into();
    let meddling = Meddling {
        flip_back: Some(1_200_000),
        ..Meddling::default()
    };
    let (meshes, _proxy) = with_proxy(&bed, 1, meddling);
    meshes[1].offer(call(0), Source::Memory(payload(1, 3_000_000).into()));
    let pull = meshes[0].pull(call(0), Rank::new(1), 3_000_000).unwrap();
    let error = pull.read_to_end(&mut ignore).unwrap_err();
    assert!(error.to_string().contains("forged"), "{error}");
}

fn assert_lost(error: &Error, rank: u32) {
    match error {
        Error::PeerFailed {
            failure: PeerFailure::LinkLost { other, .. },
            ..
        } => {
            assert_eq!(other.rank, Rank::new(rank));
            assert_eq!(
                (&*other.host, other.pid),
                (&*format!("n{rank}"), 100 + rank)
            );
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_rank_that_leaves_mid_ring_is_named_by_its_neighbours() {
    let meshes = Bed::new(3).meshes();
    let stop = Error::config("enough");
    let got = on_all(&meshes, |rank, mesh| {
        let own = payload(rank, 20_000_000);
        let mut moved = 0;
        mesh.ring(call(0), &ranks(3), &own, &[20_000_000; 3], &mut |bytes| {
            moved += bytes;
            if rank == 1 && moved > 5_000_000 {
                return Err(stop.clone());
            }
            Ok(())
        })
    });
    assert_eq!(got[1], Err(stop.clone()));
    // Its left neighbour sends to it, its right one receives from it. One of them may learn of the other first.
    let failures: Vec<&Error> = [&got[0], &got[2]]
        .map(|got| got.as_ref().unwrap_err())
        .into();
    let other = |failure: &Error| match failure {
        Error::PeerFailed {
            failure: PeerFailure::LinkLost { other, .. },
            ..
        } => other.rank,
        other => panic!("{other}"),
    };
    let others: Vec<Rank> = failures.into_iter().map(other).collect();
    assert!(others.contains(&Rank::new(1)), "{others:?}");
    // The channel is of no use any more; others are.
    let lens = [1000; 3];
    for (rank, got) in ring(&meshes, crate::bed::on_channel(1, 0), &lens)
        .into_iter()
        .enumerate()
    {
        check(rank, &lens, &got.unwrap());
    }
}

#[test]
fn a_rank_that_goes_while_it_is_asked_is_named() {
    let meddling = Meddling {
        cut_back: Some(3_000_000),
        ..Meddling::default()
    };
    let (meshes, _proxy) = with_proxy(&Bed::new(2), 1, meddling);
    meshes[1].offer(call(0), Source::Memory(payload(1, 9_000_000).into()));
    let pull = meshes[0].pull(call(0), Rank::new(1), 9_000_000).unwrap();
    assert_lost(&pull.read_to_end(&mut ignore).unwrap_err(), 1);
}

#[test]
fn a_rank_that_does_not_come_is_named_when_its_time_is_over() {
    let bed = Bed {
        timeout: Duration::from_millis(300),
        ..Bed::new(2)
    };
    let meshes = bed.meshes();
    let calls = AtomicU64::new(0);
    let error = meshes[0]
        .ring(
            call(0),
            &ranks(2),
            &payload(0, 50_000_000),
            &[50_000_000; 2],
            &mut |_| {
                calls.fetch_add(1, Ordering::Relaxed);
                Ok(())
            },
        )
        .unwrap_err();
    match &error {
        Error::Timeout {
            missing, timeout, ..
        } => {
            assert_eq!(*timeout, bed.timeout);
            assert_eq!(missing.len(), 1);
            assert_eq!(missing[0].rank, Rank::new(1));
            assert_eq!(missing[0].process, Some(("n1".into(), 101)));
        }
        other => panic!("{other}"),
    }
    assert!(error.to_string().contains("FSGATHER_TIMEOUT"), "{error}");
    // Progress was called while nothing moved, so it could have stopped the call.
    assert!(calls.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_payload_that_stalls_is_given_up_when_its_time_is_over() {
    let (meshes, proxy) = with_proxy(&Bed::new(2), 1, Meddling::default());
    meshes[1].offer(call(0), Source::Memory(payload(1, 90_000_000).into()));
    let mut pull = meshes[0].pull(call(0), Rank::new(1), 90_000_000).unwrap();
    pull.next_chunk(&mut ignore).unwrap().unwrap();
    proxy.seen.holds_back.store(true, Ordering::SeqCst);
    // The time-out is short only for bytes that cannot arrive any more.
    let pull = pull.within(Duration::from_millis(300));
    let error = pull.read_to_end(&mut ignore).unwrap_err();
    proxy.seen.holds_back.store(false, Ordering::SeqCst);
    assert!(
        matches!(&error, Error::Timeout { missing, .. } if missing[0].rank == Rank::new(1)),
        "{error}"
    );
}

#[test]
fn an_error_of_progress_ends_a_transfer_at_once() {
    let meshes = Bed::new(2).meshes();
    meshes[1].offer(call(0), Source::Memory(payload(1, 9_000_000).into()));
    let stop = Error::config("enough");
    let mut pull = meshes[0].pull(call(0), Rank::new(1), 9_000_000).unwrap();
    let error = pull.next_chunk(&mut |_| Err(stop.clone())).unwrap_err();
    assert_eq!(error, stop);
    assert_eq!(pull.next_chunk(&mut ignore), Err(stop.clone()));
    // While nothing moves, too.
    let waiting = meshes[0].ring(call(1), &ranks(2), b"a", &[1, 1], &mut |bytes| {
        if bytes == 0 {
            Err(stop.clone())
        } else {
            Ok(())
        }
    });
    assert_eq!(waiting, Err(stop));
}

/// A mesh of two ranks in which rank 1 is as good as stopped: its host accepts connections, and no process answers.
fn with_a_stopped_rank(timeout: Duration) -> (Vec<Mesh>, Proxy) {
    let bed = Bed {
        timeout,
        ..Bed::new(2)
    };
    let (meshes, proxy) = with_proxy(&bed, 1, Meddling::default());
    proxy.seen.holds_back.store(true, Ordering::SeqCst);
    meshes[1].offer(call(0), Source::Memory(payload(1, 3_000_000).into()));
    (meshes, proxy)
}

#[test]
fn a_rank_stopped_before_linking_times_out_as_any_other() {
    let timeout = Duration::from_secs(3);
    let (meshes, _proxy) = with_a_stopped_rank(timeout);
    let mesh = &meshes[0];
    let mut told = None;
    let mut look = |_| {
        told = mesh.stalled(call(0)).or(told.take());
        Ok(())
    };
    let pull = mesh.pull(call(0), Rank::new(1), 3_000_000).unwrap();
    let error = pull.read_to_end(&mut look).unwrap_err();
    let (waits_for, idle) = told.unwrap();
    assert_eq!(waits_for, [Rank::new(1)]);
    assert!(idle >= timeout / 2, "{idle:?}");
    match error {
        Error::Timeout { missing, .. } => assert_eq!(missing[0].rank, Rank::new(1)),
        other => panic!("{other}"),
    }
    let error = mesh
        .prepare_for(call(0), Rank::new(1), timeout / 10, &mut ignore)
        .unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
}

#[test]
fn a_rank_that_goes_on_after_a_stop_is_reached() {
    // In full, longer than ranks of a world look for a way to each other before the first call.
    let stop = Duration::from_secs(cases(1, 11));
    let (meshes, proxy) = with_a_stopped_rank(Duration::from_secs(60));
    let mesh = &meshes[0];
    let mut look = |_| {
        let idle = mesh.stalled(call(0)).map(|(_, idle)| idle);
        if idle.is_some_and(|idle| idle >= stop) {
            proxy.seen.holds_back.store(false, Ordering::SeqCst);
        }
        Ok(())
    };
    let pull = mesh.pull(call(0), Rank::new(1), 3_000_000).unwrap();
    let got = pull.read_to_end(&mut look).unwrap();
    assert!(got == payload(1, 3_000_000));
    assert!(!proxy.seen.holds_back.load(Ordering::SeqCst));
}
