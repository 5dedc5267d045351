//! Networks far from laboratories: slow, lossy, narrow, one-sided, without names, full of foreign connections. Each time every rank has the
//! right result, or reports the cause in time. Hosts are namespaces, which only root can make.
//!
//! `scripts/prove networks` runs these tests one after the other, and prints the output of each rank.

mod common;

use std::time::{Duration, Instant};

use common::{
    PEER_FAILED, RENDEZVOUS, Stage, World, assert_nothing_left, double_mount::DoubleMount,
    everybody, hosts::Hosts, name_on, place, report::tell, strangers,
};

/// Calls by messages, and payloads with every transport; several packets each.
const CALLS: &str = "barrier all_gather:100 all_gather_bytes:100000 gather_bytes:1:100000 gather_from:0:70000 broadcast:1:70000";

/// Transports of payloads.
const TRANSPORTS: [&str; 2] = ["filesys", "memory"];

/// Hosts, and the directories that they share.
struct Site {
    hosts: Hosts,
    place: tempfile::TempDir,
    mount: Option<DoubleMount>,
    world: World,
}

impl Site {
    /// Makes a host for each of three ranks for payloads by memory, or two hosts that mount a directory for files.
    fn new(transport: &str, hosts: impl Fn(u32) -> Hosts) -> Self {
        let place = place();
        // Before the hosts, so that they see the mounts.
        let mount = match transport {
            "filesys" => Some(DoubleMount::with("", 0)),
            _ => None,
        };
        let hosts = hosts(if mount.is_some() { 2 } else { 3 });
        if let Some(mount) = &mount {
            for host in hosts.all() {
                let [own, shared] = [mount.mount(host), mount.directory()];
                hosts.on(
                    host,
                    &format!("mount --bind {} {}", own.display(), shared.display()),
                );
            }
        }
        let directory = mount
            .as_ref()
            .map_or(place.path().to_owned(), DoubleMount::directory);
        let world = World::new(hosts.count(), &directory)
            .with("FSGATHER_JOB", "networks")
            .with("FSGATHER_CONTROL", "tcp")
            .with("FSGATHER_TRANSPORT", transport);
        Self {
            hosts,
            place,
            mount,
            world,
        }
    }

    fn start(&self, stage: &mut Stage, steps: &str) {
        for rank in 0..self.world.ranks {
            stage.start(&mut self.hosts.rank(rank + 1, &self.world, rank, steps));
        }
    }

    fn assert_nothing_left(&self) {
        let mount = self.mount.as_ref();
        assert_nothing_left(&mount.map_or(self.place.path().to_owned(), DoubleMount::behind));
    }

    fn ranks(&self) -> std::ops::Range<usize> {
        everybody(self.world.ranks)
    }
}

/// Runs one rank on each host, whose calls all succeed without a warning; returns the duration.
fn succeed(what: &str, transport: &str, hosts: impl Fn(u32) -> Hosts) -> Duration {
    let site = Site::new(transport, hosts);
    let mut stage = Stage::new();
    let since = Instant::now();
    site.start(&mut stage, &format!("join {CALLS} close"));
    let ends = stage.end_all(site.ranks());
    let took = since.elapsed();
    tell(&format!("{what}, {transport}"), since, &ends);
    stage.succeed(site.ranks());
    for end in &ends {
        assert_eq!(end.warnings(), [""; 0], "{}", stage.transcript());
    }
    site.assert_nothing_left();
    took
}

/// The same on a distorted network.
fn succeed_over(what: &str, distortion: &str) -> Duration {
    let took = TRANSPORTS.map(|transport| {
        succeed(what, transport, |count| {
            let hosts = Hosts::far_apart(count);
            hosts.distort(distortion);
            hosts
        })
    });
    took.into_iter().max().unwrap_or_default()
}

#[test]
fn packets_of_576_bytes_are_enough() {
    for transport in TRANSPORTS {
        succeed("packets of 576 bytes", transport, |count| {
            let hosts = Hosts::with(count, "true", "ip address add 10.77.0.$1/24 dev eth0");
            hosts.on_all("ip link set eth0 mtu 576");
            hosts
        });
    }
}

/// The round-trip time of a network with a [`DELAY`].
const ROUND_TRIP: Duration = Duration::from_millis(400);

/// A delay that dominates all other times.
const DELAY: &str = "* * delay=200";

#[test]
fn a_delay_of_200_ms_each_way_costs_round_trips_only() {
    let took = succeed_over("200 ms each way", DELAY);
    assert!(took < ROUND_TRIP * 50, "{took:?}");
}

/// If the payloads of an all-gather by memory fit a window, they have arrived when it is decided.
#[test]
fn what_fits_a_window_is_there_with_the_verdict() {
    const CALLS: usize = 5;
    let hosts = Hosts::far_apart(2);
    hosts.distort(DELAY);
    let place = place();
    let world = World::new(2, place.path())
        .with("FSGATHER_JOB", "networks")
        .with("FSGATHER_CONTROL", "tcp")
        .with("FSGATHER_TRANSPORT", "memory");
    let kinds = ["barrier", "all_gather_bytes:300000"];
    // TCP starts slowly, so that the first calls of each kind do not count.
    let script = kinds.map(|call| {
        format!("{call} ").repeat(CALLS) + &format!("at:next {call} ").repeat(CALLS) + "at:next "
    });
    let mut stage = Stage::new();
    for rank in 0..world.ranks {
        let steps = format!("join {} close", script.concat());
        stage.start(&mut hosts.rank(rank + 1, &world, rank, &steps));
    }
    let ranks = everybody(world.ranks);
    let since = Instant::now();
    // The fastest call was disturbed least by other work of this machine.
    let took = kinds.map(|_| {
        stage.wait_at(ranks.clone(), "next");
        let each = (0..CALLS).map(|_| {
            let since = Instant::now();
            stage.go_all(ranks.clone());
            stage.wait_at(ranks.clone(), "next");
            since.elapsed()
        });
        let fastest = each.min().unwrap_or_default();
        stage.go_all(ranks.clone());
        fastest
    });
    let ends = stage.end_all(ranks.clone());
    let [barrier, all_gather] = took;
    let what =
        format!("200 ms each way: {barrier:?} for a barrier, {all_gather:?} for an all-gather");
    tell(&what, since, &ends);
    stage.succeed(ranks);
    // If payloads were sent only after the verdict, it would take half a round trip more.
    assert!(all_gather < barrier + ROUND_TRIP / 4, "{what}");
    assert_nothing_left(place.path());
}

/// A root asks the ranks of other hosts at the same time, regardless of their number.
#[test]
fn a_gather_from_many_ranks_far_away_takes_few_round_trips() {
    fetch_from_far_away("gather_bytes:0:150000");
}

/// So does every rank in a started all-gather, which does not use a ring.
#[test]
fn an_all_gather_that_is_started_takes_few_round_trips() {
    fetch_from_far_away("start_all_gather:150000 wait:CALL");
}

fn fetch_from_far_away(step: &str) {
    const RANKS: u32 = 9;
    let hosts = Hosts::far_apart(2);
    hosts.distort(DELAY);
    let place = place();
    let world = World::new(RANKS, place.path())
        .with("FSGATHER_JOB", "networks")
        .with("FSGATHER_CONTROL", "tcp")
        .with("FSGATHER_TRANSPORT", "memory");
    let script: String = (0..4)
        .map(|call| format!("at:next {step} at:next ").replace("CALL", &call.to_string()))
        .collect();
    let mut stage = Stage::new();
    for rank in 0..RANKS {
        let host = if rank == 0 { 1 } else { 2 };
        let steps = format!("join {script} close");
        stage.start(&mut hosts.rank(host, &world, rank, &steps));
    }
    let ranks = everybody(RANKS);
    let since = Instant::now();
    let took: Vec<Duration> = (0..4)
        .map(|_| {
            stage.wait_at(ranks.clone(), "next");
            let since = Instant::now();
            stage.go_all(ranks.clone());
            stage.wait_at(ranks.clone(), "next");
            let took = since.elapsed();
            stage.go_all(ranks.clone());
            took
        })
        .collect();
    let ends = stage.end_all(ranks.clone());
    tell(
        &format!("200 ms each way: {step} takes {took:?}"),
        since,
        &ends,
    );
    stage.succeed(ranks);
    // One round trip for the verdict, and one for the requests after it. One after the other they take nine, and the first call fifty.
    let fastest = took[1..].iter().min().copied().unwrap_or_default();
    assert!(fastest < ROUND_TRIP * 4, "{took:?}");
    assert!(took[0] < ROUND_TRIP * 16, "{took:?}");
    assert_nothing_left(place.path());
}

#[test]
fn five_packets_of_a_hundred_lost_are_sent_again() {
    succeed_over("5 % loss, 5 ms each way", "* * delay=5 loss=5");
}

#[test]
fn a_megabit_a_second_carries_as_much() {
    succeed_over("1 Mbit/s", "* * rate=1000");
}

#[test]
fn a_network_that_is_slow_narrow_and_lossy_at_once_serves() {
    succeed_over(
        "200 ms each way, 5 % loss, 1 Mbit/s",
        "* * delay=200 loss=5 rate=1000",
    );
}

/// The links that are cut while ranks are between two calls: packets that match these settings vanish.
const CUTS: [(&str, &str); 3] = [
    (
        "the last host is cut off",
        "* LAST loss=100\nLAST * loss=100",
    ),
    ("the last host is not heard any more", "LAST * loss=100"),
    ("the last host hears nothing any more", "* LAST loss=100"),
];

/// Starts ranks that stop at `ready` after some calls, and then cuts links.
fn cut(transport: &str, how: &str) -> (Site, Stage) {
    let site = Site::new(transport, Hosts::far_apart);
    let mut stage = Stage::new();
    site.start(&mut stage, &format!("join {CALLS} at:ready {CALLS} close"));
    stage.wait_at(site.ranks(), "ready");
    site.hosts
        .distort(&how.replace("LAST", &site.hosts.count().to_string()));
    (site, stage)
}

#[test]
fn cuts_of_20_seconds_are_survived() {
    for transport in TRANSPORTS {
        for (what, how) in CUTS {
            let (site, mut stage) = cut(transport, how);
            let since = Instant::now();
            stage.go_all(site.ranks());
            stage.let_pass(Duration::from_secs(20));
            site.hosts.distort("");
            let ends = stage.end_all(site.ranks());
            tell(&format!("{what} for 20 s, {transport}"), since, &ends);
            stage.succeed(site.ranks());
            site.assert_nothing_left();
        }
    }
}

#[test]
fn cuts_for_good_are_told_on_both_sides_within_half_a_minute() {
    for transport in TRANSPORTS {
        for (what, how) in CUTS {
            let (site, mut stage) = cut(transport, how);
            let since = Instant::now();
            stage.go_all(site.ranks());
            let ends = stage.end_all(site.ranks());
            tell(&format!("{what} for good, {transport}"), since, &ends);
            let last = ends.len() - 1;
            for (rank, end) in ends.iter().enumerate() {
                assert_eq!(end.code, PEER_FAILED, "{}", stage.transcript());
                let other = if rank == last { 0 } else { last };
                let name = name_on(&format!("node{}", other + 1), other, stage.pid(other));
                assert!(
                    end.error().starts_with(&format!("{name} was lost")),
                    "{end:?}"
                );
                let took = end.at.saturating_duration_since(since);
                assert!(took < Duration::from_secs(35), "{took:?}: {end:?}");
            }
        }
    }
}

/// Ranks that may exchange messages through files meet although a cable carries nothing, or only in one direction.
#[test]
fn a_cut_cable_makes_ranks_use_files_with_one_warning() {
    for (what, how) in CUTS {
        let mut site = Site::new("filesys", Hosts::far_apart);
        site.world = site.world.with("FSGATHER_CONTROL", "auto");
        site.hosts.distort(&how.replace("LAST", "2"));
        let mut stage = Stage::new();
        let since = Instant::now();
        site.start(&mut stage, &format!("join {CALLS} close"));
        let ends = stage.end_all(site.ranks());
        tell(&format!("{what} from the beginning, files"), since, &ends);
        stage.succeed(site.ranks());
        let warnings: Vec<&str> = ends.iter().flat_map(common::End::warnings).collect();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        site.assert_nothing_left();
    }
}

/// If only TCP is allowed, all ranks soon get an error, with the addresses that were tried.
#[test]
fn ranks_that_meet_over_a_cut_cable_by_tcp_alone_are_told_so() {
    for (what, how) in CUTS {
        let site = Site::new("filesys", Hosts::far_apart);
        site.hosts.distort(&how.replace("LAST", "2"));
        let mut stage = Stage::new();
        let since = Instant::now();
        site.start(&mut stage, &format!("join {CALLS} close"));
        let ends = stage.end_all(site.ranks());
        tell(
            &format!("{what} from the beginning, TCP alone"),
            since,
            &ends,
        );
        let (error, _) = stage.fail_alike(site.ranks(), RENDEZVOUS);
        let name = name_on("node2", 1, stage.pid(1));
        let told = format!("{name} cannot reach rank 0 over TCP (tried 10.77.0.1:");
        assert!(error.contains(&told), "{error}");
    }
}

/// If routers silently drop long packets, long messages never arrive.
#[test]
fn long_packets_that_vanish_are_told_by_all() {
    let mut site = Site::new("memory", Hosts::far_apart);
    site.world = site.world.clone().with("FSGATHER_TIMEOUT", "20s");
    let mut stage = Stage::new();
    let since = Instant::now();
    site.start(&mut stage, &format!("join barrier at:ready {CALLS} close"));
    stage.wait_at(site.ranks(), "ready");
    site.hosts.distort("* * size=576");
    stage.go_all(site.ranks());
    let ends = stage.end_all(site.ranks());
    tell("packets above 576 bytes vanish, memory", since, &ends);
    for end in &ends {
        assert_ne!(end.code, 0, "{}", stage.transcript());
        assert!(end.error().contains("rank "), "{end:?}");
        let took = end.at.saturating_duration_since(since);
        assert!(took < Duration::from_secs(30), "{took:?}: {end:?}");
    }
}

const SECRET: &str = "8f4b2c6d1e0a9b7c5d3e1f2a4b6c8d0e8f4b2c6d1e0a9b7c5d3e1f2a4b6c8d0e";

/// No host knows any name, and the name server does not answer.
fn without_names(count: u32) -> Hosts {
    let hosts = Hosts::new(count);
    hosts.on_all(
        "echo 127.0.0.1 localhost >/etc/hosts
         if [ -e /etc/resolv.conf ]; then
           mount -t tmpfs none /mnt && echo nameserver 10.77.0.99 >/mnt/resolv.conf
           mount --bind /mnt/resolv.conf /etc/resolv.conf
         fi",
    );
    hosts
}

#[test]
fn names_that_mean_nothing_are_not_needed_in_a_directory() {
    for transport in TRANSPORTS {
        succeed("no names", transport, without_names);
    }
}

#[test]
fn a_name_that_means_nothing_is_told_by_all() {
    let hosts = without_names(2);
    let world = World::new(2, std::path::Path::new("/nonexistent"))
        .with("FSGATHER_RENDEZVOUS", "tcp://node1.nowhere:60001")
        .with("FSGATHER_SECRET", SECRET)
        .with("FSGATHER_TRANSPORT", "memory")
        .with("FSGATHER_JOIN_TIMEOUT", "5s");
    let mut stage = Stage::new();
    let since = Instant::now();
    for rank in 0..2 {
        stage.start(&mut hosts.rank(rank + 1, &world, rank, "join close"));
    }
    let ends = stage.end_all(everybody(2));
    tell("a rendezvous at a name that means nothing", since, &ends);
    for (rank, end) in ends.iter().enumerate() {
        assert_ne!(end.code, 0, "{}", stage.transcript());
        assert!(
            rank == 0 || end.error().contains("node1.nowhere"),
            "{end:?}"
        );
    }
}

/// Times on machines with other load prove nothing: `ten_thousand_strangers_at_most_double_a_barriers_time` measures them.
#[test]
fn ten_thousand_silent_and_slow_peers_leave_a_job_right() {
    barriers_among_strangers();
}

#[test]
fn ten_thousand_strangers_at_most_double_a_barriers_time() {
    let Medians {
        before,
        among,
        after,
    } = barriers_among_strangers();
    let (least, alone) = (among.into_iter().min(), before.max(after));
    assert!(
        least.is_some_and(|among| among <= 2 * alone),
        "{among:?} us among them, {alone} us alone"
    );
}

/// The median duration of a barrier of four ranks, in microseconds.
struct Medians {
    before: u64,
    among: [u64; 2],
    after: u64,
}

/// Runs barriers before, among and after foreign processes that hold ten thousand connections, and some that send a byte now and then.
fn barriers_among_strangers() -> Medians {
    const SILENT: usize = 10_000;
    let silent = SILENT.min(strangers::room_for_connections().saturating_sub(200));
    let place = place();
    let mut stage = Stage::new();
    let world = World::new(4, place.path()).with("FSGATHER_CONTROL", "tcp");
    let round = "timed_barriers:1500 at:next";
    stage.start_all(&world, |_| {
        format!("join {round} {round} {round} {round} close")
    });
    let measure = |stage: &mut Stage| {
        stage.wait_at(everybody(4), "next");
        let line = stage.wait_for_where(0, "a median", |line| line.starts_with("median "));
        line["median ".len()..].parse::<u64>().unwrap_or_default()
    };
    let since = Instant::now();
    let first = measure(&mut stage);
    let ports = strangers::ports_of(stage.pid(0));
    let held = strangers::stay_silent(ports[0], silent);
    let dripping = strangers::Dripping::at(ports[0], 40);
    stage.go_all(everybody(4));
    let among_strangers = measure(&mut stage);
    stage.go_all(everybody(4));
    let once_more = measure(&mut stage);
    let said = dripping.end();
    drop(held);
    stage.go_all(everybody(4));
    let last = measure(&mut stage);
    stage.go_all(everybody(4));
    let ends = stage.end_all(everybody(4));
    let what = format!(
        "{silent} silent connections and 40 slow ones, which came {said} times: the median of a barrier was {first} us \
         before, {among_strangers} and {once_more} us among them, {last} us after"
    );
    tell(&what, since, &ends);
    stage.succeed(everybody(4));
    assert_nothing_left(place.path());
    Medians {
        before: first,
        among: [among_strangers, once_more],
        after: last,
    }
}
