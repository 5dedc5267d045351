//! Tests that `ps` shows worlds whose ranks have not met.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

use std::{path::Path, process::Command};

use crate::common::{Stage, World, build::command_line_tool, everybody, place};
use fsgather_testkit::process;
use serde_json::Value;

/// Returns the output of `ps`.
fn ps(arguments: &[&str], directory: &Path) -> String {
    let mut command = Command::new(command_line_tool());
    command.arg("ps").args(arguments).arg(directory).env_clear();
    let output = process::output(&mut command).expect("a program");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn world_whose_ranks_have_not_met_is_shown() {
    for control in ["auto", "markers"] {
        let place = place();
        let mut stage = Stage::new();
        let world = World::new(2, place.path()).with("FSGATHER_CONTROL", control);
        stage.start(&mut world.rank(0, "join at:met close"));
        let pid = stage.pid(0);
        let root = format!(" (pid {pid}), for ");
        stage.wait_until("a world that forms", || {
            let text = ps(&[], place.path());
            text.contains("a world of 2 ranks is forming, or keeps no calls: its rank 0 is on ")
                && text.contains(&root)
        });
        let document =
            || -> Value { serde_json::from_str(&ps(&["--json"], place.path())).expect("JSON") };
        let told = document();
        let forming = &told["forming"][0];
        assert_eq!(
            (&forming["pid"], &forming["world_size"]),
            (&pid.into(), &2.into()),
            "{told}"
        );
        assert_eq!(told["jobs"], Value::Array(Vec::new()));
        stage.start(&mut world.rank(1, "join at:met close"));
        for rank in 0..2 {
            stage.wait_for(rank, "at met");
        }
        let told = document();
        assert_eq!(told["forming"], Value::Array(Vec::new()), "{control}");
        assert_eq!(told["jobs"][0]["world_size"], 2, "{told}");
        assert!(!ps(&[], place.path()).contains("is forming"));
        for rank in 0..2 {
            stage.go(rank);
        }
        stage.succeed(everybody(2));
    }
}
