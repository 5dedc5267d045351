//! Tests the exchange over marker files with the suite of all exchanges, and worlds that move to it when TCP does not
//! work.

#![expect(clippy::unwrap_used, reason = "a check reports by panicking")]

use std::{
    net::IpAddr,
    path::Path,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use fsgather_control::{
    InterfaceFilter,
    join::{self, Config, Control, Meeting},
};
use fsgather_core::{Error, JobKey, ProcessId, Rank, Site, WorldSize};
use fsgather_store::{
    BackendDirectory, FileBackend, MarkerOwner, MessageDirFactory, check_writable, liveness,
    make_rendezvous, this_process,
};
use fsgather_testkit::{
    exchange_conformance::{self, RankExchange},
    pace::within_patience,
};

/// The facts that every rank of a test knows.
#[derive(Clone)]
struct Setting {
    control: Control,
    timeout: Duration,
    join_timeout: Duration,
    interfaces: Arc<InterfaceFilter>,
    /// True if each rank appears to be on a host of its own, false if all appear to be on one.
    apart: bool,
}

impl Setting {
    fn markers(timeout: Duration) -> Self {
        Self {
            control: Control::Markers,
            timeout,
            join_timeout: Duration::from_secs(60),
            interfaces: Arc::new(|_: &str, address: IpAddr| address.is_loopback()),
            apart: false,
        }
    }
}

fn config(directory: &Path, rank: Rank, world_size: WorldSize, setting: &Setting) -> Config {
    let me = this_process().unwrap();
    let process = if setting.apart {
        ProcessId {
            host: format!("n{rank}"),
            boot_id: format!("boot {rank}"),
            machine_id: format!("machine {rank}"),
            ..me.clone()
        }
    } else {
        me.clone()
    };
    let rendezvous = make_rendezvous(directory).unwrap();
    let own = check_writable(&rendezvous).unwrap();
    let places = vec![BackendDirectory {
        directory: rendezvous,
        own,
    }];
    let key = JobKey {
        uid: own.0,
        family: "test".into(),
        job: None,
        launch: None,
        attempt: None,
        world_size,
        number: 0,
        master: None,
    };
    let owner = MarkerOwner {
        process: process.clone(),
        uid: own.0,
        user: "me".into(),
        job: None,
        mode: 0o700,
    };
    let board = FileBackend::new(places.clone(), key.hash(), process.clone());
    Config {
        network_namespace: if setting.apart { rank.get().into() } else { 0 },
        timeout: setting.timeout,
        join_timeout: setting.join_timeout,
        interfaces: setting.interfaces.clone(),
        control: setting.control,
        mailboxes: Some(Arc::new(MessageDirFactory::new(places, owner))),
        is_running: Arc::new(move |process| !liveness(process, &me).has_ended()),
        ..Config::new(rank, world_size, process, Meeting::Board(Arc::new(board)))
    }
}

fn join(directory: &Path, ranks: u32, setting: &Setting) -> Vec<Result<RankExchange, Error>> {
    let world_size = WorldSize::new(ranks).unwrap();
    thread::scope(|scope| {
        let joining: Vec<_> = world_size
            .ranks()
            .map(|rank| {
                let config = config(directory, rank, world_size, setting);
                scope.spawn(move || join::join(&config).map(|joined| joined.exchange))
            })
            .collect();
        joining
            .into_iter()
            .map(|joining| joining.join().unwrap())
            .collect()
    })
}

fn barrier_and_close(world: Vec<RankExchange>) {
    thread::scope(|scope| {
        for exchange in world {
            scope.spawn(move || {
                exchange.barrier(Site::named("here")).unwrap();
                exchange.close(Site::named("end")).unwrap();
            });
        }
    });
}

fn left_in(directory: &Path) -> Vec<String> {
    std::fs::read_dir(directory.join("all_gather_via_filesys"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// A failed meeting leaves a refusal for ranks that arrive late, and nothing else.
fn assert_only_a_refusal_is_left_in(directory: &Path) {
    let left = left_in(directory);
    assert!(
        left.len() == 1 && left[0].starts_with("refusal-"),
        "{left:?}"
    );
}

#[test]
fn markers_conform() {
    // Several worlds are there at the same time, each in a place of its own.
    let places = Mutex::new(Vec::new());
    let make = |ranks, timeout| {
        let place = tempfile::tempdir().unwrap();
        let joined = join(place.path(), ranks, &Setting::markers(timeout));
        places.lock().unwrap().push(place);
        joined.into_iter().map(Result::unwrap).collect()
    };
    exchange_conformance::run(&make, 3);
}

#[test]
fn a_world_over_markers_leaves_nothing_behind() {
    let place = tempfile::tempdir().unwrap();
    let setting = Setting::markers(Duration::from_secs(60));
    let world = join(place.path(), 4, &setting);
    barrier_and_close(world.into_iter().map(Result::unwrap).collect());
    assert_eq!(left_in(place.path()), [""; 0]);
}

#[test]
fn a_world_moves_to_markers_when_a_rank_cannot_reach_rank_0() {
    let place = tempfile::tempdir().unwrap();
    // Rank 0 publishes only what means each host itself, and every rank is on its own.
    let setting = Setting {
        control: Control::Auto,
        apart: true,
        ..Setting::markers(Duration::from_secs(60))
    };
    let world = join(place.path(), 3, &setting);
    barrier_and_close(world.into_iter().map(Result::unwrap).collect());
    assert_eq!(left_in(place.path()), [""; 0]);
}

#[test]
fn with_tcp_only_an_unreachable_rank_0_fails_all_at_once() {
    let place = tempfile::tempdir().unwrap();
    let setting = Setting {
        control: Control::Tcp,
        apart: true,
        join_timeout: Duration::from_secs(3600),
        ..Setting::markers(Duration::from_secs(3600))
    };
    let mut told: Vec<String> = within_patience(|| join(place.path(), 2, &setting))
        .into_iter()
        .map(|joined| joined.map(drop).unwrap_err().to_string())
        .collect();
    told.dedup();
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(told[0].contains("rank 1 on "), "{told:?}");
    assert!(told[0].contains("cannot reach rank 0 over TCP"), "{told:?}");
    assert!(told[0].contains("FSGATHER_CONTROL=auto"), "{told:?}");
    assert_only_a_refusal_is_left_in(place.path());
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let place = tempfile::tempdir().unwrap();
    let setting = Setting {
        join_timeout: Duration::from_secs(2),
        ..Setting::markers(Duration::from_secs(60))
    };
    let world_size = WorldSize::new(3).unwrap();
    let told: Vec<Error> = thread::scope(|scope| {
        let joining: Vec<_> = [Rank::ZERO, Rank::new(2)]
            .map(|rank| config(place.path(), rank, world_size, &setting))
            .into_iter()
            .map(|config| scope.spawn(move || join::join(&config).map(drop).unwrap_err()))
            .collect();
        joining
            .into_iter()
            .map(|joining| joining.join().unwrap())
            .collect()
    });
    for error in told {
        let Error::Timeout { missing, .. } = &error else {
            panic!("{error}")
        };
        let ranks: Vec<u32> = missing.iter().map(|missing| missing.rank.get()).collect();
        assert_eq!(ranks, [1], "{error}");
    }
    assert_only_a_refusal_is_left_in(place.path());
}
