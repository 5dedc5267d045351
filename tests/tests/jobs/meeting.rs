//! Jobs that are suspended, and meetings that failed before a rank was started, or that a rank has given up.

use std::time::Duration;

use crate::common::{
    PEER_FAILED, Stage, TIMED_OUT, World, assert_nothing_left, everybody, name_of, place,
};
use rustix::process::Signal;

/// Three ranks, of which two wait in a barrier and the third has stopped at "here".
fn two_wait(timeout: &str) -> (Stage, tempfile::TempDir) {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_TIMEOUT", timeout);
    let mut stage = Stage::new();
    stage.start_all(&world, |_| {
        "join barrier at:here barrier at:there close".into()
    });
    stage.wait_at(everybody(3), "here");
    stage.go_all(0..2);
    for rank in 0..2 {
        stage.wait_for(rank, "done at:here");
    }
    stage.settle();
    (stage, place)
}

#[test]
fn a_job_that_is_suspended_for_longer_than_its_time_out_goes_on() {
    // The whole job, and only rank 0.
    let mut jobs = [0..3, 0..1].map(|suspended| (suspended, two_wait("8s")));
    for (suspended, (stage, _)) in &jobs {
        for rank in suspended.clone() {
            stage.signal(rank, Signal::STOP);
        }
    }
    jobs[0].1.0.let_pass(Duration::from_secs(11));
    for (suspended, (stage, _)) in &mut jobs {
        for rank in suspended {
            stage.signal(rank, Signal::CONT);
        }
        stage.go(2);
    }
    for (_, (mut stage, place)) in jobs {
        stage.wait_at(everybody(3), "there");
        stage.go_all(everybody(3));
        stage.succeed(everybody(3));
        assert_nothing_left(place.path());
    }
}

#[test]
fn a_resumed_rank_reads_its_verdict_before_blaming_rank_0() {
    let (mut stage, place) = two_wait("5s");
    stage.signal(1, Signal::STOP);
    stage.go(2);
    stage.wait_at([0, 2], "there");
    stage.let_pass(Duration::from_secs(16));
    stage.signal(1, Signal::CONT);
    stage.wait_at([1], "there");
    stage.go_all(everybody(3));
    stage.succeed(everybody(3));
    assert_nothing_left(place.path());
}

/// Leaves a refusal of a failed meeting, because this rank is ended before it has met any other. Returns its text.
fn leaves_word(stage: &mut Stage, world: &World, rank: u32, place: &std::path::Path) -> String {
    let ended = stage.start(&mut world.tool(rank, &["barrier"]));
    let log = place.join("all_gather_via_filesys");
    stage.wait_until("looking for rank 0", || log.exists());
    stage.signal(ended, Signal::TERM);
    assert_eq!(stage.end(ended).code, 143);
    let name = name_of(rank, stage.pid(ended));
    format!("{name} failed (ended by SIGTERM) while joining")
}

/// It cannot be distinguished from a rank of the next attempt, which must not fail because of the previous one.
#[test]
fn who_is_started_after_a_meeting_has_failed_hears_of_it() {
    let place = place();
    let world = World::new(3, place.path())
        .with("FSGATHER_JOB", "too late")
        .with("FSGATHER_JOIN_TIMEOUT", "3s");
    let error = leaves_word(&mut Stage::new(), &world, 2, place.path());
    let expected =
        format!("a meeting of this job had failed before this rank was started: {error}");
    for rank in [1, 0] {
        // The refusal that the other rank leaves in turn must not appear here.
        let mut stage = Stage::new();
        stage.start(&mut world.rank(rank, "join close"));
        let end = stage.end(0);
        assert_eq!(end.code, TIMED_OUT, "{}", stage.transcript());
        assert!(end.error().ends_with(&format!("; {expected}")));
        assert_eq!(end.error().matches("had failed before").count(), 1);
        let warnings = end.warnings();
        assert!(
            warnings.iter().any(|warning| warning.contains(&expected)),
            "{warnings:?}"
        );
    }
}

#[test]
fn a_rank_that_is_ended_before_it_has_met_anybody_leaves_word() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_JOB", "ended");
    let mut stage = Stage::new();
    let rank0 = stage.start_late(&world, 0);
    let expected = leaves_word(&mut stage, &world, 1, place.path());
    stage.go(rank0);
    let told = stage.end(rank0);
    assert_eq!(told.code, PEER_FAILED, "{}", stage.transcript());
    assert_eq!(told.error(), expected);
}

#[test]
fn a_rank_0_that_comes_after_others_gave_up_fails_at_once() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_JOB", "slow");
    let mut stage = Stage::new();
    let rank0 = stage.start_late(&world, 0);
    let impatient = world.with("FSGATHER_JOIN_TIMEOUT", "1s");
    let member = stage.start(&mut impatient.rank(1, "join close"));
    let end = stage.end(member);
    assert_eq!(end.code, TIMED_OUT, "{}", stage.transcript());
    stage.go(rank0);
    let told = stage.end(rank0);
    let who = format!(
        "; {} has waited for so long and given up",
        name_of(1, stage.pid(member))
    );
    assert_eq!(
        (told.code, told.error()),
        (end.code, &*format!("{}{who}", end.error()))
    );
    assert_nothing_left(place.path());
}
