//! Tests attacks from outside the job on the network between hosts, which are namespaces that only root can make.

use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
};

use crate::common::{
    RENDEZVOUS, Stage, TIMED_OUT, World, assert_nothing_left, everybody, hosts::Hosts, place,
    strangers,
};

const SECRET: &str = "8f4b2c6d1e0a9b7c5d3e1f2a4b6c8d0e8f4b2c6d1e0a9b7c5d3e1f2a4b6c8d0e";

/// The addresses at which the process listens on this port.
fn listens_at(pid: u32, port: u16) -> Vec<IpAddr> {
    let all = strangers::listening(pid).into_iter();
    let there = all.filter(|address| address.port() == port);
    let mut found: Vec<IpAddr> = there.map(|address| address.ip()).collect();
    found.sort_unstable();
    found
}

#[test]
fn nobody_from_elsewhere_comes_to_a_loopback_rendezvous() {
    let hosts = Hosts::new(2);
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
        // Processes that know the job and reach the host.
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
fn ranks_listen_only_at_the_requested_interfaces() {
    let before = "
        ip link add other0 type bridge
        ip address add 10.66.0.$1/24 dev other0
        ip link set other0 up
    ";
    let hosts = Hosts::with(2, before, "ip address add 10.77.0.$1/24 dev eth0");
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
        // Rank 0's own port, and that of links.
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
fn encryption_keeps_a_cut_off_job_from_marker_files() {
    let hosts = Hosts::with(2, "true", "ip address add 10.77.0.$1/24 dev eth0");
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
            // The attack works: without the setting, nothing prevents it.
            stage.succeed(everybody(2));
            continue;
        }
        let (error, _) = stage.fail_alike(everybody(2), RENDEZVOUS);
        assert!(error.contains("FSGATHER_ENCRYPT=1"), "{error}");
        assert!(error.contains("FSGATHER_INTERFACE"), "{error}");
        assert_nothing_left(place.path());
    }
}
