//! Calls that are awaited.

mod common;

use common::{PEER_FAILED, Stage, World, assert_nothing_left, everybody, name_of, payloads, place};

const EXECUTORS: [&str; 3] = ["current", "multi", "pollster"];

#[test]
fn several_calls_are_awaited_together_by_any_executor() {
    for transport in ["filesys", "memory"] {
        let place = place();
        let world = World::new(3, place.path()).with("FSGATHER_TRANSPORT", transport);
        let mut stage = Stage::new();
        stage.start_all(&world, |_| {
            let steps = EXECUTORS.map(|executor| format!("await:{executor}:200000*"));
            format!("join {} close", steps.join(" "))
        });
        stage.succeed(everybody(3));
        assert_nothing_left(place.path());
    }
}

#[test]
fn a_future_that_is_dropped_half_way_neither_blocks_nor_leaves_anything() {
    for executor in EXECUTORS {
        let place = place();
        let mut stage = Stage::new();
        stage.start_all(&World::new(2, place.path()), |rank| match rank {
            0 => format!("join unawaited:{executor} at:given-up barrier close"),
            _ => "join at:late start_all_gather:300000 wait:0 barrier close".into(),
        });
        stage.wait_at([1], "late");
        stage.wait_for(0, "dropped");
        stage.wait_at([0], "given-up");
        stage.go_all([0, 1]);
        stage.wait_until("payloads to go", || payloads(place.path()) == 0);
        stage.succeed(everybody(2));
        assert_nothing_left(place.path());
    }
}

#[test]
fn what_goes_wrong_is_told_to_those_who_await() {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&World::new(3, place.path()), |rank| match rank {
        1 => "join at:gone".into(),
        _ => "join at:ready await:current:1000".into(),
    });
    stage.wait_at([1], "gone");
    stage.wait_at([0, 2], "ready");
    stage.go_all([0, 2]);
    stage.kill(1);
    let (error, _) = stage.fail_alike([0, 2], PEER_FAILED);
    assert!(error.contains(&name_of(1, stage.pid(1))), "{error}");
}
