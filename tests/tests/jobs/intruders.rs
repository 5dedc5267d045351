//! Tests what those who are not of the job can try: on the wire between hosts, at the port, in the directory, with another secret.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::common::{
    CONFIG, RENDEZVOUS, Stage, TIMED_OUT, World, assert_nothing_left, double_mount::DoubleMount,
    everybody, hosts::Hosts, place, strangers,
};
use fsgather_testkit::pace::allowed;

const SECRET: &str = "8f4b2c6d1e0a9b7c5d3e1f2a4b6c8d0e8f4b2c6d1e0a9b7c5d3e1f2a4b6c8d0e";
const OTHER_SECRET: &str = "8f4b2c6d1e0a9b7c5d3e1f2a4b6c8d0e8f4b2c6d1e0a9b7c5d3e1f2a4b6c8d0f";

/// Where ranks find what rank 0 has left.
fn records_in(directory: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(directory.join("all_gather_via_filesys"));
    let paths = listed.into_iter().flatten().filter_map(Result::ok);
    let mut paths: Vec<PathBuf> = paths.map(|entry| entry.path()).collect();
    // The name is there before what is written under it.
    let is_whole = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.len() > 0);
    paths.retain(|path| name_of(path).starts_with("rendezvous-") && is_whole(path));
    paths
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().expect("a name");
    name.to_string_lossy().into_owned()
}

/// `rendezvous-KEY-`, and the rest.
fn parts(name: &str) -> (&str, &str) {
    let after_key = name.match_indices('-').nth(1).expect("a key").0 + 1;
    name.split_at(after_key)
}

#[test]
fn a_record_that_was_moved_under_another_key_leads_nowhere() {
    for control in ["tcp", "markers"] {
        let place = place();
        let world = |job: &str| {
            World::new(2, place.path())
                .with("FSGATHER_CONTROL", control)
                .with("FSGATHER_JOB", job)
        };
        let mine = world("mine");
        let its = world("its").with("FSGATHER_JOIN_TIMEOUT", "3s");
        let mut stage = Stage::new();
        // What the other job's key is like.
        let its_0 = stage.start(&mut its.rank(0, "join close"));
        stage.wait_until("a record", || !records_in(place.path()).is_empty());
        let record = records_in(place.path()).remove(0);
        let its_key = parts(&name_of(&record)).0.to_owned();
        stage.kill(its_0);
        stage.end(its_0);
        for left in records_in(place.path()) {
            fs::remove_file(left).expect("a file");
        }

        let my_0 = stage.start(&mut mine.rank(0, "join all_gather_bytes:100 close"));
        stage.wait_until("a record", || !records_in(place.path()).is_empty());
        let record = records_in(place.path()).remove(0);
        let moved = format!("{its_key}{}", parts(&name_of(&record)).1);
        let moved = record.with_file_name(moved);
        fs::rename(&record, &moved).expect("a directory of one's own");
        let its_1 = stage.start(&mut its.rank(1, "join all_gather_bytes:100 close"));
        let end = stage.end(its_1);
        assert_ne!(end.code, 0, "{}", stage.transcript());
        assert!(
            end.error().contains("of another job"),
            "{}",
            stage.transcript()
        );
        // The job goes on as if nothing had been.
        fs::rename(&moved, &record).expect("a directory of one's own");
        let my_1 = stage.start(&mut mine.rank(1, "join all_gather_bytes:100 close"));
        let ends = stage.end_all([my_0, my_1]);
        assert!(
            ends.iter().all(|end| end.code == 0),
            "{}",
            stage.transcript()
        );
    }
}

/// Where rank 0 of each job leaves its messages.
fn bulletins_in(directory: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(directory.join("all_gather_via_filesys"));
    let paths = listed.into_iter().flatten().filter_map(Result::ok);
    let mut paths: Vec<PathBuf> = paths.map(|entry| entry.path().join("out")).collect();
    paths.retain(|path| path.is_dir());
    paths
}

#[test]
fn messages_that_were_moved_from_another_job_decide_nothing() {
    let place = place();
    let world = |job: &str| {
        // So that colleagues may rename, as this test does.
        World::new(2, place.path())
            .with("FSGATHER_DIR_MODE", "0770")
            .with("FSGATHER_CONTROL", "markers")
            .with("FSGATHER_JOB", job)
    };
    let mut stage = Stage::new();
    stage.start_all(&world("mine"), |_| {
        "join at:first barrier at:decided close".into()
    });
    stage.wait_at([0, 1], "first");
    let mine = bulletins_in(place.path()).remove(0);
    let other = world("its");
    let its = [0, 1].map(|rank| stage.start(&mut other.rank(rank, "join barrier at:past close")));
    stage.wait_at(its, "past");
    let outs = bulletins_in(place.path());
    let its_out = outs.iter().find(|out| **out != mine).expect("another");

    // Rank 1 waits for the verdict that the other job has already; rank 0 has not come.
    stage.go(1);
    for bulletin in fs::read_dir(its_out).expect("a directory") {
        let bulletin = bulletin.expect("a file").path();
        if name_of(&bulletin).starts_with("bulletin-") {
            fs::rename(&bulletin, mine.join(name_of(&bulletin))).expect("a directory of one's own");
        }
    }
    // It looks several times a second.
    stage.let_pass(Duration::from_secs(1));
    let said = stage.transcript();
    assert!(!said.contains("at decided"), "{said}");
    stage.go(0);
    stage.wait_at([0, 1], "decided");
    stage.go_all([0, 1]);
    stage.go_all(its);
    stage.succeed([0, 1].into_iter().chain(its));
    assert_nothing_left(place.path());
}

#[test]
fn ranks_with_different_secrets_are_told_so_in_a_directory_too() {
    for control in ["tcp", "markers"] {
        for secrets in [
            [Some(SECRET), Some(OTHER_SECRET)],
            [None, Some(SECRET)],
            [Some(SECRET), None],
        ] {
            let place = place();
            let world = World::new(2, place.path())
                .with("FSGATHER_JOB", "secretive")
                .with("FSGATHER_CONTROL", control);
            let mut stage = Stage::new();
            for (rank, secret) in (0..).zip(secrets) {
                let world = match secret {
                    Some(secret) => world.clone().with("FSGATHER_SECRET", secret),
                    None => world.clone(),
                };
                stage.start(&mut world.rank(rank, "join all_gather_bytes:100 close"));
            }
            let started = Instant::now();
            let (error, _) = stage.fail_alike(everybody(2), RENDEZVOUS);
            assert!(error.contains("FSGATHER_SECRET"), "{error}");
            assert!(error.contains("rank 1"), "{error}");
            let took = started.elapsed();
            assert!(took < allowed(Duration::from_secs(15)), "{took:?}");
            assert_nothing_left(place.path());
        }
    }
}

#[test]
fn a_secret_that_all_ranks_have_is_mixed_in_and_disturbs_nobody() {
    for control in ["tcp", "markers"] {
        let place = place();
        let world = World::new(3, place.path())
            .with("FSGATHER_SECRET", SECRET)
            .with("FSGATHER_CONTROL", control);
        let mut stage = Stage::new();
        stage.start_all(&world, |_| "join all_gather_bytes:100000 close".into());
        stage.succeed(everybody(3));
        let ends = stage.end_all(everybody(3));
        assert!(ends.iter().all(|end| end.warnings().is_empty()), "{ends:?}");
        assert_nothing_left(place.path());
    }
}

/// Where the process listens, but for its links.
fn listens_at(pid: u32, port: u16) -> Vec<IpAddr> {
    let all = strangers::listening(pid).into_iter();
    let there = all.filter(|address| address.port() == port);
    let mut found: Vec<IpAddr> = there.map(|address| address.ip()).collect();
    found.sort_unstable();
    found
}

#[test]
fn nobody_from_elsewhere_comes_to_a_loopback_rendezvous() {
    let Some(hosts) = Hosts::new(2) else { return };
    for named in ["127.0.0.1", "[::1]", "localhost"] {
        let world = World::new(2, Path::new("/nonexistent"))
            .with("FSGATHER_TRANSPORT", "memory")
            .with("FSGATHER_JOB", "at home");
        let home = world
            .clone()
            .with("FSGATHER_RENDEZVOUS", &format!("tcp://{named}:60001"));
        let script = "join all_gather_bytes:1000000* at:here close";
        let mut stage = Stage::new();
        let root = stage.start(&mut hosts.rank(1, &home, 0, script));
        let pid = stage.pid(root);
        stage.wait_until("a listener", || !strangers::listening(pid).is_empty());
        // Who knows the job and reaches the host.
        let mut strangers_there = Vec::new();
        for address in ["10.77.0.1", "[fd77::1]"] {
            let abroad = world
                .clone()
                .with("FSGATHER_RENDEZVOUS", &format!("tcp://{address}:60001"))
                .with("FSGATHER_JOIN_TIMEOUT", "2s");
            strangers_there.push(stage.start(&mut hosts.rank(2, &abroad, 1, script)));
        }
        for end in stage.end_all(strangers_there) {
            assert_eq!(end.code, TIMED_OUT, "{}", stage.transcript());
            assert!(end.error().contains("refused"), "{end:?}");
        }
        let true_one = stage.start(&mut hosts.rank(1, &home, 1, script));
        stage.wait_at([root, true_one], "here");
        for rank in [root, true_one] {
            let addresses = strangers::listening(stage.pid(rank));
            let is_home = |address: &SocketAddr| address.ip().is_loopback();
            assert!(addresses.iter().all(is_home), "{named}: {addresses:?}");
        }
        stage.go_all([root, true_one]);
        stage.succeed([root, true_one]);
    }
}

#[test]
fn ranks_listen_at_the_interfaces_that_were_asked_for_and_at_no_other() {
    let before = "
        ip link add other0 type bridge
        ip address add 10.66.0.$1/24 dev other0
        ip link set other0 up
    ";
    let Some(hosts) = Hosts::with(2, before, "ip address add 10.77.0.$1/24 dev eth0") else {
        return;
    };
    let place = place();
    let world = World::new(2, place.path())
        .with("FSGATHER_TRANSPORT", "memory")
        .with("FSGATHER_JOB", "choosy");
    let wanted: [IpAddr; 2] = [[127, 0, 0, 1].into(), [10, 77, 0, 1].into()];
    let address = world
        .clone()
        .with("FSGATHER_RENDEZVOUS", "tcp://10.77.0.1:60001")
        .with("FSGATHER_SECRET", SECRET);
    for (world, what) in [(world, "a directory"), (address, "an address")] {
        let world = world.with("FSGATHER_INTERFACE", "eth0");
        let mut stage = Stage::new();
        let script = "join all_gather_bytes:1000000* at:here close";
        for rank in 0..2 {
            stage.start(&mut hosts.rank(rank + 1, &world, rank, script));
        }
        stage.wait_at(everybody(2), "here");
        let mut ports = strangers::ports_of(stage.pid(0));
        ports.sort_unstable();
        ports.dedup();
        // Rank 0's own, and that of links.
        assert_eq!(ports.len(), 2, "{what}: {ports:?}");
        for port in ports {
            let found = listens_at(stage.pid(0), port);
            let mut expected = wanted.to_vec();
            expected.push(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]));
            expected.sort_unstable();
            assert_eq!(found, expected, "{what}, port {port}");
        }
        stage.go_all(everybody(2));
        stage.succeed(everybody(2));
    }
}

#[test]
fn what_is_to_be_encrypted_does_not_move_to_files_that_others_carry() {
    let Some(mounts) = DoubleMount::new() else {
        return;
    };
    let world = mounts.world().with("FSGATHER_ENCRYPT", "1");
    // Marker files, as asked for.
    let markers = world.clone().with("FSGATHER_CONTROL", "markers");
    // Payload files, as asked for.
    let files = world
        .clone()
        .with("FSGATHER_TRANSPORT", "filesys")
        .with("FSGATHER_CONTROL", "tcp");
    for (world, code) in [(markers, CONFIG), (files, CONFIG)] {
        let mut stage = Stage::new();
        for rank in 0..2 {
            stage.start(&mut mounts.rank(&world, rank, "join all_gather_bytes:1000000 close"));
        }
        for end in stage.end_all(everybody(2)) {
            assert!(end.error().contains("FSGATHER_ENCRYPT=1"), "{end:?}");
            assert_eq!(end.code, code, "{}", stage.transcript());
        }
    }
    // Where nothing else was asked for, payloads take the way that is encrypted.
    let world = world.with("FSGATHER_TRANSPORT", "auto");
    let mut stage = Stage::new();
    for rank in 0..2 {
        stage.start(&mut mounts.rank(&world, rank, "join all_gather_bytes:1000000 close"));
    }
    stage.succeed(everybody(2));
    let warnings = stage.end(0).warnings().join("\n");
    assert!(warnings.contains("FSGATHER_ENCRYPT=1"), "{warnings}");
    assert!(warnings.contains("through memory"), "{warnings}");
}

#[test]
fn what_is_to_be_encrypted_does_not_move_to_marker_files_when_the_network_fails() {
    let Some(hosts) = Hosts::with(2, "true", "ip address add 10.77.0.$1/24 dev eth0") else {
        return;
    };
    for host in [1, 2] {
        hosts.on(host, "ip route add unreachable 10.77.0.$((3 - $1))/32");
    }
    let place = place();
    for encrypt in ["0", "1"] {
        let world = World::new(2, place.path())
            .with("FSGATHER_JOB", "cut off")
            .with("FSGATHER_ENCRYPT", encrypt);
        let mut stage = Stage::new();
        for rank in 0..2 {
            let script = "join all_gather_bytes:100 close";
            stage.start(&mut hosts.rank(rank + 1, &world, rank, script));
        }
        if encrypt == "0" {
            // The attack works: that is what happens if nothing was asked for.
            stage.succeed(everybody(2));
            continue;
        }
        let (error, _) = stage.fail_alike(everybody(2), RENDEZVOUS);
        assert!(error.contains("FSGATHER_ENCRYPT=1"), "{error}");
        assert!(error.contains("FSGATHER_INTERFACE"), "{error}");
        assert_nothing_left(place.path());
    }
}
