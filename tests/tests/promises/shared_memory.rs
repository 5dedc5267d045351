//! Ranks of one host share memory: results are right, stay right, and make no file.

use crate::common::{
    Stage, World, assert_nothing_left, everybody, payloads, place,
    shared_memory::{LEN, arenas_of, calls},
};

#[test]
fn payloads_are_read_where_they_lie_and_make_no_file() {
    let place = place();
    let world = World::new(4, place.path()).sharing_memory();
    let mut stage = Stage::new();
    stage.start_all(&world, |_| {
        format!(
            "join {} at:warm keep:{LEN} keep:{LEN} at:kept right close right",
            calls(5, LEN)
        )
    });
    stage.wait_at(everybody(4), "warm");
    stage.wait_until("no file is left of the first calls", || {
        payloads(place.path()) == 0
    });
    for rank in 0..4 {
        assert_eq!(arenas_of(stage.pid(rank)), 4);
    }
    stage.go_all(everybody(4));
    stage.wait_at(everybody(4), "kept");
    assert_eq!(payloads(place.path()), 0);
    stage.go_all(everybody(4));
    stage.succeed(everybody(4));
    assert_nothing_left(place.path());
}

#[test]
fn what_is_held_does_not_change_while_calls_go_on() {
    let place = place();
    let world = World::new(3, place.path()).sharing_memory();
    let mut stage = Stage::new();
    let others = calls(12, LEN);
    let steps = format!(
        "join job:100 keep:{LEN} job:101 keep:{LEN} {others} job:102 keep:{LEN} right {others} right let_go {others} \
         job:103 keep:{LEN} {others} right close right"
    );
    stage.start_all(&world, |_| steps.clone());
    stage.succeed(everybody(3));
    assert_nothing_left(place.path());
}
