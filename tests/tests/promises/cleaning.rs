//! Tests the leftovers of a crash, and the users who can see and remove them.

use std::{fs, path::Path, thread};

use fsgather_testkit::pace::cases;
use rustix::process::Signal;

use crate::common::{
    Stage, World,
    build::command_line_tool,
    everybody, left_in,
    leftovers::{gather_dirs, waiting},
    place,
    verbs::{clean, command, inspected, json, text},
};

#[test]
fn a_killed_gather_is_stale_and_a_stopped_one_is_live() {
    let place = place();
    let mut stage = Stage::new();
    let world = World::new(2, place.path())
        .with("FSGATHER_JOB", "4711")
        .with("FSGATHER_TRACE", "off");
    waiting(&mut stage, &world);
    stage.signal(0, Signal::STOP);
    let seen = inspected(&[], place.path());
    assert_eq!(
        (&seen["state"], &seen["removable"]),
        (&"live".into(), &false.into())
    );
    let owner = &seen["owner"];
    assert_eq!(owner["pid"], stage.pid(0));
    assert_eq!(
        (&seen["job"], &seen["world_size"]),
        (&"4711".into(), &2.into())
    );
    let plan = clean(&[], place.path(), &["--execute", "--older-than", "1ms"]);
    assert_eq!(plan["removed"].as_array().map(Vec::len), Some(0), "{plan}");
    stage.kill(0);
    stage.kill(1);
    stage.end_all(everybody(2));
    let seen = inspected(&[], place.path());
    assert_eq!(seen["state"], "stale", "{seen}");
    let reason = seen["reason"].as_str().expect("text");
    let pid = format!("pid {} on ", stage.pid(0));
    assert!(
        reason.contains(&pid) && reason.ends_with("has ended"),
        "{reason}"
    );
    let plan = clean(&[], place.path(), &[]);
    // The gather directory, rank 0's record, and the rendezvous directory that is empty then.
    assert_eq!(plan["planned"].as_array().map(Vec::len), Some(3), "{plan}");
    assert_eq!(gather_dirs(place.path()).len(), 1, "a plan removes nothing");
    clean(&[], place.path(), &["--execute"]);
    assert_eq!(fs::read_dir(place.path()).expect("a directory").count(), 0);
}

/// Runs jobs one after the other and kills every third; returns the number of killed jobs.
fn run_and_kill_jobs(directory: &Path, jobs: u32) -> usize {
    let mut killed = 0;
    for job in 0..jobs {
        let mut stage = Stage::new();
        let world = World::new(2, directory).with("FSGATHER_JOB", &job.to_string());
        if job % 3 == 0 {
            waiting(&mut stage, &world);
            stage.kill(0);
            stage.kill(1);
            stage.end_all(everybody(2));
            killed += 1;
        } else {
            stage.start_all(&world, |_| {
                "join all_gather_bytes:300000 gather_bytes:0:300000 close".into()
            });
            stage.succeed(everybody(2));
        }
    }
    killed
}

#[test]
fn cleaning_all_the_time_spares_jobs_that_run() {
    let place = place();
    let rendezvous = place.path().join("all_gather_via_filesys");
    let clean_once = || {
        let done = clean(&[], place.path(), &["--execute", "--older-than", "1ms"]);
        let removed = done["removed"].as_array().expect("a list").iter();
        let paths = removed.filter_map(|item| item["path"].as_str());
        paths.filter(|path| path.contains("/gather-")).count()
    };
    let (killed, mut removed) = thread::scope(|scope| {
        let jobs = scope.spawn(|| run_and_kill_jobs(place.path(), cases(4, 30)));
        let mut removed = 0;
        while !jobs.is_finished() {
            removed += clean_once();
        }
        (jobs.join().expect("the jobs"), removed)
    });
    // A killed process may leave a probe file, which is removed by its age alone.
    while rendezvous.exists() {
        removed += clean_once();
    }
    assert!(0 < removed && removed <= killed, "{removed} of {killed}");
}

#[test]
fn a_later_attempt_removes_what_an_earlier_one_has_left() {
    let place = place();
    let of = |job: &str| World::new(2, place.path()).with("FSGATHER_JOB", job);
    for job in ["4711", "4712"] {
        let mut stage = Stage::new();
        stage.start_all(&of(job), |_| "join gather_bytes:0:300000:read close".into());
        stage.wait_at([0], "reading");
        stage.kill(0);
        stage.kill(1);
        stage.end_all(everybody(2));
    }
    assert_eq!(gather_dirs(place.path()).len(), 2);
    assert!(crate::common::payloads(place.path()) > 0);
    let mut stage = Stage::new();
    // The world size does not matter for the identity of a job.
    let world = World::new(3, place.path()).with("FSGATHER_JOB", "4711");
    stage.start_all(&world, |_| "join all_gather_bytes:300000 close".into());
    stage.succeed(everybody(3));
    let left = gather_dirs(place.path());
    assert_eq!(left.len(), 1, "{left:?}");
    let owner = fs::read_to_string(left[0].join("owner")).expect("a record");
    assert!(owner.contains("\njob=4712\n"), "{owner}");
    clean(&[], place.path(), &["--execute"]);
    let mut left = left_in(place.path());
    // A process that was killed while it asked for the server's time has left a probe, which stays for ten minutes.
    let is_probe = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with("probe-")
    };
    left.retain(|path| !is_probe(path));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_world_that_lives_has_left_nothing() {
    let place = place();
    let named = place.path().to_str().expect("text");
    let mut stage = Stage::new();
    let world = World::new(2, place.path());
    // The first rank of two: it waits for the other one.
    stage.start(&mut world.rank(0, "join close"));
    let of_inspect = || json(&[], &["inspect", "--json", named], 0)["directories"][0].clone();
    stage.wait_until("a record", || {
        let seen = of_inspect();
        assert_eq!(
            seen["leftovers"].as_array().map(Vec::len),
            Some(0),
            "{seen}"
        );
        let meeting = &seen["meetings"][0];
        meeting["forming"] == true && meeting["world_size"] == 2
    });
    let shown = command(&[], command_line_tool(), &["inspect", named]);
    let shown = text(&shown.stdout);
    assert!(shown.contains("1 forming, 0 live, "), "{shown}");
    assert!(shown.contains(", 0 leftovers;"), "{shown}");
    assert!(
        shown.contains("      2 ranks expected; its writer, pid "),
        "{shown}"
    );
    fs::write(place.path().join("all_gather_via_filesys/thesis.tex"), "x").expect("a file");
    let plan = clean(&[], place.path(), &["--execute", "--older-than", "1ms"]);
    assert_eq!(plan["removed"].as_array().map(Vec::len), Some(0), "{plan}");
    let kept = plan["kept"].to_string();
    assert!(
        kept.contains("thesis.tex") && kept.contains("not written by fsgather"),
        "{kept}"
    );
    stage.start(&mut world.rank(1, "join close"));
    stage.succeed(everybody(2));
}
