//! All implementations of the exchange pass one suite.

#![expect(clippy::unwrap_used, reason = "a check reports by panicking")]

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread,
    time::Duration,
};

use fsgather_control::{
    join::{self, Meeting},
    record::RendezvousRecord,
    solo, threads,
};
use fsgather_core::{Error, ErrorKind, Peer, ProcessId, Rank, Site, WorldSize};
use fsgather_testkit::{
    MemoryBackend,
    exchange_conformance::{self, RankExchange},
    pace::patience,
};
use uuid::Uuid;

fn process() -> ProcessId {
    ProcessId {
        host: "here".into(),
        boot_id: "this boot".into(),
        pid: std::process::id(),
        ..ProcessId::default()
    }
}

/// A rank that meets others on loopback.
fn config(board: &Arc<MemoryBackend>, rank: Rank, world_size: WorldSize) -> join::Config {
    let board = Arc::<MemoryBackend>::clone(board);
    join::Config {
        interfaces: Arc::new(|_, address| address.is_loopback()),
        ..join::Config::new(rank, world_size, process(), Meeting::Board(board))
    }
}

fn tcp_world(ranks: u32, timeout: Duration) -> Vec<RankExchange> {
    tcp_world_by(MemoryBackend::default(), ranks, timeout)
}

fn tcp_world_by(board: MemoryBackend, ranks: u32, timeout: Duration) -> Vec<RankExchange> {
    let board = Arc::new(board);
    let world_size = WorldSize::new(ranks).unwrap();
    let join = |rank: Rank| {
        let config = join::Config {
            timeout,
            ..config(&board, rank, world_size)
        };
        thread::spawn(move || join::join(&config).unwrap().exchange)
    };
    let joining: Vec<_> = world_size.ranks().map(join).collect();
    joining
        .into_iter()
        .map(|joining| joining.join().unwrap())
        .collect()
}

#[test]
fn solo_conforms() {
    exchange_conformance::run(
        &|_, _| {
            vec![solo(Peer {
                rank: Rank::ZERO,
                host: "here".into(),
                pid: 1,
            })]
        },
        1,
    );
}

#[test]
fn threads_conform() {
    let make = |ranks, timeout| threads(WorldSize::new(ranks).unwrap(), &process(), timeout);
    exchange_conformance::run(&make, 5);
}

#[test]
fn tcp_conforms() {
    exchange_conformance::run(&tcp_world, 4);
}

#[test]
fn ranks_that_have_joined_in_vain_are_told_who_has_not() {
    let board = Arc::new(MemoryBackend::default());
    let world_size = WorldSize::new(3).unwrap();
    let joining = [(0, 2), (1, 120)].map(|(rank, seconds)| {
        let config = join::Config {
            join_timeout: Duration::from_secs(seconds),
            ..config(&board, Rank::new(rank), world_size)
        };
        thread::spawn(move || join::join(&config).err().unwrap())
    });
    for told in joining.map(|joining| joining.join().unwrap()) {
        assert_eq!(told.kind(), ErrorKind::Timeout, "{told}");
        assert!(
            told.to_string()
                .contains("waiting for rank 2 (never joined)"),
            "{told}"
        );
    }
}

#[test]
fn rank_0_knows_that_a_rank_has_not_left() {
    let of_threads = threads(WorldSize::new(2).unwrap(), &process(), patience());
    for world in [of_threads, tcp_world(2, patience())] {
        thread::scope(|scope| {
            for exchange in &world {
                scope.spawn(|| exchange.barrier(Site::named("here")).unwrap());
            }
        });
        let cause = Error::config("a reason");
        assert!(!world[0].leave(Some(cause)).in_good_hands);
    }
}

#[test]
fn records_of_crashed_runs_neither_capture_nor_hang_a_world() {
    let stale = |address: SocketAddr| RendezvousRecord {
        communicator: Uuid::from_u128(7),
        secret: [7; 32],
        addresses: vec![address],
        markers: None,
        refusal: None,
        refuser: None,
        world_size: WorldSize::new(3).unwrap(),
        host: "here".into(),
        boot_id: "this boot".into(),
        network_namespace: 0,
        fingerprint: fsgather_control::job_credentials::JobFingerprint::default(),
    };
    // A port without a listener, one that belongs to another program now, which says nothing, another version, and no record at all.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut other_version = stale(closed).to_bytes();
    other_version[0] = 99;
    let board = MemoryBackend::with_leftovers(vec![
        stale(closed).to_bytes(),
        stale(silent.local_addr().unwrap()).to_bytes(),
        other_version,
        b"no record".to_vec(),
    ]);
    let world = tcp_world_by(board, 3, patience());
    thread::scope(|scope| {
        for exchange in world {
            scope.spawn(move || {
                exchange.barrier(Site::named("here")).unwrap();
                exchange.close(Site::named("end")).unwrap();
            });
        }
    });
}
