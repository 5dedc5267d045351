//! Ranks that do not start, start late, stop, or have the identity of another rank.

use crate::common::{
    PEER_FAILED, Stage, TIMED_OUT, World, assert_nothing_left, everybody, name_of, place,
    refusals_in,
};
use rustix::process::Signal;

#[test]
fn ranks_that_never_start_are_named_exactly() {
    let place = place();
    let world = World::new(4, place.path());
    let mut stage = Stage::new();
    let member = stage.start(&mut world.rank(2, "join close"));
    // The time-out of rank 0 counts; member 2 must not reach its own before it has joined.
    let world = world.with("FSGATHER_JOIN_TIMEOUT", "3s");
    let rank0 = stage.start(&mut world.rank(0, "join close"));
    let (error, _) = stage.fail_alike([rank0, member], TIMED_OUT);
    for said in [
        "waiting for rank 1 (never joined), rank 3 (never joined);",
        "FSGATHER_JOIN_TIMEOUT",
    ] {
        assert!(error.contains(said), "{said}: {error}");
    }
    assert_nothing_left(place.path());
}

#[test]
fn without_rank_0_the_others_say_so() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_JOIN_TIMEOUT", "1s");
    let mut stage = Stage::new();
    for rank in [1, 2] {
        stage.start(&mut world.rank(rank, "join close"));
    }
    // The later rank may get the failure of the earlier one.
    for end in stage.end_all(0..2) {
        assert_eq!(end.code, TIMED_OUT, "{}", stage.transcript());
        let named = end.error().contains("waiting for rank 0 (never joined)");
        assert!(named, "{end:?}");
    }
    assert_nothing_left(place.path());
}

#[test]
fn a_stopped_rank_is_named_when_time_is_up() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_TIMEOUT", "2s");
    let mut stage = Stage::new();
    stage.start_all(&world, |_| "join at:here barrier close".into());
    stage.wait_at(everybody(3), "here");
    stage.signal(2, Signal::STOP);
    stage.go_all(everybody(3));
    for rank in 0..2 {
        stage.wait_for(rank, "kind: Timeout");
    }
    // Rank 0 does not stay for it any longer.
    stage.kill(2);
    let (error, _) = stage.fail_alike(0..2, TIMED_OUT);
    let name = format!("waiting for {}", name_of(2, stage.pid(2)));
    let name = name.trim_end_matches(')');
    assert!(error.contains(name) && !error.contains("rank 1"), "{error}");
    assert!(error.contains("FSGATHER_TIMEOUT"), "{error}");
}

/// A world of three in which rank 1 is killed after it has joined, while rank 2 has not joined yet. Returns the stage, the number of rank 2
/// there, and the error.
fn a_failed_meeting(world: &World) -> (Stage, usize, String) {
    let mut stage = Stage::new();
    let late = stage.start_late(world, 2);
    let rank0 = stage.start(&mut world.rank(0, "join close"));
    let killed = stage.start(&mut world.rank(1, "join close"));
    stage.wait_until_taken_in(killed);
    stage.kill(killed);
    let end = stage.end(rank0);
    assert_eq!(end.code, PEER_FAILED, "{}", stage.transcript());
    let error = end.error().to_owned();
    assert!(error.starts_with(&name_of(1, stage.pid(killed))), "{error}");
    (stage, late, error)
}

#[test]
fn who_comes_to_a_meeting_that_has_failed_is_told_why() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_JOB", "late");
    let (mut stage, late, error) = a_failed_meeting(&world);
    stage.go(late);
    let late = stage.end(late);
    assert_eq!((late.code, late.error()), (PEER_FAILED, error.as_str()));
    assert_eq!(refusals_in(place.path()).len(), 1);
}

#[test]
fn who_comes_when_rank_0_was_killed_is_told_so() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_JOB", "killed");
    let mut stage = Stage::new();
    let late = stage.start_late(&world, 2);
    let rank0 = stage.start(&mut world.rank(0, "join close"));
    let member = stage.start(&mut world.rank(1, "join close"));
    stage.wait_until_taken_in(member);
    stage.kill(rank0);
    let end = stage.end(member);
    assert_eq!(end.code, PEER_FAILED, "{}", stage.transcript());
    let name = name_of(0, stage.pid(rank0));
    assert!(end.error().starts_with(&name), "{end:?}");
    stage.go(late);
    let told = stage.end(late);
    assert_eq!((told.code, told.error()), (end.code, end.error()));
}

/// The members of the next attempt search for rank 0 before it is there, and see only leftovers of the previous one.
#[test]
fn the_next_attempt_of_a_job_whose_meeting_has_failed_succeeds() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_JOB", "again");
    let (mut failed, late, _) = a_failed_meeting(&world);
    failed.kill(late);
    failed.end(late);
    let mut stage = Stage::new();
    for rank in [1, 2] {
        stage.start(&mut world.rank(rank, "join barrier close"));
    }
    stage.settle();
    stage.start(&mut world.rank(0, "join barrier close"));
    stage.succeed(everybody(3));
    assert_nothing_left(place.path());
    assert_eq!(refusals_in(place.path()).len(), 0);
}
