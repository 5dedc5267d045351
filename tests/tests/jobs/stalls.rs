//! Warnings about the ranks that others wait for, with real processes.

use crate::common::{End, Stage, World, assert_nothing_left, everybody, name_of, place};
use rustix::process::Signal;

#[test]
fn a_rank_0_that_is_stopped_is_named_by_all_who_wait_for_it() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_TRANSPORT", "memory");
    let mut stage = Stage::new();
    // One rank fetches its payload, the other waits for its verdict.
    stage.start_all(&world, |rank| match rank {
        1 => "join start_all_gather:3000000 at:stop wait:0 barrier close".into(),
        _ => "join start_all_gather:3000000 at:stop barrier wait:0 close".into(),
    });
    stage.wait_at(everybody(3), "stop");
    stage.signal(0, Signal::STOP);
    stage.go_all(everybody(3));
    let name = name_of(0, stage.pid(0));
    // The last activity of that rank follows within the parentheses.
    let name = name.trim_end_matches(')');
    for rank in [1, 2] {
        let what = format!("a warning that names {name}");
        let warning = stage.wait_for_where(rank, &what, |line| {
            line.contains("WARN") && line.contains("is still waiting for") && line.contains(name)
        });
        for other in ["rank 1 on", "rank 2 on"] {
            assert!(!warning.contains(other), "{warning}");
        }
    }
    stage.signal(0, Signal::CONT);
    stage.succeed(everybody(3));
    let ends = stage.end_all(everybody(3));
    let counts: Vec<usize> = ends.iter().map(warnings).collect();
    assert_eq!(counts, [0, 1, 1], "{}", stage.transcript());
    assert_nothing_left(place.path());
}

/// Number of times that a rank has warned.
fn warnings(end: &End) -> usize {
    end.warnings().len()
}

#[test]
fn a_rank_searching_for_rank_0_says_so_and_meets_it_later() {
    let place = place();
    let mut stage = Stage::new();
    let two = World::new(2, place.path());
    let member = stage.start(&mut two.rank(1, "join close"));
    stage.wait_for_where(member, "a warning that rank 0 is waited for", |line| {
        line.contains("WARN")
            && line.contains("still waiting for rank 0 to appear in ")
            && line.contains(&*place.path().to_string_lossy())
            && line.contains(", for 30 s now; see whether rank 0 was started")
    });
    stage.start(&mut two.rank(0, "join close"));
    let ends = stage.end_all(everybody(2));
    assert_eq!(warnings(&ends[0]), 1, "{}", stage.transcript());
    assert_nothing_left(place.path());
}
