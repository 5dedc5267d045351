//! Tests the cause that `fsgather run` reports for a failure, with real processes.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "functions that tests share fail them in the same way"
)]

mod common;

use std::{fs, process::Stdio};

use common::{finish, run_script, start};

#[test]
fn the_rank_that_failed_first_is_named_with_its_own_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display();
    // The other ranks end long before the rank that failed.
    let script = format!(
        "cd '{path}'; echo x >part.0; echo x >part.2
         \"$TOOL\" gather part.$RANK --concat=/dev/null --dir '{path}'; code=$?
         if [ $RANK = 1 ]; then while [ ! -e go ]; do sleep 0.1; done; fi
         exit $code"
    );
    let mut running = start(&mut run_script(3, &["--json", "--grace", "1h"], &script));
    running.wait_for("exited with code 11; last error: rank 1 on ");
    fs::write(directory.path().join("go"), "").unwrap();
    running.wait_for(") exited with code 12; last error: cannot read part.1: No such file");
    let done = running.finish();
    assert_eq!(done.code, Some(12), "{}", done.stderr);
    let document: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(document["failed_first"], 1);
    let cause = document["cause"].as_str().unwrap();
    assert!(cause.starts_with("rank 1 (pid "), "{cause}");
    assert!(
        cause.contains("cannot read part.1: No such file"),
        "{cause}"
    );
    let of = |rank: usize| document["ranks"][rank]["error"].as_str().unwrap();
    assert!(of(1).starts_with("cannot read part.1"), "{document}");
    assert!(of(0).starts_with("rank 1 on "), "{document}");
}

#[test]
fn errors_of_ranks_that_succeeded_are_not_the_cause() {
    let directory = tempfile::tempdir().unwrap();
    let cause = |mine: &str, others: &str| {
        let path = directory.path().display();
        let script = format!(
            "cd '{path}'; rm -f gone; echo x >there; export FSGATHER_DIR='{path}'
             if [ $RANK = 1 ]; then {mine}; else {others}; fi"
        );
        let done = finish(&mut run_script(2, &["--json", "--timeout", "1s"], &script));
        let document: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        let cause = document["cause"].as_str().unwrap().to_owned();
        let pid = &document["ranks"][1]["pid"];
        (
            cause,
            format!("rank 1 (pid {pid}) exited with code 9"),
            done,
        )
    };
    // The other rank timed out, and succeeded in spite of it.
    let (reported, plain, done) = cause(
        "until [ -e gone ]; do sleep 0.05; done; exit 9",
        "\"$TOOL\" barrier || touch gone; exit 0",
    );
    assert_eq!(reported, plain, "{}", done.stderr);
    // Its own last error is reported, but not as the cause.
    let (reported, plain, done) = cause(
        "\"$TOOL\" gather missing --concat=/dev/null; echo segfault in user code >&2; exit 9",
        "\"$TOOL\" gather there --concat=/dev/null",
    );
    let prefix = format!("{plain}; last error: cannot read missing");
    assert!(reported.starts_with(&prefix), "{reported}\n{}", done.stderr);
}

#[test]
fn a_rank_that_ends_before_its_first_call_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display();
    for ended in [0, 2] {
        let script = format!("[ $RANK = {ended} ] || exec \"$TOOL\" barrier --dir '{path}'");
        // Without a report, the others would wait that long.
        let options = ["--timeout", "10m", "--grace", "10m"];
        let done = finish(&mut run_script(3, &options, &script));
        assert_eq!(done.code, Some(11), "{}", done.stderr);
        let said = format!("last error: rank {ended} on ");
        assert!(done.stderr.contains(&said), "{}", done.stderr);
        let said = "was lost (it exited with code 0 before it joined)";
        assert_eq!(done.stderr.matches(said).count(), 3, "{}", done.stderr);
    }
}

#[test]
fn idle_rank_that_does_not_join_is_reported_to_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display();
    for idle in [0, 2] {
        // It sleeps in the kernel until a line arrives.
        let script = format!(
            "[ $RANK = {idle} ] || exec \"$TOOL\" barrier --dir '{path}'
             mkfifo '{path}/go.{idle}'; read _ <'{path}/go.{idle}'"
        );
        let options = ["--idle-limit", "2s", "--grace", "10m"];
        let mut running = start(&mut run_script(3, &options, &script));
        for _ in 0..2 {
            running.wait_for("has not joined and shows no sign of work");
        }
        fs::write(directory.path().join(format!("go.{idle}")), "\n").unwrap();
        let done = running.finish();
        assert_eq!(done.code, Some(15), "{}", done.stderr);
        let said = format!("last error: ranks could not meet: rank {idle} on ");
        assert!(done.stderr.contains(&said), "{}", done.stderr);
        let said = "it has used less than 1 % of a processor for 2 s; ";
        assert_eq!(done.stderr.matches(said).count(), 3, "{}", done.stderr);
    }
}

#[test]
fn ranks_without_calls_may_end_at_different_times() {
    let script = "echo end $RANK; [ $RANK != 0 ] || cat";
    let mut running = start(run_script(4, &[], script).stdin(Stdio::piped()));
    for rank in 0..4 {
        running.wait_for(&format!("[{rank}] end {rank}"));
    }
    running.close_input();
    let done = running.finish();
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
}

#[test]
fn doctor_reports_at_once_when_another_rank_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display();
    let script = format!("[ $RANK = 1 ] || exit 12; exec \"$TOOL\" doctor '{path}'");
    // It would wait for rank 0 that long.
    let options = ["--timeout", "10m", "--grace", "10m"];
    let done = finish(&mut run_script(2, &options, &script));
    assert_eq!(done.code, Some(12), "{}", done.stderr);
    let said = done.lines_of(1).join("\n");
    assert!(said.contains("report of rank 1 of 2 alone"), "{said}");
    let lost = "was lost (it exited with code 12 before it joined)";
    assert!(said.contains(lost), "{said}");
}
