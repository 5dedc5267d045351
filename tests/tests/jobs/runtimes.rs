//! The library within tokio runtimes.

use crate::common::{Stage, World, assert_nothing_left, everybody, place};
use fsgather::{Communicator, Error, Pieces, Stream};

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
fn a_multi_thread_runtime_runs_groups_and_pending_calls() {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&World::new(3, place.path()), |_| {
        "multi join start_all_gather:100000 start_gather:1:100000 wait:1 wait:0 list:1000:10 \
         group:2,1,0 all_gather:100000 split:2 all_gather:100000 close_group close_group close"
            .into()
    });
    stage.succeed(everybody(3));
    assert_nothing_left(place.path());
}

#[test]
fn blocking_calls_are_refused_in_a_current_thread_runtime() {
    fn refused<T>(call: &str, result: Result<T, Error>) {
        match result {
            Err(Error::Config { message, .. }) => {
                assert!(message.contains("spawn_blocking"), "{call}: {message}");
            }
            Err(other) => panic!("{call}: {other}"),
            Ok(_) => panic!("{call} was not refused"),
        }
    }
    let world = Communicator::solo();
    let pending = world.start_all_gather(&1).unwrap();
    let mut other = world.start_gather(Pieces::from(vec![1]), 0).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        refused("wait", pending.wait());
        refused("try_wait", other.try_wait());
        refused("group", world.group(&[0]));
        refused("split", world.split(Some(1), 0));
        refused("start_all_gather", world.start_all_gather(&1));
        refused("start_gather", world.start_gather(&1, 0));
        refused(
            "start_all_gather_bytes",
            world.start_all_gather(Pieces::from(vec![1])),
        );
        refused("gather_from", world.gather(Stream::new(&mut &b"x"[..]), 0));
        refused("broadcast", world.broadcast(&1, 0));
    });
    // Refused calls have used no number, and a result that was not taken is still available.
    assert!(other.try_wait().unwrap().is_some());
    assert_eq!(world.all_gather(&2), Ok(vec![2]));
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
fn a_rank_refused_in_a_current_thread_runtime_is_reported() {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&World::new(2, place.path()), |rank| {
        let inside = if rank == 1 { "current" } else { "" };
        format!("join {inside} barrier close")
    });
    let refused = stage.end(1);
    assert_eq!(refused.code, 2, "{refused:?}");
    let told = stage.end(0);
    assert_eq!(told.code, crate::common::PEER_FAILED, "{told:?}");
    assert!(told.error().contains("rank 1 on"), "{told:?}");
    assert_nothing_left(place.path());
}

/// Drops communicators within a runtime: nothing panics, and nothing is left.
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
