//! Tests that files of one job decide nothing after they were moved to the place of another one.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::common::{Stage, World, assert_nothing_left, place};

/// The records of rank 0 that ranks find.
fn records_in(directory: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(directory.join("all_gather_via_filesys"));
    let paths = listed.into_iter().flatten().filter_map(Result::ok);
    let mut paths: Vec<PathBuf> = paths.map(|entry| entry.path()).collect();
    // The name exists before its contents.
    let is_whole = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.len() > 0);
    paths.retain(|path| name_of(path).starts_with("rendezvous-") && is_whole(path));
    paths
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().expect("a name");
    name.to_string_lossy().into_owned()
}

/// Splits a name into `rendezvous-KEY-` and the rest.
fn parts(name: &str) -> (&str, &str) {
    let after_key = name.match_indices('-').nth(1).expect("a key").0 + 1;
    name.split_at(after_key)
}

#[test]
fn a_record_that_was_moved_under_another_key_leads_nowhere() {
    for control in ["tcp", "markers"] {
        let place = place();
        let world = |job: &str| {
            World::new(2, place.path())
                .with("FSGATHER_CONTROL", control)
                .with("FSGATHER_JOB", job)
        };
        let mine = world("mine");
        let its = world("its").with("FSGATHER_JOIN_TIMEOUT", "2s");
        let mut stage = Stage::new();
        // Finds the key of the other job.
        let its_0 = stage.start(&mut its.rank(0, "join close"));
        stage.wait_until("a record", || !records_in(place.path()).is_empty());
        let record = records_in(place.path()).remove(0);
        let its_key = parts(&name_of(&record)).0.to_owned();
        stage.kill(its_0);
        stage.end(its_0);
        for left in records_in(place.path()) {
            fs::remove_file(left).expect("a file");
        }

        let my_0 = stage.start(&mut mine.rank(0, "join all_gather_bytes:100 close"));
        stage.wait_until("a record", || !records_in(place.path()).is_empty());
        let record = records_in(place.path()).remove(0);
        let moved = format!("{its_key}{}", parts(&name_of(&record)).1);
        let moved = record.with_file_name(moved);
        fs::rename(&record, &moved).expect("a directory of one's own");
        let its_1 = stage.start(&mut its.rank(1, "join all_gather_bytes:100 close"));
        let end = stage.end(its_1);
        assert_ne!(end.code, 0, "{}", stage.transcript());
        assert!(
            end.error().contains("of another job"),
            "{}",
            stage.transcript()
        );
        // The job continues as if nothing had happened.
        fs::rename(&moved, &record).expect("a directory of one's own");
        let my_1 = stage.start(&mut mine.rank(1, "join all_gather_bytes:100 close"));
        let ends = stage.end_all([my_0, my_1]);
        assert!(
            ends.iter().all(|end| end.code == 0),
            "{}",
            stage.transcript()
        );
    }
}

/// The directories in which rank 0 of each job leaves its messages.
fn bulletins_in(directory: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(directory.join("all_gather_via_filesys"));
    let paths = listed.into_iter().flatten().filter_map(Result::ok);
    let mut paths: Vec<PathBuf> = paths.map(|entry| entry.path().join("out")).collect();
    paths.retain(|path| path.is_dir());
    paths
}

#[test]
fn messages_that_were_moved_from_another_job_decide_nothing() {
    let place = place();
    let world = |job: &str| {
        // So that other users may rename files, as this test does.
        World::new(2, place.path())
            .with("FSGATHER_DIR_MODE", "0770")
            .with("FSGATHER_CONTROL", "markers")
            .with("FSGATHER_JOB", job)
    };
    let mut stage = Stage::new();
    stage.start_all(&world("mine"), |_| {
        "join at:first barrier at:decided close".into()
    });
    stage.wait_at([0, 1], "first");
    let mine = bulletins_in(place.path()).remove(0);
    let other = world("its");
    let its = [0, 1].map(|rank| stage.start(&mut other.rank(rank, "join barrier at:past close")));
    stage.wait_at(its, "past");
    let outs = bulletins_in(place.path());
    let its_out = outs.iter().find(|out| **out != mine).expect("another");

    // Rank 1 waits for the verdict that the other job has already; rank 0 has not reached the call.
    stage.go(1);
    for bulletin in fs::read_dir(its_out).expect("a directory") {
        let bulletin = bulletin.expect("a file").path();
        if name_of(&bulletin).starts_with("bulletin-") {
            fs::rename(&bulletin, mine.join(name_of(&bulletin))).expect("a directory of one's own");
        }
    }
    // It checks several times a second.
    stage.let_pass(Duration::from_secs(1));
    let said = stage.transcript();
    assert!(!said.contains("at decided"), "{said}");
    stage.go(0);
    stage.wait_at([0, 1], "decided");
    stage.go_all([0, 1]);
    stage.go_all(its);
    stage.succeed([0, 1].into_iter().chain(its));
    assert_nothing_left(place.path());
}
