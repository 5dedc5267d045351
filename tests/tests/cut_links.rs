//! Links between hosts that are cut while payloads go over them directly. Hosts are namespaces, which only root can make.
//! `scripts/prove cut-links` runs these tests one after the other.

mod common;

use std::time::{Duration, Instant};

use common::{End, PEER_FAILED, Stage, TIMED_OUT, World, everybody, hosts::Hosts, name_on, place};

const RING: &str = "all_gather_bytes:30000000";
const PULL: &str = "gather_bytes:0:40000000";

/// Starts three ranks on hosts of their own that take a step over a slow network; returns when rank 2 has sent a part of its payload.
fn in_the_middle_of(step: &str, timeout: &str) -> (Hosts, Stage, tempfile::TempDir) {
    let hosts = Hosts::new(3);
    hosts.slow_down(80);
    let place = place();
    let world = World::new(3, place.path())
        .with("FSGATHER_TRANSPORT", "memory")
        .with("FSGATHER_TIMEOUT", timeout);
    let mut stage = Stage::new();
    for rank in 0..3 {
        let script = format!("join {step} close");
        stage.start(&mut hosts.rank(rank + 1, &world, rank, &script));
    }
    stage.wait_until("a part", || hosts.sent_by(3) > 5_000_000);
    (hosts, stage, place)
}

fn a_cut_of_twenty_seconds(step: &str) {
    let (hosts, mut stage, _place) = in_the_middle_of(step, "5m");
    hosts.cut(3);
    stage.let_pass(Duration::from_secs(20));
    hosts.mend(3);
    stage.succeed(everybody(3));
}

#[test]
fn a_ring_survives_a_cut_of_twenty_seconds() {
    a_cut_of_twenty_seconds(RING);
}

#[test]
fn a_fetch_survives_a_cut_of_twenty_seconds() {
    a_cut_of_twenty_seconds(PULL);
}

/// Cuts the host of rank 2 off for good.
fn a_cut_for_good(step: &str) {
    let (hosts, mut stage, _place) = in_the_middle_of(step, "5m");
    let cut = Instant::now();
    hosts.cut(3);
    let (error, mut ends) = stage.fail_alike(0..2, PEER_FAILED);
    let name = name_on("node3", 2, stage.pid(2));
    assert!(error.starts_with(&format!("{name} was lost")), "{error}");
    // The other side of the cut.
    let own = stage.end(2);
    let name = name_on("node1", 0, stage.pid(0));
    assert_eq!(own.code, PEER_FAILED);
    assert!(
        own.error().starts_with(&format!("{name} was lost")),
        "{own:?}"
    );
    ends.push(own);
    for end in &ends {
        assert_ended_within(end, cut, Duration::from_secs(35));
    }
}

fn assert_ended_within(end: &End, since: Instant, limit: Duration) {
    let took = end.at.saturating_duration_since(since);
    assert!(took < limit, "{took:?}: {end:?}");
}

#[test]
fn a_host_cut_off_during_a_ring_is_named_within_half_a_minute() {
    a_cut_for_good(RING);
}

#[test]
fn a_host_cut_off_during_a_fetch_is_named_within_half_a_minute() {
    a_cut_for_good(PULL);
}

/// Cuts ranks 1 and 2 off from each other; rank 0 reaches both.
fn a_cut_between_members(step: &str) {
    let (hosts, mut stage, _place) = in_the_middle_of(step, "8s");
    let cut = Instant::now();
    for (one, other) in [(2, 3), (3, 2)] {
        hosts.on(
            one,
            &format!(
                "ip neighbour replace 10.77.0.{other} lladdr 02:00:00:00:00:99 dev eth0 nud permanent"
            ),
        );
    }
    let (error, ends) = stage.fail_alike(everybody(3), TIMED_OUT);
    let named = [1, 2].map(|rank| name_on(&format!("node{}", rank + 1), rank, stage.pid(rank)));
    // Its last activity follows its process.
    let is_named = |name: &String| error.contains(name.trim_end_matches(')'));
    assert!(named.iter().any(is_named), "{error}");
    assert!(error.contains("FSGATHER_TIMEOUT"), "{error}");
    for end in &ends {
        assert_ended_within(end, cut, Duration::from_secs(20));
    }
}

#[test]
fn a_ring_cut_between_members_times_out_alike() {
    a_cut_between_members(RING);
}

#[test]
fn a_fetch_cut_between_members_times_out_alike() {
    a_cut_between_members("gather_bytes:1:40000000");
}
