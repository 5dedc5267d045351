//! Tests the last calls of ranks: their place, their lifetime, and the output of `ps` and `trace`.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use fsgather_testkit::process;
use rustix::process::Signal;
use serde_json::Value;

use crate::common::{
    PEER_FAILED, Stage, TIMED_OUT, World,
    build::command_line_tool,
    everybody, others, place,
    tracing::{calls_in, document, said, tool, wait_for_two_in, with_one_late},
};

/// Returns the number of questions to jobs in a directory.
fn questions_in(directory: &Path) -> usize {
    let entries = fs::read_dir(directory.join("all_gather_via_filesys")).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names
        .filter(|name| name.to_string_lossy().starts_with("asked-"))
        .count()
}

#[test]
fn stopped_rank_is_reported_by_a_neighbour() {
    let place = place();
    let mut stage = Stage::new();
    with_one_late(&mut stage, &World::new(3, place.path()));
    stage.signal(1, Signal::STOP);
    wait_for_two_in(&mut stage, place.path(), "barrier #3");
    let seen = document(&["ps", "--stacks", "--json"], place.path());
    stage.signal(1, Signal::CONT);
    let stacks = seen["jobs"][0]["stacks"]
        .as_array()
        .expect("stacks")
        .clone();
    let texts: Vec<&str> = stacks
        .iter()
        .filter_map(|one| one["text"].as_str())
        .collect();
    assert!(
        texts.contains(&"does not answer; its process is stopped"),
        "{texts:?}"
    );
    stage.go(1);
    stage.succeed(everybody(3));
}

#[test]
fn trace_names_the_rank_that_missed_the_making_of_a_group() {
    for making in ["split:1", "group:0,1,2"] {
        let place = place();
        let world = World::new(3, place.path()).with("FSGATHER_TIMEOUT", "2s");
        let mut stage = Stage::new();
        stage.start_all(&world, |rank| {
            let last = if rank == 1 { "at:late" } else { making };
            format!("join barrier {last}")
        });
        stage.fail_alike(others(3, 1), TIMED_OUT);
        let text = said(&["trace"], place.path());
        let name = making.split(':').next().expect("a word");
        let mut lines = text.lines();
        let failed = lines.find(|line| line.starts_with(name));
        assert!(
            failed.is_some_and(|line| line.contains(": ranks 0 2 waited for rank 1, ")),
            "{text}"
        );
        let late = lines.next().unwrap_or_default();
        assert!(
            late.starts_with("  rank 1: ") && late.contains(" after barrier #"),
            "{text}"
        );
        stage.go(1);
        stage.end(1);
    }
}

#[test]
fn question_is_withdrawn_when_its_asker_ends() {
    let place = place();
    let mut stage = Stage::new();
    with_one_late(&mut stage, &World::new(3, place.path()));
    // Rank 0, which should answer, cannot.
    stage.signal(0, Signal::STOP);
    let asking = stage.start(&mut tool(&["ps", "--stacks"], place.path()));
    stage.wait_until("a question", || questions_in(place.path()) == 1);
    stage.signal(asking, Signal::INT);
    let ended = stage.end(asking);
    assert_eq!(ended.code, 130, "{}", stage.transcript());
    assert_eq!(questions_in(place.path()), 0);
    stage.signal(0, Signal::CONT);
    stage.go(1);
    stage.succeed(everybody(3));
}

#[test]
fn started_call_shows_for_which_ranks_it_waits() {
    let place = place();
    let world = World::new(3, place.path());
    let mut stage = Stage::new();
    for rank in 0..3 {
        let late = if rank == 1 { "at:here " } else { "" };
        let script = format!("join barrier {late}start_all_gather:9 at:started wait:0 close");
        stage.start(&mut world.rank(rank, &script));
    }
    stage.wait_at([0, 2], "started");
    stage.wait_at([1], "here");
    let seen = document(&["ps", "--json"], place.path());
    assert_eq!(
        seen["jobs"][0]["ranks"][0]["doing"], "overlapping",
        "{seen}"
    );
    stage.go_all([0, 2]);
    wait_for_two_in(&mut stage, place.path(), "start_all_gather #2");
    let seen = document(&["ps", "--json"], place.path());
    for rank in [0, 2] {
        let rank = &seen["jobs"][0]["ranks"][rank];
        assert_eq!(rank["call"]["name"], "start_all_gather #2", "{rank}");
        assert_eq!(rank["waits_for"], serde_json::json!([1]));
    }
    stage.go(1);
    stage.wait_at([1], "started");
    stage.go(1);
    stage.succeed(everybody(3));
}

#[test]
fn failed_call_is_shown_although_ranks_close_later() {
    let place = place();
    let world = World::new(3, place.path());
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| match rank {
        1 => "join barrier at:here fails:close".into(),
        _ => "join barrier fails:timed_barrier:2000 fails:close".into(),
    });
    stage.wait_at([1], "here");
    stage.succeed([0, 2]);
    stage.go(1);
    stage.succeed([1]);
    let text = said(&["trace"], place.path());
    let barrier = text.lines().find(|line| line.contains(" has failed"));
    let barrier = barrier.expect("a call that has failed");
    assert!(
        barrier.starts_with("barrier #2 at ") && barrier.contains("ranks 0 2 waited for rank 1, "),
        "{text}"
    );
    assert!(!text.contains("close at"), "{text}");
}

#[test]
fn job_that_has_met_twice_is_one_picture_and_leaves_nothing() {
    let place = place();
    let picture = place.path().join("calls.json");
    let tool = command_line_tool().to_str().expect("text");
    let mut command = Command::new(tool);
    command
        .args(["run", "-n", "2", "--dir"])
        .arg(place.path())
        .arg("--trace")
        .arg(&picture)
        .args(["--", "sh", "-c", "\"$0\" barrier && \"$0\" barrier", tool])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let output = process::output(&mut command).expect("a program");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains(", 2 ranks on ") && said.contains(", which have met 2 times: "),
        "{said}"
    );
    let trace: Value = serde_json::from_slice(&fs::read(&picture).expect("a file")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let of = |name: &str| events.iter().filter(|event| event["name"] == name).count();
    assert_eq!((of("process_name"), of("barrier #2")), (2, 4), "{trace}");
    assert_eq!(calls_in(place.path()), [""; 0].map(PathBuf::from));
}

#[test]
fn unknown_job_is_answered_with_the_known_ones() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_TRACE", "always");
    let mut stage = Stage::new();
    stage.start_all(&world, |_| "join barrier close".into());
    stage.succeed(everybody(2));
    let output = process::output(&mut tool(&["trace", "--job", "absent"], place.path()));
    let output = output.expect("a program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        said.contains("no calls of job absent are in ") && said.contains("; there are calls of: "),
        "{said}"
    );
}

#[test]
fn no_calls_are_kept_if_tracing_is_off() {
    let place = place();
    let mut stage = Stage::new();
    let world = World::new(3, place.path()).with("FSGATHER_TRACE", "off");
    with_one_late(&mut stage, &world);
    assert_eq!(calls_in(place.path()), [""; 0].map(PathBuf::from));
    stage.kill(1);
    stage.fail_alike(others(3, 1), PEER_FAILED);
    assert_eq!(calls_in(place.path()), [""; 0].map(PathBuf::from));
}
