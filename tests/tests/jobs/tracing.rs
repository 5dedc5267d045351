//! Tests the last calls of ranks: who finds them, when they stay, and what `ps` and `trace` make of them.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::{
    DESYNC, PEER_FAILED, Stage, World, build::command_line_tool, double_mount::DoubleMount,
    everybody, others, place, within,
};
use fsgather_testkit::process;
use rustix::process::Signal;
use serde_json::Value;

/// The command, its arguments, and a directory.
fn tool(arguments: &[&str], directory: &Path) -> Command {
    let mut command = Command::new(command_line_tool());
    command
        .args(arguments)
        .arg(directory)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// What it says on standard output.
fn said(arguments: &[&str], directory: &Path) -> String {
    let output = process::output(&mut tool(arguments, directory)).expect("a program");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn document(arguments: &[&str], directory: &Path) -> Value {
    serde_json::from_str(&said(arguments, directory)).expect("JSON")
}

/// The files with calls in a directory.
fn calls_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.join("all_gather_via_filesys")).expect("a directory");
    let mut calls: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.to_string_lossy().contains("/calls-"))
        .collect();
    calls.sort();
    calls
}

/// The questions to jobs that lie in a directory.
fn questions_in(directory: &Path) -> usize {
    let entries = fs::read_dir(directory.join("all_gather_via_filesys")).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names
        .filter(|name| name.to_string_lossy().starts_with("asked-"))
        .count()
}

/// A world of three, of which rank 1 stands still between two barriers.
fn with_one_late(stage: &mut Stage, world: &World) {
    for rank in 0..3 {
        let script = if rank == 1 {
            "join barrier all_gather_bytes:5000 at:here barrier close"
        } else {
            "join barrier all_gather_bytes:5000 barrier close"
        };
        stage.start(&mut world.rank(rank, script));
    }
    stage.wait_at([1], "here");
}

/// What `ps` says once ranks 0 and 2 wait.
fn ps(stage: &mut Stage, directory: &Path, arguments: &[&str]) -> Value {
    let waits = |rank: &Value| rank["doing"] == "waiting";
    stage.wait_until("two ranks that wait", || {
        let seen = document(&["ps", "--json"], directory);
        let ranks = seen["jobs"][0]["ranks"].as_array().cloned();
        ranks.is_some_and(|ranks| ranks.iter().filter(|rank| waits(rank)).count() == 2)
    });
    document(arguments, directory)
}

#[test]
fn ps_tells_who_waits_for_whom_and_what_they_are_doing() {
    for control in ["tcp", "markers"] {
        let place = place();
        let world = World::new(3, place.path()).with("FSGATHER_CONTROL", control);
        let mut stage = Stage::new();
        with_one_late(&mut stage, &world);
        let seen = ps(&mut stage, place.path(), &["ps", "--stacks", "--json"]);
        let job = &seen["jobs"][0];
        assert_eq!(seen["jobs"].as_array().map(Vec::len), Some(1));
        assert_eq!(job["world_size"], 3);
        for rank in [0, 2] {
            let rank = &job["ranks"][rank];
            assert_eq!(rank["call"]["name"], "barrier #3", "{rank}");
            assert_eq!(rank["waits_for"], serde_json::json!([1]));
        }
        let late = &job["ranks"][1];
        assert_eq!(
            (&late["doing"], &late["pid"]),
            (&"computing".into(), &stage.pid(1).into())
        );
        assert_eq!(late["call"]["name"], "all_gather #2");
        assert!(late["moved_bytes"].as_u64() >= Some(5000), "{late}");
        let stacks = job["stacks"].as_array().expect("stacks");
        let of_late = stacks
            .iter()
            .find(|stack| stack["ranks"] == serde_json::json!([1]));
        let of_late = of_late.expect("the stack of rank 1");
        let doing = within("rank::stop_at", "waiting, in read on a pipe");
        let told = of_late["text"].as_str();
        assert!(
            told.is_some_and(|told| told.starts_with(&doing)),
            "{of_late}"
        );
        let text = said(&["ps", "--stacks"], place.path());
        let line = text.lines().find(|line| line.starts_with("  rank 1: "));
        let after = line.and_then(|line| line.strip_prefix("  rank 1: ")?.strip_prefix(&doing));
        assert!(
            after.is_some_and(|after| after.contains(" after all_gather #2 at ")),
            "{text}"
        );
        stage.go(1);
        stage.succeed(everybody(3));
        assert_eq!(calls_in(place.path()), [""; 0].map(PathBuf::from));
        assert!(said(&["ps"], place.path()).starts_with("no job runs in "));
    }
}

#[test]
fn a_rank_that_is_stopped_is_told_as_such_by_a_neighbour() {
    let place = place();
    let mut stage = Stage::new();
    with_one_late(&mut stage, &World::new(3, place.path()));
    stage.signal(1, Signal::STOP);
    let seen = ps(&mut stage, place.path(), &["ps", "--stacks", "--json"]);
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
fn a_question_goes_with_whoever_has_asked() {
    let place = place();
    let mut stage = Stage::new();
    with_one_late(&mut stage, &World::new(3, place.path()));
    // Rank 0, which would answer, cannot.
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
fn a_call_that_was_started_before_shows_for_whom_it_waits() {
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
    let seen = ps(&mut stage, place.path(), &["ps", "--json"]);
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
fn a_rank_that_keeps_no_calls_is_not_blamed() {
    let place = place();
    let world = World::new(3, place.path());
    let mut stage = Stage::new();
    for rank in 0..3 {
        let script = if rank == 1 {
            "join barrier at:here barrier close"
        } else {
            "join barrier barrier close"
        };
        let mut command = world.rank(rank, script);
        if rank != 0 {
            command.env("FSGATHER_TRACE", "off");
        }
        stage.start(&mut command);
    }
    stage.wait_at([1], "here");
    stage.wait_until("a rank that waits", || {
        let seen = document(&["ps", "--json"], place.path());
        seen["jobs"][0]["ranks"][0]["call"]["name"] == "barrier #2"
    });
    let seen = document(&["ps", "--json"], place.path());
    let rank = &seen["jobs"][0]["ranks"][0];
    assert_eq!(rank["waits_for"], serde_json::json!([]), "{seen}");
    assert_eq!(rank["may_wait_for"], serde_json::json!([1, 2]), "{seen}");
    let text = said(&["ps"], place.path());
    assert!(text.contains("  1? 2?\n"), "{text}");
    stage.go(1);
    stage.succeed(everybody(3));
}

#[test]
fn a_program_that_gets_over_an_error_leaves_nothing() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_TIMEOUT", "1s");
    let in_a_group = "join group:0,1 HERE fails:barrier leave_group close";
    let of_the_world = "join HERE fails:barrier drop join barrier close";
    for (script, stays) in [
        (in_a_group, false),
        (of_the_world, false),
        ("join HERE fails:barrier drop", true),
    ] {
        let mut stage = Stage::new();
        stage.start_all(&world, |rank| {
            script.replace("HERE ", if rank == 1 { "at:here " } else { "" })
        });
        stage.wait_at([1], "here");
        stage.wait_for_where(0, "a failure", |line| line.starts_with("failed "));
        assert_eq!(calls_in(place.path()).len(), 2, "{}", stage.transcript());
        stage.go(1);
        stage.succeed(everybody(2));
        let left = calls_in(place.path());
        assert_eq!(left.len(), if stays { 2 } else { 0 }, "{script}: {left:?}");
    }
}

#[test]
fn calls_survive_their_processes_and_the_error_names_them() {
    let place = place();
    let mut stage = Stage::new();
    with_one_late(&mut stage, &World::new(3, place.path()));
    ps(&mut stage, place.path(), &["ps", "--json"]);
    stage.kill(1);
    let (_, ends) = stage.fail_alike(others(3, 1), PEER_FAILED);
    let left = calls_in(place.path());
    assert_eq!(left.len(), 3, "{left:?}");
    // One rank says it for all.
    let named = |warning: &&str| warning.contains("fsgather trace");
    let warnings: Vec<String> = ends
        .iter()
        .flat_map(|end| {
            end.warnings()
                .into_iter()
                .filter(named)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].ends_with(left[0].to_str().expect("text")),
        "{warnings:?}"
    );
    let text = said(&["trace"], &left[0]);
    assert!(
        text.contains(" has failed (rank 1 was lost): ranks 0 2 waited, "),
        "{text}"
    );
    assert!(
        text.contains("  rank 1: has ended after all_gather #2 at "),
        "{text}"
    );
    // The next attempt leaves them where they are, and cleaning does not.
    let world = World::new(2, place.path());
    stage.start_all(&world, |_| "join barrier close".into());
    stage.succeed([3, 4]);
    assert_eq!(calls_in(place.path()), left);
    said(&["clean", "--execute"], place.path());
    assert!(!left[0].exists());
}

#[test]
fn a_call_that_failed_is_what_is_told_though_ranks_close_afterwards() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_TIMEOUT", "2s");
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| match rank {
        1 => "join barrier at:here fails:close".into(),
        _ => "join barrier fails:barrier fails:close".into(),
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
fn a_picture_and_a_document_are_made_of_calls() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_TRACE", "always");
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| {
        // The others wait for rank 2 twice.
        let late = if rank == 2 { "pause:60 " } else { "" };
        format!("join barrier {late}barrier {late}barrier close")
    });
    stage.succeed(everybody(3));
    assert_eq!(calls_in(place.path()).len(), 3);
    let (picture, trace) = (place.path().join("a.html"), place.path().join("a.json"));
    let to = [&picture, &trace].map(|path| path.to_str().expect("text").to_owned());
    let report = document(
        &["trace", "--json", "--to", &to[0], "--to", &to[1]],
        place.path(),
    );
    let loss = &report["losses"][0];
    assert_eq!(loss["rank"], 2, "{report}");
    assert!(loss["came_last"].as_u64() >= Some(2), "{report}");
    let cost = loss["cost_seconds"].as_f64().expect("a number");
    assert!((0.2..20.0).contains(&cost), "{report}");
    let trace: Value = serde_json::from_slice(&fs::read(&trace).expect("a file")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let waits = |event: &&Value| event["name"] == "wait for rank 2" && event["pid"] == 0;
    let longest = events
        .iter()
        .filter(waits)
        .filter_map(|event| event["dur"].as_f64());
    assert!(longest.fold(0.0, f64::max) >= 50_000.0, "{trace}");
    let page = fs::read_to_string(&picture).expect("a file");
    assert!(page.contains("rank 2 came last in "), "{}", &page[..2000]);
    // Those of a job that is over can go at any time.
    said(&["clean", "--execute"], place.path());
}

#[test]
fn run_draws_its_ranks_and_leaves_nothing_else() {
    let place = place();
    let picture = place.path().join("calls.html");
    let mut command = Command::new(command_line_tool());
    command
        .args(["run", "-n", "3", "--dir"])
        .arg(place.path())
        .arg("--trace")
        .arg(&picture)
        .args(["--", command_line_tool().to_str().expect("text"), "barrier"])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let output = process::output(&mut command).expect("a program");
    assert!(output.status.success(), "{output:?}");
    assert!(
        fs::read_to_string(&picture)
            .expect("a page")
            .contains("barrier #2")
    );
    assert_eq!(calls_in(place.path()), [""; 0].map(PathBuf::from));
}

#[test]
fn a_job_that_has_met_twice_is_one_picture_and_nothing_of_it_is_left() {
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
fn a_job_that_is_not_there_is_answered_with_those_that_are() {
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
        said.contains("no calls of job absent lie in ") && said.contains("; there are calls of: "),
        "{said}"
    );
}

#[test]
fn nothing_is_kept_where_that_is_not_wanted() {
    let place = place();
    let mut stage = Stage::new();
    let world = World::new(3, place.path()).with("FSGATHER_TRACE", "off");
    with_one_late(&mut stage, &world);
    assert_eq!(calls_in(place.path()), [""; 0].map(PathBuf::from));
    stage.kill(1);
    stage.fail_alike(others(3, 1), PEER_FAILED);
    assert_eq!(calls_in(place.path()), [""; 0].map(PathBuf::from));
}

#[test]
fn calls_are_written_on_this_host_and_copied_to_a_server_when_something_fails() {
    let Some(mount) = DoubleMount::new() else {
        return;
    };
    let world = mount.world();
    let mut stage = Stage::new();
    for rank in 0..2 {
        let script = if rank == 1 {
            "join barrier at:here barrier"
        } else {
            "join barrier barrier"
        };
        stage.start(&mut mount.rank(&world, rank, script));
    }
    stage.wait_at([1], "here");
    assert_eq!(calls_in(&mount.behind()), [""; 0].map(PathBuf::from));
    stage.kill(1);
    stage.end_all(everybody(2));
    // Rank 0 has copied what rank 1 has left.
    let left = calls_in(&mount.behind());
    assert_eq!(left.len(), 2, "{left:?}\n{}", stage.transcript());
    let text = said(&["trace"], &mount.behind());
    assert!(
        text.contains("rank 1: has ended after barrier #1 at "),
        "{text}"
    );
}

#[test]
fn a_rank_that_was_late_for_a_deadline_is_told_as_late_and_nobody_as_the_last() {
    for control in ["tcp", "markers"] {
        let place = place();
        let world = World::new(3, place.path())
            .with("FSGATHER_CONTROL", control)
            .with("FSGATHER_TRACE", "always");
        let mut stage = Stage::new();
        stage.start_all(&world, |rank| {
            let late = if rank == 1 { "at:here " } else { "" };
            format!("join barrier {late}partial:0:100:300 at:over barrier close")
        });
        stage.wait_at([1], "here");
        stage.wait_at([0, 2], "over");
        stage.go(1);
        stage.wait_at([1], "over");
        for rank in 0..3 {
            stage.go(rank);
        }
        stage.succeed(everybody(3));
        let text = said(&["trace"], place.path());
        let late = "rank 1 was too late for 1 of 1 calls that were over at their deadline; the others waited ";
        assert!(text.contains(late), "{control}: {text}");
        let report = document(&["trace", "--json"], place.path());
        // The two barriers and the closing are compared.
        assert_eq!(report["compared_calls"], 3, "{report}");
        assert_eq!(report["calls_over_at_deadline"], 1, "{report}");
        assert_eq!(report["late"][0]["rank"], 1, "{report}");
        let waited = report["late"][0]["waited_seconds"].as_f64();
        assert!(waited >= Some(0.3), "{report}");
        said(&["clean", "--execute"], place.path());
    }
}

#[test]
fn ranks_in_different_calls_are_told_with_each_of_them() {
    for control in ["tcp", "markers"] {
        let place = place();
        let world = World::new(3, place.path()).with("FSGATHER_CONTROL", control);
        let mut stage = Stage::new();
        stage.start_all(&world, |rank| {
            let last = if rank == 1 {
                "all_gather_bytes:50"
            } else {
                "barrier"
            };
            format!("join barrier {last}")
        });
        stage.fail_alike(everybody(3), DESYNC);
        let text = said(&["trace"], place.path());
        let lines: Vec<&str> = text
            .lines()
            .skip_while(|line| *line != "ranks were in different calls:")
            .collect();
        assert!(
            lines[1].starts_with("  ranks 0 2: barrier #2 at "),
            "{control}: {text}"
        );
        assert!(
            lines[2].starts_with("  rank 1: all_gather #2 at "),
            "{control}: {text}"
        );
        said(&["clean", "--execute"], place.path());
    }
}

#[test]
fn a_rank_that_comes_once_the_others_are_told_is_told_with_its_call_as_well() {
    for control in ["tcp", "markers"] {
        let place = place();
        let world = World::new(3, place.path()).with("FSGATHER_CONTROL", control);
        let mut stage = Stage::new();
        stage.start_all(&world, |rank| {
            let last = match rank {
                0 => "barrier",
                1 => "all_gather_bytes:50",
                _ => "at:late gather_bytes:0:50",
            };
            format!("join barrier {last}")
        });
        stage.wait_at([2], "late");
        let (told, _) = stage.fail_alike([0, 1], DESYNC);
        stage.go(2);
        assert_eq!(stage.fail_alike([2], DESYNC).0, told, "{control}");
        let text = said(&["trace"], place.path());
        let lines = text.lines();
        let mut lines = lines.skip_while(|line| *line != "ranks were in different calls:");
        lines.next();
        for call in [
            "rank 0: barrier #2 at ",
            "rank 1: all_gather #2 at ",
            "rank 2: gather #2 at ",
        ] {
            let line = lines.next().unwrap_or_default();
            assert!(line.trim_start().starts_with(call), "{control}: {text}");
        }
        said(&["clean", "--execute"], place.path());
    }
}
