//! Tests that `fsgather trace` puts the calls of hosts on one time axis, even if their clocks differ.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use crate::common::{
    Stage, World, build::command_line_tool, clock::Clock, everybody, hosts::Hosts, place,
};
use fsgather_testkit::process;
use serde_json::Value;

const HOUR: i64 = 3600;
const BARRIERS: usize = 40;

/// Maximum distance of the ends of one barrier on the axis, in microseconds: the time until all ranks know the decision, on a busy machine.
const APART: f64 = 10e6;

/// The calls of a directory as `chrome://tracing` shows them.
fn events(directory: &Path) -> Vec<Value> {
    let file = directory.join("trace.json");
    let mut command = Command::new(command_line_tool());
    command.arg("trace").arg(directory).arg("--to").arg(&file);
    let output = process::output(&mut command).expect("a program");
    assert!(output.status.success(), "{output:?}");
    let trace: Value = serde_json::from_slice(&fs::read(&file).expect("a file")).expect("JSON");
    trace["traceEvents"].as_array().expect("events").clone()
}

#[test]
fn calls_of_hosts_with_different_clocks_are_on_one_axis() {
    let (hosts, clock) = (Hosts::new(2), Clock::new());
    for seconds in [HOUR, -HOUR] {
        clock.set(seconds);
        let place = place();
        let right = World::new(4, place.path())
            .with("FSGATHER_TRACE", "always")
            .with("FSGATHER_TRANSPORT", "memory");
        let wrong = clock.on(right.clone());
        let script = format!("join {}close", "barrier ".repeat(BARRIERS));
        let mut stage = Stage::new();
        for rank in 0..4 {
            let (host, world) = if rank < 2 { (1, &right) } else { (2, &wrong) };
            stage.start(&mut hosts.rank(host, world, rank, &script));
        }
        stage.succeed(everybody(4));
        let mut ends: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for event in events(place.path()) {
            let name = event["name"].as_str().unwrap_or_default();
            if let (Some(from), Some(lasts)) = (event["ts"].as_f64(), event["dur"].as_f64())
                && name.starts_with("barrier #")
            {
                ends.entry(name.to_owned()).or_default().push(from + lasts);
            }
        }
        assert_eq!(ends.len(), BARRIERS, "{ends:?}");
        for (name, ends) in ends {
            assert_eq!(ends.len(), 4, "{name}");
            let first = ends.iter().copied().fold(f64::INFINITY, f64::min);
            let last = ends.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            assert!(last - first < APART, "{name} with {seconds}: {ends:?}");
        }
    }
}
