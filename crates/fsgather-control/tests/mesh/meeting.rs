//! Making links: accepted and refused ranks, and the errors.

use std::{
    io::Write,
    net::TcpStream,
    sync::{Mutex, atomic::Ordering},
};

use fsgather_control::mesh::{MeshAddress, Source};
use fsgather_core::{
    Error, Rank,
    hash::{Hash64, Hash128},
};
use uuid::Uuid;

use crate::{
    bed::{Bed, call, check, ignore, know_all, payload, ring},
    proxy::{Meddling, Proxy},
};

/// The result of a link from rank 0 of one bed to rank 1 of another one.
fn prepare_between(one: &Bed, other: &Bed) -> Result<(), Error> {
    let (dialling, answering) = (one.listen(0), other.listen(1));
    let addresses = [dialling.address(), answering.address()].map(Clone::clone);
    know_all(&dialling, addresses);
    dialling.prepare(Rank::new(1), &mut ignore)
}

#[test]
fn without_the_secret_or_for_another_world_there_is_no_link() {
    let bed = Bed::new(2);
    prepare_between(&bed, &bed).unwrap();
    let others = [
        Bed {
            secret: [8; 32],
            ..bed.clone()
        },
        Bed {
            communicator: Uuid::new_v4(),
            ..bed.clone()
        },
    ];
    for other in others {
        let error = prepare_between(&bed, &other).unwrap_err();
        assert!(matches!(error, Error::Rendezvous { .. }), "{error}");
    }
}

#[test]
fn only_the_rank_that_is_meant_answers() {
    let bed = Bed::new(3);
    let (dialling, wrong) = (bed.listen(0), bed.listen(2));
    // As if the addresses of ranks 1 and 2 had been mixed up.
    let addresses = [dialling.address(), wrong.address(), wrong.address()].map(Clone::clone);
    know_all(&dialling, addresses);
    assert!(dialling.prepare(Rank::new(1), &mut ignore).is_err());
    dialling.prepare(Rank::new(2), &mut ignore).unwrap();
}

#[test]
fn where_there_is_no_way_both_ranks_and_all_addresses_are_named() {
    let bed = Bed::new(2);
    let mesh = bed.listen(0);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let gone = MeshAddress {
        addresses: vec![address],
        ..mesh.address().clone()
    };
    know_all(&mesh, [mesh.address().clone(), gone]);
    let text = mesh
        .prepare(Rank::new(1), &mut ignore)
        .unwrap_err()
        .to_string();
    let parts = [
        "rank 0 on n0 (pid 100)",
        "rank 1 on n1 (pid 101)",
        &address.to_string(),
        "refused",
        "FSGATHER_INTERFACE",
        "FSGATHER_TRANSPORT=filesys",
    ];
    for part in parts {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn loopback_of_another_host_is_not_tried() {
    let mesh = Bed::new(2).listen(0);
    let elsewhere = MeshAddress {
        boot_id: "another host".into(),
        ..mesh.address().clone()
    };
    know_all(&mesh, [mesh.address().clone(), elsewhere]);
    let error = mesh.prepare(Rank::new(1), &mut ignore).unwrap_err();
    assert!(
        error.to_string().contains("no address that can be used"),
        "{error}"
    );
}

#[test]
fn an_error_of_progress_ends_the_search() {
    let mesh = Bed::new(2).listen(0);
    // Accepts connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = MeshAddress {
        addresses: vec![silent.local_addr().unwrap()],
        ..mesh.address().clone()
    };
    know_all(&mesh, [address.clone(), address]);
    let stop = Error::config("stop");
    let mut looks = 0;
    let error = mesh
        .prepare(Rank::new(1), &mut |_| {
            looks += 1;
            Err(stop.clone())
        })
        .unwrap_err();
    assert_eq!((error, looks), (stop, 1));
}

#[test]
fn a_prepared_link_is_used() {
    let meshes = Bed::new(2).meshes();
    meshes[0].prepare(Rank::new(1), &mut ignore).unwrap();
    meshes[0].prepare(Rank::new(1), &mut ignore).unwrap();
    meshes[0].prepare(Rank::new(0), &mut ignore).unwrap();
    meshes[1].offer(call(0), Source::Memory(payload(1, 10).into()));
    let pull = meshes[0].pull(call(0), Rank::new(1), 10).unwrap();
    assert!(pull.read_to_end(&mut ignore).unwrap() == payload(1, 10));
    assert_eq!(meshes[1].links_accepted(), 1);
}

#[test]
fn strangers_do_not_disturb() {
    let meshes = Bed::new(2).meshes();
    let address = meshes[1].address().addresses[0];
    let mut strangers: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    for (index, stranger) in strangers.iter_mut().enumerate() {
        // Silence, nonsense, and a valid beginning. Some are hung up on already.
        let _ = match index % 3 {
            0 => Ok(()),
            1 => stranger.write_all(&payload(9, 10_000)),
            _ => stranger.write_all(b"fsg\x01\x02\x00\x03\x00 and then nothing of the kind at all"),
        };
    }
    let lens = [2_000_000, 2_000_000];
    for (rank, got) in ring(&meshes, call(0), &lens).into_iter().enumerate() {
        check(rank, &lens, &got.unwrap());
    }
    assert_eq!(meshes[1].links_accepted(), 1);
}

/// The bytes between two ranks during a ring and a pull.
fn heard_between(bed: &Bed) -> Vec<u8> {
    let proxies = Mutex::new(Vec::new());
    let meshes = bed.meshes_by(|_, address| {
        let proxy = Proxy::before(address.addresses[0], Meddling::default());
        let told = proxy.in_place_of(address);
        proxies.lock().unwrap().push(proxy);
        told
    });
    let lens = [3_000_000, 1_500_000];
    for epoch in 0..2 {
        for (rank, got) in ring(&meshes, call(epoch), &lens).into_iter().enumerate() {
            check(rank, &lens, &got.unwrap());
        }
    }
    meshes[1].offer(call(2), Source::Memory(payload(1, 2_000_000).into()));
    let pull = meshes[0].pull(call(2), Rank::new(1), 2_000_000).unwrap();
    assert!(pull.read_to_end(&mut ignore).unwrap() == payload(1, 2_000_000));
    let proxies = proxies.into_inner().unwrap();
    let mut heard = Vec::new();
    for proxy in &proxies {
        heard.extend_from_slice(&proxy.seen.bytes.lock().unwrap());
        assert!(
            proxy.seen.back.load(Ordering::SeqCst) > 0
                || proxy.seen.bytes.lock().unwrap().is_empty()
        );
    }
    heard
}

/// Ranks 0 and 1 on hosts with these boot ids.
fn on_hosts(boot_ids: [&str; 2]) -> Bed {
    let mut bed = Bed::new(2);
    for (process, boot_id) in bed.processes.iter_mut().zip(boot_ids) {
        process.boot_id = boot_id.into();
    }
    bed
}

#[test]
fn only_payloads_between_hosts_are_encrypted() {
    let marks = [payload(0, 64), payload(1, 64)];
    let holds = |heard: &[u8], mark: &[u8]| memchr::memmem::find(heard, mark).is_some();
    let clear = heard_between(&on_hosts(["one host"; 2]));
    for mark in &marks {
        assert!(holds(&clear, mark));
    }
    // If the host is unknown, no rank can know that it is the same.
    for hosts in [["one host", "another host"], ["", ""]] {
        let sealed = heard_between(&on_hosts(hosts));
        assert!(!marks.iter().any(|mark| holds(&sealed, mark)), "{hosts:?}");
        assert!(sealed.len() > 7_000_000);
    }
}

/// A forged payload in the place of rank 1's, with all checks that a process of the world can make; returns the reader's result.
fn forged(hosts: [&str; 2]) -> Result<Vec<u8>, Error> {
    const LEN: usize = 160_064;
    /// Preamble, handshake, greeting and reply come before the payload where links are bare.
    const BEFORE: usize = 8 + 48 + 24 + 24;
    let bed = on_hosts(hosts);
    let mut forged = vec![0xbd; LEN];
    let check = Hash64::of(&forged).to_le_bytes();
    let digest = [
        bed.communicator.as_bytes().as_slice(),
        &0_u64.to_le_bytes(),
        &0_u64.to_le_bytes(),
        &1_u32.to_le_bytes(),
        &(LEN as u64).to_le_bytes(),
        &check,
    ]
    .concat();
    let digest = Hash128::of(&digest).to_le_bytes();
    forged.extend_from_slice(&check);
    forged.push(0);
    forged.extend_from_slice(&digest);
    let proxy = Mutex::new(None);
    let meshes = bed.meshes_by(|rank, address| {
        if rank != 1 {
            return address;
        }
        let mut proxy = proxy.lock().unwrap();
        let proxy = proxy.get_or_insert_with(|| {
            let meddling = Meddling {
                replace_back: Some((BEFORE, forged.clone())),
                ..Meddling::default()
            };
            Proxy::before(address.addresses[0], meddling)
        });
        proxy.in_place_of(address)
    });
    meshes[1].offer(call(0), Source::Memory(payload(1, LEN).into()));
    let pull = meshes[0].pull(call(0), Rank::new(1), LEN as u64).unwrap();
    pull.read_to_end(&mut ignore)
}

#[test]
fn a_forgery_between_hosts_with_checksums_is_refused() {
    // The forgery is a good one: checksums alone do not notice it.
    assert!(forged(["one host"; 2]).unwrap() == vec![0xbd; 160_064]);
    for hosts in [["one host", "another host"], ["", ""]] {
        let error = forged(hosts).unwrap_err().to_string();
        assert!(error.contains("a forged record came"), "{error}");
    }
}
