//! Payloads that go over the network alone, between hosts: whatever addresses, names, firewalls and ports are
//! like.

mod common;

use std::time::{Duration, Instant};

use common::{
    End, RENDEZVOUS, Stage, World, assert_nothing_left, everybody, hosts::Hosts, place, strangers,
};

const SECRET: &str = "8f4b2c6d1e0a9b7c5d3e1f2a4b6c8d0e8f4b2c6d1e0a9b7c5d3e1f2a4b6c8d0e";

/// Payloads of some MiB to all, and to a root that is not rank 0.
const STEPS: &str = "join all_gather_bytes:1500000* gather_bytes:1:1500000* gather:0:300000 close";

/// Ranks that meet in a directory, and send payloads over the network.
fn through_memory(ranks: u32, directory: &std::path::Path) -> World {
    World::new(ranks, directory)
        .with("FSGATHER_TRANSPORT", "memory")
        .with("FSGATHER_JOIN_TIMEOUT", "20s")
}

/// Ranks that meet at an address.
fn at(address: &str, ranks: u32) -> World {
    through_memory(ranks, std::path::Path::new("/nonexistent"))
        .with("FSGATHER_RENDEZVOUS", &format!("tcp://{address}"))
        .with("FSGATHER_SECRET", SECRET)
}

/// Starts all ranks, as many on each host as on any other, the first ones on the first host.
fn start(stage: &mut Stage, hosts: &Hosts, world: &World, script: impl Fn(u32) -> String) {
    let each = world.ranks / hosts.all().count() as u32;
    for rank in 0..world.ranks {
        stage.start(&mut hosts.rank(rank / each + 1, world, rank, &script(rank)));
    }
}

/// Has all ranks take the same steps and end well; how they ended, and how long it took.
fn succeed(hosts: &Hosts, world: &World, steps: &str) -> (Vec<End>, Duration) {
    let started = Instant::now();
    let mut stage = Stage::new();
    start(&mut stage, hosts, world, |_| steps.into());
    stage.succeed(everybody(world.ranks));
    let took = started.elapsed();
    println!("{took:?}\n{}", stage.transcript());
    (stage.end_all(everybody(world.ranks)), took)
}

fn warnings(ends: &[End]) -> Vec<&str> {
    ends.iter().flat_map(End::warnings).collect()
}

#[test]
fn hosts_without_a_shared_directory_hand_payloads_over_directly() {
    let Some(hosts) = Hosts::new(3) else { return };
    let place = place();
    hosts.unshare_directory(place.path());
    for transport in ["memory", "auto"] {
        let world = World::new(6, place.path())
            .with("FSGATHER_RENDEZVOUS", "tcp://10.77.0.1:60001")
            .with("FSGATHER_SECRET", SECRET)
            .with("FSGATHER_TRANSPORT", transport);
        let (ends, _) = succeed(&hosts, &world, STEPS);
        let warnings = warnings(&ends);
        if transport == "memory" {
            assert_eq!(warnings, [""; 0]);
        } else {
            assert_eq!(warnings.len(), 1, "{warnings:?}");
            assert!(warnings[0].contains("is not shared"), "{warnings:?}");
        }
        for host in hosts.all() {
            assert_nothing_left(&hosts.seen_from(host, place.path()));
        }
    }
}

/// Beside the network that connects hosts, each has one that leads nowhere, which comes first.
const DEAD_ENDS: &str = "
    ip link add a0 type bridge
    ip address add 10.66.0.$1/24 dev a0
    ip link set a0 up
    ip link add docker0 type bridge
    ip address add 172.17.0.1/16 dev docker0
    ip link set docker0 up
";

fn addresses_with_dead_ends() -> String {
    let swallow = (1..=4).map(|other| {
        format!(
            "[ $1 = {other} ] || {{
               ip route add 10.66.0.{other}/32 dev eth0
               ip neighbour replace 10.66.0.{other} lladdr 02:00:00:00:00:99 dev eth0 nud permanent
             }}\n"
        )
    });
    "ip address add 10.77.0.$1/24 dev eth0\n".to_owned() + &swallow.collect::<String>()
}

#[test]
fn addresses_that_lead_nowhere_cost_no_time() {
    let Some(hosts) = Hosts::with(3, DEAD_ENDS, &addresses_with_dead_ends()) else {
        return;
    };
    let place = place();
    // On every host the same port, so that the address that all have leads to oneself.
    let world = through_memory(3, place.path()).with("FSGATHER_PORT", "60001-60002");
    let (ends, took) = succeed(&hosts, &world, STEPS);
    assert_eq!(warnings(&ends), [""; 0]);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

const ONLY_IPV6: &str = "ip address add fd77::$1/64 dev eth0 nodad";

#[test]
fn ipv6_alone_is_enough() {
    let Some(hosts) = Hosts::with(3, "true", ONLY_IPV6) else {
        return;
    };
    let place = place();
    for world in [through_memory(3, place.path()), at("[fd77::1]:60001", 3)] {
        let (ends, _) = succeed(&hosts, &world, STEPS);
        assert_eq!(warnings(&ends), [""; 0]);
    }
    assert_nothing_left(place.path());
}

#[test]
fn link_local_addresses_alone_are_told() {
    let Some(hosts) = Hosts::with(2, "true", "true") else {
        return;
    };
    let place = place();
    let world = through_memory(2, place.path()).with("FSGATHER_CONTROL", "tcp");
    let mut stage = Stage::new();
    start(&mut stage, &hosts, &world, |_| "join close".into());
    let (error, _) = stage.fail_alike(everybody(2), RENDEZVOUS);
    println!("{error}");
}

#[test]
fn a_name_that_means_the_own_host_on_rank_0_only_is_fine() {
    let Some(hosts) = Hosts::new(2) else { return };
    hosts.on(1, "printf '127.0.1.1 node1\\n10.77.0.2 node2\\n' >/etc/hosts");
    let (ends, _) = succeed(&hosts, &at("node1:60001", 2), STEPS);
    assert_eq!(warnings(&ends), [""; 0]);
}

#[test]
fn a_name_that_means_the_own_host_everywhere_is_told() {
    let Some(hosts) = Hosts::new(2) else { return };
    hosts.on_all("printf '127.0.0.1 localhost node1\\n' >/etc/hosts");
    let world = at("node1:60001", 2).with("FSGATHER_JOIN_TIMEOUT", "2s");
    let mut stage = Stage::new();
    start(&mut stage, &hosts, &world, |_| STEPS.into());
    let ends = stage.end_all(everybody(2));
    println!("{}", stage.transcript());
    // Where they meet in a directory no name is looked up.
    let place = place();
    let (ends, _) = succeed(&hosts, &through_memory(2, place.path()), STEPS);
    assert_eq!(warnings(&ends), [""; 0]);
}

/// How packets from one host to another are treated.
#[derive(Clone, Copy)]
enum Block {
    /// They vanish.
    Swallow,
    /// Whoever sends them is told that this cannot be.
    Refuse,
    /// The same, but for answers to what the other one has begun.
    RefuseNew,
}

const PORTS: &str = "61001-61009";

fn block(hosts: &Hosts, how: Block, from: u32, to: u32) {
    let script = match how {
        Block::Swallow => format!(
            "ip neighbour replace 10.77.0.{to} lladdr 02:00:00:00:00:99 dev eth0 nud permanent"
        ),
        Block::Refuse => format!("ip route add unreachable 10.77.0.{to}/32"),
        Block::RefuseNew => {
            format!("ip rule add to 10.77.0.{to} ipproto tcp dport {PORTS} unreachable")
        }
    };
    hosts.on(from, &script);
}

/// Three or four ranks on hosts of their own of which two cannot reach each other; how long it took.
fn goes_through_rank_0(ranks: u32, how: Block, from: u32, to: u32) -> Duration {
    let Some(hosts) = Hosts::with(ranks, "true", "ip address add 10.77.0.$1/24 dev eth0") else {
        return Duration::ZERO;
    };
    block(&hosts, how, from + 1, to + 1);
    if !matches!(how, Block::RefuseNew) {
        block(&hosts, how, to + 1, from + 1);
    }
    let place = place();
    let world = through_memory(ranks, place.path()).with("FSGATHER_PORT", PORTS);
    let (ends, took) = succeed(&hosts, &world, STEPS);
    let warnings = warnings(&ends);
    let [warning] = warnings[..] else {
        panic!("{warnings:?}");
    };
    assert!(warning.contains("go through rank 0"), "{warning}");
    let named = |rank: u32| format!("rank {rank} on node{} (pid ", rank + 1);
    let way = format!("{}", named(from));
    assert!(warning.contains(&way) && warning.contains(&named(to)), "{warning}");
    took
}

#[test]
fn neighbours_that_cannot_reach_each_other_go_through_rank_0() {
    let took = goes_through_rank_0(3, Block::Refuse, 1, 2);
    assert!(took < Duration::from_secs(6), "{took:?}");
}

#[test]
fn neighbours_whose_packets_vanish_go_through_rank_0() {
    let took = goes_through_rank_0(3, Block::Swallow, 1, 2);
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn ranks_that_are_no_neighbours_and_cannot_reach_each_other_go_through_rank_0() {
    goes_through_rank_0(4, Block::Refuse, 1, 3);
}

#[test]
fn a_way_back_is_not_enough() {
    goes_through_rank_0(4, Block::RefuseNew, 0, 2);
}

#[test]
fn ports_and_interfaces_are_those_that_were_asked_for() {
    let dead_ends = DEAD_ENDS;
    let Some(hosts) = Hosts::with(2, dead_ends, "ip address add 10.77.0.$1/24 dev eth0") else {
        return;
    };
    let place = place();
    let world = through_memory(4, place.path())
        .with("FSGATHER_PORT", "61001-61003")
        .with("FSGATHER_INTERFACE", "eth0");
    let mut stage = Stage::new();
    start(&mut stage, &hosts, &world, |_| {
        "join all_gather_bytes:1000000 at:here gather_bytes:1:1500000* close".into()
    });
    stage.wait_at(everybody(4), "here");
    for rank in 0..4 {
        let ports = strangers::ports_of(stage.pid(rank));
        println!("{rank}: {ports:?}");
    }
    stage.go_all(everybody(4));
    stage.succeed(everybody(4));
    println!("{}", stage.transcript());
}

#[test]
fn too_few_ports_are_told_and_payloads_go_through_rank_0() {
    let Some(hosts) = Hosts::new(2) else { return };
    let place = place();
    let world = through_memory(6, place.path()).with("FSGATHER_PORT", "61001-61003");
    let (ends, _) = succeed(&hosts, &world, STEPS);
    let warnings = warnings(&ends);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("FSGATHER_PORT"), "{warnings:?}");
}

/// Three ranks on hosts whose network is slow, so that there is time for accidents.
fn slowly(step: &str) -> Option<(Hosts, Stage, tempfile::TempDir)> {
    let hosts = Hosts::new(3)?;
    hosts.slow_down(100);
    let place = place();
    let world = through_memory(3, place.path());
    let mut stage = Stage::new();
    start(&mut stage, &hosts, &world, |_| {
        format!("join {step} at:through close")
    });
    Some((hosts, stage, place))
}

#[test]
fn a_rank_killed_in_the_middle_of_a_ring_is_named_by_all() {
    for victim in [1, 0] {
        let Some((hosts, mut stage, _place)) = slowly("all_gather_bytes:40000000") else {
            return;
        };
        stage.wait_until("a part", || hosts.sent_by(2) > 5_000_000);
        let killed = stage.kill(victim);
        let ends = stage.end_all(common::others(3, victim));
        println!("{:?}\n{}", ends.iter().map(|end| end.at - killed).collect::<Vec<_>>(), stage.transcript());
    }
}

#[test]
fn a_rank_killed_while_the_root_fetches_its_payload() {
    for victim in [2, 0] {
        let Some((hosts, mut stage, _place)) = slowly("gather_bytes:0:40000000") else {
            return;
        };
        stage.wait_until("a part", || hosts.sent_by(3) > 5_000_000);
        stage.wait_at([1], "through");
        let killed = stage.kill(victim);
        stage.go(1);
        let ends = stage.end_all(common::others(3, victim));
        println!("{:?}\n{}", ends.iter().map(|end| end.at - killed).collect::<Vec<_>>(), stage.transcript());
    }
}
