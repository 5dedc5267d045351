//! Payloads whose beginning is fetched before it is wanted.

use std::{sync::atomic::Ordering, thread, time::Duration};

use fsgather_control::mesh::{Mesh, MeshAddress, Pull, Source};
use fsgather_core::{Error, PeerFailure, Rank};

use crate::{
    bed::{Bed, call, ignore, know_all, payload},
    proxy::{Meddling, Proxy},
};

const CHUNK: usize = 1 << 20;

fn offer(mesh: &Mesh, rank: u32, len: usize) {
    mesh.offer(call(0), Source::Memory(payload(rank, len).into()));
}

fn ahead(mesh: &Mesh, from: u32, len: usize) -> Pull {
    let pull = mesh.pull(call(0), Rank::new(from), len as u64).unwrap();
    pull.ahead().unwrap()
}

/// The meshes of two ranks; the second is reached through the proxy.
fn behind(meddling: Meddling) -> (Vec<Mesh>, Proxy) {
    let bed = Bed::new(2);
    let meshes: Vec<Mesh> = (0..2).map(|rank| bed.listen(rank)).collect();
    let proxy = Proxy::before(meshes[1].address().addresses[0], meddling);
    let known = |mesh: &Mesh| MeshAddress {
        boot_id: "one host".into(),
        ..mesh.address().clone()
    };
    let addresses = [known(&meshes[0]), proxy.in_place_of(known(&meshes[1]))];
    know_all(&meshes[0], addresses.clone());
    know_all(&meshes[1], addresses);
    (meshes, proxy)
}

/// Waits until nothing has come back through a proxy for a while, but at least `least` bytes, and returns their number.
fn settled(proxy: &Proxy, least: usize) -> usize {
    let mut before = 0;
    loop {
        let now = proxy.seen.back.load(Ordering::SeqCst);
        if now == before && now >= least {
            return now;
        }
        before = now;
        thread::park_timeout(Duration::from_millis(200));
    }
}

#[test]
fn payloads_of_several_ranks_come_while_none_is_wanted() {
    let len = 100_000;
    let meshes = Bed::new(5).meshes();
    let pulls: Vec<Pull> = (1..5).map(|rank| ahead(&meshes[0], rank, len)).collect();
    // All have been asked before anything of the first one is there to be read.
    for (rank, mesh) in (1..).zip(&meshes[1..]) {
        while mesh.links_accepted() == 0 {
            thread::park_timeout(Duration::from_millis(1));
        }
        offer(mesh, rank, len);
    }
    for (rank, pull) in (1..).zip(pulls) {
        assert!(pull.read_to_end(&mut ignore).unwrap() == payload(rank, len));
    }
    // Their links are used again.
    for rank in 1..5 {
        let again = ahead(&meshes[0], rank, len);
        assert!(again.read_to_end(&mut ignore).unwrap() == payload(rank, len));
    }
    assert!(meshes[1..].iter().all(|mesh| mesh.links_accepted() == 1));
}

#[test]
fn what_follows_the_beginning_stays_with_its_sender() {
    let len = 100_000_000;
    let (meshes, proxy) = behind(Meddling::default());
    offer(&meshes[1], 1, len);
    let mut pull = ahead(&meshes[0], 1, len);
    // Only the contents of three sockets besides it have arrived.
    assert!(settled(&proxy, CHUNK) < len / 2);
    let first = pull.next_chunk(&mut ignore).unwrap().unwrap();
    assert_eq!(first.len(), CHUNK);
    assert!(first == payload(1, len)[..CHUNK]);
    let rest = pull.read_to_end(&mut ignore).unwrap();
    assert!(rest == payload(1, len)[CHUNK..]);
}

#[test]
fn what_nobody_wants_any_more_ends_its_link_and_nothing_else() {
    let len = 100_000_000;
    let (meshes, proxy) = behind(Meddling::default());
    offer(&meshes[1], 1, len);
    let pull = ahead(&meshes[0], 1, len);
    settled(&proxy, CHUNK);
    drop(pull);
    // This one has not been asked for yet.
    drop(ahead(&meshes[0], 1, len));
    let again = ahead(&meshes[0], 1, len);
    assert!(again.read_to_end(&mut ignore).unwrap() == payload(1, len));
    meshes[1].withdraw(call(0));
    // So no fetch is left that this would wait for.
    meshes[1].shut_down(Duration::from_secs(60));
}

#[test]
fn what_has_failed_before_it_was_wanted_is_begun_anew() {
    let bed = Bed::new(3);
    let meshes: Vec<Mesh> = (0..3).map(|rank| bed.listen(rank)).collect();
    let know = |rank: u32, mesh: &Mesh| {
        let address = MeshAddress {
            boot_id: "one host".into(),
            ..mesh.address().clone()
        };
        meshes[0].know(Rank::new(rank), address).unwrap();
    };
    let len = 3_000_000;
    offer(&meshes[1], 1, len);
    offer(&meshes[2], 2, len);
    let mut unknown = ahead(&meshes[0], 1, len);
    know(2, &meshes[2]);
    let mut lost = ahead(&meshes[0], 2, len);
    // The first one runs as long as this is waited for.
    let other = meshes[0].pull(call(0), Rank::new(2), len as u64).unwrap();
    assert!(other.read_to_end(&mut ignore).unwrap() == payload(2, len));
    know(1, &meshes[1]);
    let mut got = unknown.next_chunk(&mut ignore).unwrap().unwrap().to_vec();
    got.extend(unknown.read_to_end(&mut ignore).unwrap());
    assert!(got == payload(1, len));
    // A part of the second one has arrived, and its link ends.
    meshes[2].shut_down(Duration::from_millis(50));
    let anew = bed.listen(2);
    offer(&anew, 2, len);
    know(2, &anew);
    let mut got = lost.next_chunk(&mut ignore).unwrap().unwrap().to_vec();
    got.extend(lost.read_to_end(&mut ignore).unwrap());
    assert!(got == payload(2, len));
}

#[test]
fn who_goes_while_it_is_wanted_is_named() {
    let meshes = Bed::new(2).meshes();
    let mut went = false;
    let lost = ahead(&meshes[0], 1, 100).read_to_end(&mut |_| {
        if meshes[1].links_accepted() > 0 && !went {
            went = true;
            meshes[1].shut_down(Duration::ZERO);
        }
        Ok(())
    });
    let Error::PeerFailed {
        failure: PeerFailure::LinkLost { other, .. },
        ..
    } = lost.unwrap_err()
    else {
        panic!("another error than of a link that is lost");
    };
    assert_eq!(other.rank, Rank::new(1));
}

#[test]
fn who_never_offers_is_named_when_its_time_is_over() {
    let bed = Bed {
        timeout: Duration::from_millis(200),
        ..Bed::new(2)
    };
    let meshes = bed.meshes();
    let mut pull = ahead(&meshes[0], 1, 100);
    let error = pull.next_chunk(&mut ignore).unwrap_err();
    let Error::Timeout { missing, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(missing[0].rank, Rank::new(1));
    assert_eq!(pull.next_chunk(&mut ignore), Err(error));
}

#[test]
fn damage_is_told_though_it_came_before_it_was_wanted() {
    let (meshes, proxy) = behind(Meddling {
        flip_back: Some(50_000),
        ..Meddling::default()
    });
    offer(&meshes[1], 1, 100_000);
    let mut pull = ahead(&meshes[0], 1, 100_000);
    settled(&proxy, 100_000);
    let error = pull.next_chunk(&mut ignore).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    assert_eq!(pull.next_chunk(&mut ignore), Err(error));
}
