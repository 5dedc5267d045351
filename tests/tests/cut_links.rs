//! Links between hosts that are cut while payloads go over them directly. Slow: `scripts/test-cut-links.sh`
//! runs these.

mod common;

use std::time::Duration;

use common::{PEER_FAILED, Stage, TIMED_OUT, World, everybody, hosts::Hosts, place};

/// A ring and a pull, each of which takes seconds on a slow network.
const STEPS: [&str; 2] = ["all_gather_bytes:30000000", "gather_bytes:0:40000000"];

/// Three ranks on hosts of their own, of which that on host 3 has sent a part of what it sends.
fn in_the_middle(step: &str, timeout: &str) -> Option<(Hosts, Stage, tempfile::TempDir)> {
    let hosts = Hosts::new(3)?;
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
    Some((hosts, stage, place))
}

#[test]
#[ignore = "slow"]
fn a_cut_of_ten_seconds_is_survived() {
    for step in STEPS {
        let Some((hosts, mut stage, _place)) = in_the_middle(step, "5m") else {
            return;
        };
        hosts.cut(3);
        stage.let_pass(Duration::from_secs(10));
        hosts.mend(3);
        stage.succeed(everybody(3));
        println!("{}", stage.transcript());
    }
}

#[test]
#[ignore = "slow"]
fn a_host_that_is_cut_off_is_named_by_the_others_within_half_a_minute() {
    for step in STEPS {
        let Some((hosts, mut stage, _place)) = in_the_middle(step, "5m") else {
            return;
        };
        let cut = std::time::Instant::now();
        hosts.cut(3);
        let ends = stage.end_all(0..3);
        for end in ends { println!("{} {:?} {}", end.code, end.at.saturating_duration_since(cut), end.error()); }
    }
}

#[test]
#[ignore = "slow"]
fn a_cut_between_two_members_is_told_when_time_is_up() {
    for step in [STEPS[0], "gather_bytes:2:40000000"] {
        let Some((hosts, mut stage, _place)) = in_the_middle(step, "8s") else {
            return;
        };
        let cut = std::time::Instant::now();
        for (one, other) in [(2, 3), (3, 2)] {
            hosts.on(one, &format!("ip neighbour replace 10.77.0.{other} lladdr 02:00:00:00:00:99 dev eth0 nud permanent"));
        }
        let ends = stage.end_all(0..3);
        for end in ends { println!("{} {:?} {}", end.code, end.at.saturating_duration_since(cut), end.error()); }
    }
}
