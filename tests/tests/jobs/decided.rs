//! Processes that stay after their last call for ranks that still have to read their data.

use std::time::Duration;

use crate::common::{Stage, World, assert_nothing_left, everybody, in_step, name_of, place};
use rustix::process::Signal;

/// Starts two ranks, of which rank 1 reads the payloads late; rank 0, which joins by `joins`, ends without a close.
fn with_a_late_reader(joins: &str, timeout: &str, directory: &std::path::Path) -> Stage {
    let world = World::new(2, directory)
        .with("FSGATHER_TRANSPORT", "memory")
        .with("FSGATHER_TIMEOUT", timeout);
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| match rank {
        0 => format!("{joins} start_all_gather:300000 barrier wait:0 drop"),
        _ => "join start_all_gather:300000 barrier at:late wait:0 drop".into(),
    });
    stage.wait_at([1], "late");
    stage.wait_for(0, "done wait:0");
    stage
}

#[test]
fn a_job_that_is_suspended_while_ranks_stay_goes_on() {
    let place = place();
    let mut stage = with_a_late_reader("join", "8s", place.path());
    stage.settle();
    for rank in everybody(2) {
        stage.signal(rank, Signal::STOP);
    }
    stage.let_pass(Duration::from_secs(12));
    for rank in everybody(2) {
        stage.signal(rank, Signal::CONT);
    }
    stage.settle();
    assert!(stage.runs(0), "{}", stage.transcript());
    stage.go(1);
    stage.succeed(everybody(2));
    assert_nothing_left(place.path());
}

#[test]
fn a_later_failure_ends_no_stay() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_TRANSPORT", "filesys");
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| match rank {
        0 => "join start_all_gather:300000 barrier fails:barrier drop".into(),
        1 => "join start_all_gather:300000 barrier at:late wait:0 fails:barrier drop".into(),
        _ => "join start_all_gather:300000 barrier fails:encode_fails drop".into(),
    });
    stage.wait_at([1], "late");
    for (rank, step) in [(0, "fails:barrier"), (2, "fails:encode_fails")] {
        stage.wait_for(rank, &format!("done {step}"));
    }
    let stays = format!(
        "until {} has read what was handed over",
        name_of(1, stage.pid(1))
    );
    stage.wait_for_where(0, &stays, |line| {
        line.contains("this process stays, for") && line.contains(&stays)
    });
    stage.go(1);
    stage.succeed(everybody(3));
    assert_nothing_left(place.path());
}

#[test]
fn who_asks_a_rank_to_end_is_told_for_whom_it_has_stayed() {
    let place = place();
    let file = place.path().join("end");
    let joins = format!("join_asking:{}", in_step(&file));
    let mut stage = with_a_late_reader(&joins, "10m", place.path());
    stage.settle();
    assert!(stage.runs(0), "{}", stage.transcript());
    std::fs::write(&file, "").expect("a file");
    stage.succeed([0]);
    let told = format!(
        "this process ends although {} has not read what was handed over; KeyboardInterrupt",
        name_of(1, stage.pid(1))
    );
    let said = stage.end(0).stderr;
    assert!(said.iter().any(|line| line.contains(&told)), "{said:?}");
}

#[test]
fn unread_results_go_with_the_last_rank_even_after_rank_0() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_TRANSPORT", "filesys");
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| match rank {
        0 => "join hold:300000 fails:barrier leave_with:told".into(),
        1 => "join hold:300000 leave_with:boo".into(),
        _ => "join hold:300000 at:late fails:barrier leave".into(),
    });
    stage.wait_at([2], "late");
    for end in stage.end_all([0, 1]) {
        assert_eq!(end.code, 0, "{}", stage.transcript());
    }
    stage.go(2);
    assert_eq!(stage.end_all([2])[0].code, 0, "{}", stage.transcript());
    assert_nothing_left(place.path());
}
