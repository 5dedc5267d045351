//! Of whom users are warned when nothing moves, with real processes that are stopped.

use std::{path::Path, time::Duration};

use crate::common::{End, Stage, World, assert_nothing_left, everybody, name_of, place};
use fsgather_testkit::pace::allowed;
use rustix::process::Signal;

/// When a wait warns, and how much later it may be.
const WARNING: Duration = Duration::from_secs(30);
const LATER: Duration = Duration::from_secs(15);

fn world(directory: &Path) -> World {
    World::new(3, directory).with("FSGATHER_TRANSPORT", "memory")
}

/// Stops a rank, waits until each of `by` has warned and named it, and has it go on.
fn is_warned_of(stage: &mut Stage, stopped: usize, by: &[usize]) {
    let name = name_of(
        u32::try_from(stopped).unwrap_or_default(),
        stage.pid(stopped),
    );
    // Where rank 0 tells, it goes on with what that rank did last.
    let name = name.trim_end_matches(')');
    let since = stage.signal(stopped, Signal::STOP);
    for rank in [0, 1, 2] {
        if rank != stopped {
            stage.go(rank);
        }
    }
    for rank in by {
        let what = format!("a warning that names {name}");
        let warning = stage.wait_for_where(*rank, &what, |line| {
            line.contains("WARN") && line.contains("is still waiting for") && line.contains(name)
        });
        for other in [0, 1, 2].into_iter().filter(|other| *other != stopped) {
            let other = format!("rank {other} on");
            assert!(!warning.contains(&other), "{warning}");
        }
    }
    let took = since.elapsed();
    // It may have been silent for a moment before it was stopped.
    let earliest = WARNING.saturating_sub(Duration::from_secs(1));
    assert!(took >= earliest, "{took:?}\n{}", stage.transcript());
    assert!(
        took < allowed(WARNING + LATER),
        "{took:?}\n{}",
        stage.transcript()
    );
    stage.signal(stopped, Signal::CONT);
    stage.go(stopped);
}

/// How often a rank has warned.
fn warnings(end: &End) -> usize {
    end.warnings().len()
}

#[test]
fn a_rank_that_is_stopped_while_others_fetch_its_payload_is_named() {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&world(place.path()), |_| {
        "join start_all_gather:3000000 at:stop wait:0 close".into()
    });
    stage.wait_at(everybody(3), "stop");
    is_warned_of(&mut stage, 1, &[0]);
    stage.succeed(everybody(3));
    let ends = stage.end_all(everybody(3));
    // Rank 0 tells for all.
    assert_eq!(
        ends.iter().map(warnings).sum::<usize>(),
        1,
        "{}",
        stage.transcript()
    );
    assert_nothing_left(place.path());
}

#[test]
fn a_rank_0_that_is_stopped_is_named_by_all_who_wait_for_it() {
    let place = place();
    let mut stage = Stage::new();
    // One fetches its payload, the other waits for its verdict.
    stage.start_all(&world(place.path()), |rank| match rank {
        1 => "join start_all_gather:3000000 at:stop wait:0 barrier close".into(),
        _ => "join start_all_gather:3000000 at:stop barrier wait:0 close".into(),
    });
    stage.wait_at(everybody(3), "stop");
    is_warned_of(&mut stage, 0, &[1, 2]);
    stage.succeed(everybody(3));
    let ends = stage.end_all(everybody(3));
    let counts: Vec<usize> = ends.iter().map(warnings).collect();
    assert_eq!(counts, [0, 1, 1], "{}", stage.transcript());
    assert_nothing_left(place.path());
}

#[test]
fn who_looks_for_a_rank_0_that_does_not_come_says_so_and_meets_it_later() {
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
