//! Tests the last calls of ranks: their place, their lifetime, and the output of `ps` and `trace`.

use std::{fs, path::PathBuf, process::Command};

use fsgather_testkit::{pace::cases, process};
use serde_json::{Value, json};

use crate::common::{
    DESYNC, PEER_FAILED, Stage, World,
    build::command_line_tool,
    everybody, others, place, strangers,
    tracing::{calls_in, document, said, wait_for_two_in, with_one_late},
};

/// Carriers of messages.
const CONTROLS: [&str; 2] = ["tcp", "markers"];

#[test]
fn ps_shows_what_each_rank_does_and_waits_for() {
    for control in &CONTROLS[..cases(1, 2)] {
        let place = place();
        let world = World::new(3, place.path()).with("FSGATHER_CONTROL", control);
        let mut stage = Stage::new();
        with_one_late(&mut stage, &world);
        wait_for_two_in(&mut stage, place.path(), "barrier #3");
        let seen = document(&["ps", "--json"], place.path());
        let job = &seen["jobs"][0];
        assert_eq!(seen["jobs"].as_array().map(Vec::len), Some(1));
        assert_eq!(job["world_size"], 3);
        let mut without_directory = Command::new(command_line_tool());
        without_directory.args(["ps", "--json"]).env_clear();
        let output = process::output(&mut without_directory).expect("a program");
        let of_host: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let mut of_host = of_host["jobs"].as_array().expect("jobs").iter();
        assert!(of_host.any(|found| found["communicator"] == job["communicator"]));
        for rank in [0, 2] {
            let rank = &job["ranks"][rank];
            assert_eq!(rank["call"]["name"], "barrier #3", "{rank}");
            assert_eq!(rank["waits_for"], json!([1]));
        }
        let late = &job["ranks"][1];
        assert_eq!(
            (&late["doing"], &late["pid"]),
            (&"computing".into(), &stage.pid(1).into())
        );
        assert_eq!(late["call"]["name"], "all_gather #2");
        assert!(late["moved_bytes"].as_u64() >= Some(5000), "{late}");
        let doing = "waiting, in read on a pipe";
        stage.wait_until("the stack of rank 1", || {
            let seen = document(&["ps", "--stacks", "--json"], place.path());
            let stacks = seen["jobs"][0]["stacks"].as_array().expect("stacks");
            let mut of_late = stacks.iter().filter(|stack| stack["ranks"] == json!([1]));
            of_late.any(|stack| stack["text"].as_str().is_some_and(|text| text == doing))
        });
        stage.wait_until("the line of rank 1", || {
            let text = said(&["ps", "--stacks"], place.path());
            let mut lines = text.lines().map(str::trim_start);
            lines.any(|line| line.strip_prefix("rank 1: ") == Some(doing))
        });
        stage.go(1);
        stage.succeed(everybody(3));
        assert_eq!(calls_in(place.path()), [""; 0].map(PathBuf::from));
        assert!(said(&["ps"], place.path()).starts_with("no job runs in "));
    }
}

#[test]
fn ps_shows_only_jobs_of_the_named_directory() {
    let places = [place(), place()];
    let mut stage = Stage::new();
    for (job, place) in places.iter().enumerate() {
        // Without files in the directory, calls are kept in the private directory of this host.
        let address = format!("tcp://127.0.0.1:{}", strangers::free_port());
        let world = World::new(2, place.path())
            .with("FSGATHER_RENDEZVOUS", &address)
            .with("FSGATHER_TRANSPORT", "memory");
        stage.start_all(&world, |_| "join barrier at:here close".into());
        stage.wait_at([2 * job, 2 * job + 1], "here");
    }
    for place in &places {
        assert!(!place.path().join("all_gather_via_filesys").exists());
        let directory = place.path().to_str().expect("text");
        let mut by_variable = Command::new(command_line_tool());
        by_variable.args(["ps", "--json"]).env_clear();
        let output = process::output(by_variable.env("FSGATHER_DIR", directory));
        let by_variable = output.expect("a program").stdout;
        let by_variable: Value = serde_json::from_slice(&by_variable).expect("JSON");
        for seen in [document(&["ps", "--json"], place.path()), by_variable] {
            assert_eq!(seen["jobs"].as_array().map(Vec::len), Some(1), "{seen}");
            assert_eq!(seen["jobs"][0]["directory"], directory, "{seen}");
        }
        let text = said(&["ps"], place.path());
        let head = format!(" in {directory}: 2 ranks, met ");
        assert!(text.contains(&head), "{text}");
    }
    stage.go_all(everybody(4));
    stage.succeed(everybody(4));
}

#[test]
fn ranks_without_calls_are_not_blamed() {
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
    assert_eq!(rank["waits_for"], json!([]), "{seen}");
    assert_eq!(rank["may_wait_for"], json!([1, 2]), "{seen}");
    let text = said(&["ps"], place.path());
    assert!(text.contains("  1? 2?\n"), "{text}");
    stage.go(1);
    stage.succeed(everybody(3));
}

#[test]
fn program_that_recovers_from_an_error_leaves_nothing() {
    let place = place();
    let world = World::new(2, place.path());
    let in_a_group = "join group:0,1 HERE fails:timed_barrier:300 leave_group close";
    let of_the_world = "join HERE fails:timed_barrier:300 drop join barrier close";
    for (script, stays) in [
        (in_a_group, false),
        (of_the_world, false),
        ("join HERE fails:timed_barrier:300 drop", true),
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
fn error_that_names_its_cause_leaves_no_calls() {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&World::new(3, place.path()), |rank| {
        let fails = if rank == 1 {
            "encode_fails"
        } else {
            "all_gather_bytes:5000"
        };
        format!("join barrier {fails}")
    });
    stage.fail_alike(everybody(3), PEER_FAILED);
    assert_eq!(calls_in(place.path()), Vec::<PathBuf>::new());
}

#[test]
fn calls_survive_their_processes_and_the_error_names_them() {
    let place = place();
    let mut stage = Stage::new();
    with_one_late(&mut stage, &World::new(3, place.path()));
    wait_for_two_in(&mut stage, place.path(), "barrier #3");
    stage.kill(1);
    let (_, ends) = stage.fail_alike(others(3, 1), PEER_FAILED);
    let left = calls_in(place.path());
    assert_eq!(left.len(), 3, "{left:?}");
    let lengths =
        |ranks: [usize; 2]| ranks.map(|rank| left[rank].metadata().expect("it stays").len());
    assert!(
        lengths([0, 2]).iter().all(|length| *length < 8192),
        "{left:?}"
    );
    // Only one rank prints it.
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
        text.contains("  rank 1: ended after all_gather #2 at "),
        "{text}"
    );
    // The next attempt keeps them; cleaning removes them.
    let world = World::new(2, place.path());
    stage.start_all(&world, |_| "join barrier close".into());
    stage.succeed([3, 4]);
    assert_eq!(calls_in(place.path()), left);
    said(&["clean", "--execute"], place.path());
    assert!(!left[0].exists());
}

#[test]
fn trace_names_the_rank_that_came_last_and_draws_all_calls() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_TRACE", "always");
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| {
        // The others wait for rank 2 twice.
        let late = if rank == 2 { "at:late " } else { "" };
        format!("join barrier {late}barrier {late}barrier close")
    });
    for call in ["barrier #2", "barrier #3"] {
        stage.wait_at([2], "late");
        wait_for_two_in(&mut stage, place.path(), call);
        stage.go(2);
    }
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
    assert!(loss["cost_seconds"].as_f64() > Some(0.0), "{report}");
    let trace: Value = serde_json::from_slice(&fs::read(&trace).expect("a file")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let waits = |event: &&Value| event["name"] == "wait for rank 2" && event["pid"] == 0;
    assert!(events.iter().filter(waits).count() >= 2, "{trace}");
    let page = fs::read_to_string(&picture).expect("a file");
    assert!(page.contains("rank 2 came last in "), "{}", &page[..2000]);
    // Calls of a job that is over can be removed at any time.
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

/// Returns true if `trace` shows that these ranks were in another second call than the others.
fn shows_other_call(text: &str, call: &str, ranks: &str) -> bool {
    let end = format!(" has failed (ranks were in different calls): {ranks}");
    let mut lines = text.lines();
    lines.any(|line| line.starts_with(&format!("{call} #2 at ")) && line.ends_with(&end))
}

#[test]
fn trace_shows_the_different_calls_of_ranks() {
    for control in &CONTROLS[..cases(1, 2)] {
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
        for (call, ranks) in [("barrier", "ranks 0 2"), ("all_gather", "rank 1")] {
            assert!(shows_other_call(&text, call, ranks), "{control}: {text}");
        }
        said(&["clean", "--execute"], place.path());
    }
}

#[test]
fn trace_shows_the_different_call_of_a_late_rank() {
    for control in &CONTROLS[..cases(1, 2)] {
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
        for (call, ranks) in [
            ("barrier", "rank 0"),
            ("all_gather", "rank 1"),
            ("gather", "rank 2"),
        ] {
            assert!(shows_other_call(&text, call, ranks), "{control}: {text}");
        }
        said(&["clean", "--execute"], place.path());
    }
}
