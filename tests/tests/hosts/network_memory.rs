//! Payloads that only travel over the network, between hosts with all kinds of addresses, names, firewalls and ports. Hosts are namespaces,
//! which only root can make.
#![expect(
    clippy::panic,
    reason = "functions that tests share fail them in the same way"
)]

use std::{
    collections::BTreeSet,
    path::Path,
    time::{Duration, Instant},
};

use crate::common::{
    End, PEER_FAILED, RENDEZVOUS, Stage, TIMED_OUT, World, assert_nothing_left,
    build::wiretap,
    everybody,
    hosts::{Hosts, PLAIN, through_memory},
    name_on, others, place, strangers,
};
use rustix::process::Signal;

const SECRET: &str = "8f4b2c6d1e0a9b7c5d3e1f2a4b6c8d0e8f4b2c6d1e0a9b7c5d3e1f2a4b6c8d0e";

/// Payloads of some MiB to all, and to a root other than rank 0.
const STEPS: &str = "join all_gather_bytes:1500000* gather_bytes:1:1500000* gather:0:300000 close";

/// Beside the network that connects hosts, each host has two others that lead nowhere. Their addresses come first; one address is the same
/// on all hosts, so that it leads back to the host itself.
const DEAD_ENDS: &str = "
    ip link add a0 type bridge
    ip address add 10.66.0.$1/24 dev a0
    ip link set a0 up
    ip link add docker0 type bridge
    ip address add 172.17.0.1/16 dev docker0
    ip link set docker0 up
";

/// Ranks that meet at an address.
fn at(address: &str, ranks: u32) -> World {
    through_memory(ranks, Path::new("/nonexistent"))
        .with("FSGATHER_RENDEZVOUS", &format!("tcp://{address}"))
        .with("FSGATHER_SECRET", SECRET)
}

/// Starts all ranks, the same number on each host, the first ones on the first host.
fn start(stage: &mut Stage, hosts: &Hosts, world: &World, steps: &str) {
    let each = world.ranks / hosts.count();
    for rank in 0..world.ranks {
        stage.start(&mut hosts.rank(rank / each + 1, world, rank, steps));
    }
}

/// Runs all ranks with the same steps until they succeed; returns their warnings.
fn succeed(hosts: &Hosts, world: &World, steps: &str) -> Vec<String> {
    let mut stage = Stage::new();
    start(&mut stage, hosts, world, steps);
    stage.succeed(everybody(world.ranks));
    let ends = stage.end_all(everybody(world.ranks));
    let warnings = ends.iter().flat_map(End::warnings);
    warnings.map(str::to_owned).collect()
}

/// The same without a warning.
fn succeed_quietly(hosts: &Hosts, world: &World, steps: &str) {
    assert_eq!(succeed(hosts, world, steps), [""; 0]);
}

/// The same with one warning, that payloads go through rank 0.
fn succeed_through_rank_0(hosts: &Hosts, world: &World) -> String {
    let mut warnings = succeed(hosts, world, STEPS);
    let (Some(warning), true) = (warnings.pop(), warnings.is_empty()) else {
        panic!("{warnings:?}");
    };
    let told = "large payloads go through rank 0, which is slower: ";
    assert!(warning.contains(told), "{warning}");
    warning
}

#[test]
fn hosts_without_a_shared_directory_hand_payloads_over_directly() {
    let hosts = Hosts::new(3);
    let place = place();
    hosts.unshare_directory(place.path());
    for transport in ["memory", "auto"] {
        let world = World::new(6, place.path())
            .with("FSGATHER_RENDEZVOUS", "tcp://10.77.0.1:60001")
            .with("FSGATHER_SECRET", SECRET)
            .with("FSGATHER_TRANSPORT", transport);
        let warnings = succeed(&hosts, &world, STEPS);
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

#[test]
fn addresses_that_lead_nowhere_or_to_oneself_cost_no_time() {
    let swallow = (1..=3).map(|other| {
        format!(
            "[ $1 = {other} ] || {{
               ip route add 10.66.0.{other}/32 dev eth0
               ip neighbour replace 10.66.0.{other} lladdr 02:00:00:00:00:99 dev eth0 nud permanent
             }}\n"
        )
    });
    let addresses = format!("{PLAIN}\n{}", swallow.collect::<String>());
    let hosts = Hosts::with(3, DEAD_ENDS, &addresses);
    let place = place();
    // The same ports on every host.
    let world = through_memory(3, place.path()).with("FSGATHER_PORT", "61001-61002");
    let started = Instant::now();
    succeed_quietly(&hosts, &world, STEPS);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn ipv6_alone_is_enough() {
    let hosts = Hosts::with(3, "true", "ip address add fd77::$1/64 dev eth0 nodad");
    let place = place();
    succeed_quietly(&hosts, &through_memory(3, place.path()), STEPS);
    succeed_quietly(&hosts, &at("[fd77::1]:60001", 3), STEPS);
    assert_nothing_left(place.path());
}

#[test]
fn hosts_with_link_local_addresses_alone_are_told() {
    let hosts = Hosts::with(2, "true", "true");
    let place = place();
    let world = through_memory(2, place.path()).with("FSGATHER_CONTROL", "tcp");
    let mut stage = Stage::new();
    start(&mut stage, &hosts, &world, "join close");
    let (error, _) = stage.fail_alike(everybody(2), RENDEZVOUS);
    let name = name_on("node2", 1, stage.pid(1));
    let told = format!("{name} cannot reach rank 0 over TCP");
    assert!(error.contains(&told), "{error}");
    assert!(error.contains("FSGATHER_INTERFACE"), "{error}");
    assert_nothing_left(place.path());
}

#[test]
fn a_name_may_mean_the_own_host_where_rank_0_is() {
    let hosts = Hosts::new(2);
    hosts.on(
        1,
        "printf '127.0.1.1 node1\\n10.77.0.2 node2\\n' >/etc/hosts",
    );
    succeed_quietly(&hosts, &at("node1:60001", 2), STEPS);
}

#[test]
fn a_host_name_local_everywhere_fails_only_an_address() {
    let hosts = Hosts::new(2);
    hosts.on_all("printf '127.0.0.1 localhost node1 node2\\n' >/etc/hosts");
    let world = at("node1:60001", 2).with("FSGATHER_JOIN_TIMEOUT", "2s");
    let mut stage = Stage::new();
    start(&mut stage, &hosts, &world, STEPS);
    let ends = stage.end_all(everybody(2));
    for end in &ends {
        assert_eq!(end.code, TIMED_OUT, "{}", stage.transcript());
    }
    let told = ends[1].error();
    assert!(
        told.contains("tcp://node1:60001") && told.contains(", which is this host itself"),
        "{told}"
    );
    let place = place();
    succeed_quietly(&hosts, &through_memory(2, place.path()), STEPS);
}

/// The treatment of packets from one host to another.
#[derive(Clone, Copy)]
enum Block {
    /// They vanish.
    Swallow,
    /// The sender gets an error.
    Refuse,
    /// The same, except for answers to connections of the other host.
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

/// Ranks on hosts of their own, one of which cannot reach another: payloads go through rank 0, with one warning that names both.
fn goes_through_rank_0(ranks: u32, how: Block, from: u32, to: u32) {
    let hosts = Hosts::with(ranks, "true", PLAIN);
    block(&hosts, how, from + 1, to + 1);
    if !matches!(how, Block::RefuseNew) {
        block(&hosts, how, to + 1, from + 1);
    }
    let place = place();
    let world = through_memory(ranks, place.path()).with("FSGATHER_PORT", PORTS);
    let warning = succeed_through_rank_0(&hosts, &world);
    let named = |rank: u32| format!("rank {rank} on node{} (pid ", rank + 1);
    let (_, way) = warning.split_once(&named(from)).unwrap_or_default();
    let told = format!(") has no way to {}", named(to));
    assert!(way.contains(&told), "{warning}");
}

#[test]
fn neighbours_that_cannot_reach_each_other_go_through_rank_0() {
    goes_through_rank_0(3, Block::Refuse, 1, 2);
}

#[test]
fn neighbours_whose_packets_vanish_go_through_rank_0() {
    goes_through_rank_0(3, Block::Swallow, 1, 2);
}

#[test]
fn hosts_not_adjacent_and_unreachable_go_through_rank_0() {
    goes_through_rank_0(4, Block::Refuse, 1, 3);
}

#[test]
fn a_way_for_answers_alone_is_none() {
    goes_through_rank_0(4, Block::RefuseNew, 0, 2);
}

#[test]
fn links_keep_to_ports_and_interfaces_that_were_asked_for() {
    let hosts = Hosts::with(2, DEAD_ENDS, PLAIN);
    // Control messages use the given address, links the published ones.
    let world = at("10.77.0.1:60001", 4).with("FSGATHER_PORT", "61001-61002");
    let right = world.clone().with("FSGATHER_INTERFACE", "10.77.0.0/16");
    let mut stage = Stage::new();
    start(
        &mut stage,
        &hosts,
        &right,
        "join all_gather_bytes:1000000 at:here gather_bytes:1:1500000* close",
    );
    stage.wait_at(everybody(4), "here");
    let ports = everybody(4).map(|rank| {
        // At several addresses each.
        let ports: BTreeSet<u16> = strangers::ports_of(stage.pid(rank)).into_iter().collect();
        ports
    });
    let mut ports: Vec<u16> = ports.flatten().collect();
    ports.sort_unstable();
    assert_eq!(ports, [60001, 61001, 61001, 61002, 61002]);
    stage.go_all(everybody(4));
    stage.succeed(everybody(4));
    let ends = stage.end_all(everybody(4));
    assert!(ends.iter().all(|end| end.warnings().is_empty()), "{ends:?}");

    // The network of that interface leads back to the host itself.
    let wrong = world.with("FSGATHER_INTERFACE", "docker");
    let warning = succeed_through_rank_0(&hosts, &wrong);
    assert!(warning.contains("(tried 172.17.0.1:6100"), "{warning}");
    assert!(!warning.contains("10.66.0."), "{warning}");
    assert!(!warning.contains("10.77.0."), "{warning}");
}

#[test]
fn too_few_ports_are_told_and_payloads_go_through_rank_0() {
    let hosts = Hosts::new(1);
    let place = place();
    let world = through_memory(3, place.path()).with("FSGATHER_PORT", "61001-61003");
    let warning = succeed_through_rank_0(&hosts, &world);
    let told = "cannot listen on any of the ports 61001 to 61003 of node1";
    assert!(warning.contains(told), "{warning}");
    assert!(warning.contains("FSGATHER_PORT"), "{warning}");
}

/// Listens to the traffic between two hosts while both ranks send payloads, rank N in `worlds[N]`: returns the number of samples of rank
/// 1's payload that are seen, the number of all samples, and the warnings of the ranks.
fn overheard(hosts: &Hosts, worlds: [&World; 2]) -> (usize, usize, Vec<String>) {
    const LEN: &str = "2000000";
    // Before the time limit of the test starts.
    let wiretap = wiretap();
    let mut stage = Stage::new();
    let tap = stage.start(hosts.beside_the_switch(wiretap).args(["1", LEN]));
    stage.wait_for(tap, "listening");
    for (rank, world) in (0..).zip(worlds) {
        let steps = format!("join gather_bytes:0:{LEN} all_gather_bytes:{LEN} close");
        stage.start(&mut hosts.rank(rank + 1, world, rank, &steps));
    }
    stage.succeed([1, 2]);
    let ends = stage.end_all([1, 2]);
    let warnings = ends.iter().flat_map(End::warnings).map(str::to_owned);
    stage.end_input(tap);
    let end = stage.end(tap);
    let numbers: Vec<usize> = end.stdout[1]
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let [seen, samples, bytes] = numbers[..] else {
        panic!("{end:?}");
    };
    // It has seen the traffic of both gathers.
    assert!(bytes > 6_000_000, "{end:?}");
    (seen, samples, warnings.collect())
}

#[test]
fn payloads_are_not_seen_between_hosts_whatever_was_asked_for() {
    let hosts = Hosts::new(2);
    let place = place();
    let silent = through_memory(2, place.path());
    let encrypted = silent.clone().with("FSGATHER_ENCRYPT", "1");
    let plain = silent.clone().with("FSGATHER_ENCRYPT", "0");
    for worlds in [
        [&silent, &silent],
        [&encrypted, &encrypted],
        [&plain, &encrypted],
    ] {
        let (seen, samples, warnings) = overheard(&hosts, worlds);
        assert_eq!((seen, warnings), (0, vec![]), "of {samples}");
    }
}

#[test]
fn payloads_that_go_through_rank_0_are_not_seen_between_hosts() {
    let hosts = Hosts::new(2);
    block(&hosts, Block::RefuseNew, 1, 2);
    let place = place();
    let world = through_memory(2, place.path())
        .with("FSGATHER_PORT", PORTS)
        .with("FSGATHER_INTERFACE", "10.77.0.0/16");
    let (seen, samples, warnings) = overheard(&hosts, [&world, &world]);
    assert_eq!(seen, 0, "of {samples}");
    let told = "large payloads go through rank 0";
    assert!(
        warnings.len() == 1 && warnings[0].contains(told),
        "{warnings:?}"
    );
}

/// Starts ranks on three hosts that take a step over a slow network; returns when the last host has sent a part of its data.
fn in_the_middle_of(
    step: &str,
    world: impl FnOnce(&Path) -> World,
) -> (Hosts, Stage, tempfile::TempDir) {
    let hosts = Hosts::new(3);
    let place = place();
    let world = world(place.path());
    let mut stage = Stage::new();
    // Memory is shared from the second call of a size on.
    let steps = format!("join {step} barrier at:warm {step} at:through close");
    start(&mut stage, &hosts, &world, &steps);
    stage.wait_at(everybody(world.ranks), "warm");
    hosts.slow_down(40);
    let before = hosts.sent_by(3);
    stage.go_all(everybody(world.ranks));
    stage.wait_until("a part", || hosts.sent_by(3) > before + 1_000_000);
    (hosts, stage, place)
}

/// Asserts that the survivors of a kill all name the dead rank in the same words. Their time-out is much longer than the test.
fn told_of(stage: &mut Stage, ranks: u32, victim: usize) {
    let (error, _) = stage.fail_alike(others(ranks, victim), PEER_FAILED);
    let host = victim / (ranks as usize / 3) + 1;
    let name = name_on(&format!("node{host}"), victim, stage.pid(victim));
    assert!(
        error.starts_with(&format!("{name} was lost")),
        "{name}: {error}"
    );
}

#[test]
fn payloads_in_flight_arrive_after_a_long_suspension() {
    for step in ["all_gather_bytes:16000000", "gather_bytes:0:16000000"] {
        let with = |path: &Path| through_memory(3, path).with("FSGATHER_TIMEOUT", "4s");
        let (_hosts, mut stage, place) = in_the_middle_of(step, with);
        for rank in 0..3 {
            stage.signal(rank, Signal::STOP);
        }
        stage.let_pass(Duration::from_secs(7));
        for rank in 0..3 {
            stage.signal(rank, Signal::CONT);
        }
        stage.wait_at(everybody(3), "through");
        stage.go_all(everybody(3));
        stage.succeed(everybody(3));
        assert_nothing_left(place.path());
    }
}

#[test]
fn a_rank_killed_in_the_middle_of_a_ring_is_named_by_all() {
    // Ranks alone on their hosts; then one that forwards within its host, and ones that send to and receive from other hosts.
    let alone = [(3, 1), (3, 0)].map(|case| (case, false));
    let beside = [(9, 4), (9, 8), (9, 3)];
    let beside = beside
        .into_iter()
        .flat_map(|case| [(case, false), (case, true)]);
    for ((ranks, victim), shares) in alone.into_iter().chain(beside) {
        let step = format!("all_gather_bytes:{}", 48_000_000 / ranks);
        let with = |path: &Path| {
            let world = through_memory(ranks, path);
            if shares {
                world.sharing_memory()
            } else {
                world
            }
        };
        let (_hosts, mut stage, place) = in_the_middle_of(&step, with);
        stage.kill(victim);
        told_of(&mut stage, ranks, victim);
        if victim != 0 {
            assert_nothing_left(place.path());
        }
    }
}

#[test]
fn a_rank_killed_while_the_root_fetches_is_named_by_all() {
    for victim in [2, 0] {
        let with = |path: &Path| through_memory(3, path).with("FSGATHER_TIMEOUT", "5m");
        let (_hosts, mut stage, place) = in_the_middle_of("gather_bytes:0:16000000", with);
        // The others have returned, and get the error at their next call.
        stage.wait_at([1, 2], "through");
        stage.kill(victim);
        stage.go_all(others(3, victim).into_iter().filter(|rank| *rank != 0));
        told_of(&mut stage, 3, victim);
        if victim != 0 {
            assert_nothing_left(place.path());
        }
    }
}
