//! Errors name the call of a group that a missing rank waits in.

use crate::common::{Stage, World, place};

#[test]
fn error_names_the_group_call_of_a_missing_rank() {
    // A busy machine may not answer in time.
    let is_reported = (0..4).any(|_| {
        let place = place();
        let world = World::new(3, place.path());
        let mut stage = Stage::new();
        stage.start(&mut world.rank(0, "join barrier barrier timed_barrier:4000"));
        stage.start(&mut world.rank(1, "join barrier barrier group:1,2 barrier"));
        stage.start(&mut world.rank(2, "join barrier barrier group:1,2 at:here"));
        let end = stage.end(0);
        let names_it = |line: &str| {
            line.contains("rank 1 on ")
                && line.contains(", last known waiting for the others in barrier #1 at ")
        };
        assert!(names_it(end.error()), "{}", stage.transcript());
        stage.end_input(2);
        let mut lines = end.stderr.iter();
        lines.any(|line| line.starts_with("  rank 1: ") && line.contains(": waiting, in "))
    });
    assert!(is_reported);
}
