//! The library inside of tokio runtimes.

mod common;

use common::{Stage, World, assert_nothing_left, everybody, place};

#[test]
fn a_multi_thread_runtime_is_a_fine_place_for_a_communicator() {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&World::new(3, place.path()), |_| {
        "multi join barrier all_gather_bytes:100000 gather:1:100000 close".into()
    });
    stage.succeed(everybody(3));
    assert_nothing_left(place.path());
}

#[test]
fn a_current_thread_runtime_is_refused_with_what_to_do() {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&World::new(2, place.path()), |_| {
        "current join close".into()
    });
    let (error, _) = stage.fail_alike(everybody(2), 2);
    assert!(error.contains("spawn_blocking"), "{error}");
    assert_nothing_left(place.path());
}

#[test]
fn calls_are_refused_in_a_current_thread_runtime_and_others_are_told_when_it_goes() {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&World::new(2, place.path()), |rank| {
        let inside = if rank == 1 { "current" } else { "" };
        format!("join {inside} barrier close")
    });
    let refused = stage.end(1);
    assert_eq!(refused.code, 2, "{refused:?}");
    let told = stage.end(0);
    assert_eq!(told.code, common::PEER_FAILED, "{told:?}");
    assert!(told.error().contains("rank 1 on"), "{told:?}");
    assert_nothing_left(place.path());
}

/// Communicators are dropped where the runtime runs; nothing panics, nothing stays.
fn dropped_inside(runtime: &str) {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&World::new(3, place.path()), |_| {
        format!("join all_gather_bytes:100000 {runtime} drop")
    });
    stage.succeed(everybody(3));
    assert_nothing_left(place.path());
}

#[test]
fn dropping_inside_a_multi_thread_runtime_does_not_panic() {
    dropped_inside("multi");
}

#[test]
fn dropping_inside_a_current_thread_runtime_does_not_panic() {
    dropped_inside("current");
}
