//! Ranks with contradictory world sizes, and worlds of different sizes that are intended.

use std::time::Duration;

use crate::common::{Stage, TIMED_OUT, World, assert_nothing_left, everybody, place};

/// Checks that a text names the world sizes of a process and of rank 0.
fn assert_told(text: &str, (rank, pid, its): (u32, u32, u32), (zero, zeros): (u32, u32)) {
    for said in [
        format!("rank {rank} ("),
        format!("pid {pid}) was told that there are {its} ranks, "),
        format!("pid {zero}) that there are {zeros};"),
    ] {
        assert!(text.contains(&said), "{said}: {text}");
    }
}

#[test]
fn ranks_that_were_told_different_world_sizes_are_told_so() {
    // The rank of three with the wrong world size, and that size.
    let cases = [(2, 4), (0, 2)];
    let start = |(misled, its_size)| {
        let place = place();
        let mut stage = Stage::new();
        for rank in 0..3 {
            let ranks = if rank == misled { its_size } else { 3 };
            let world = World::new(ranks, place.path()).with("FSGATHER_JOIN_TIMEOUT", "8s");
            stage.start(&mut world.rank(rank, "join close"));
        }
        (stage, place)
    };
    let started: Vec<_> = cases.map(start).into();
    for ((misled, its_size), (mut stage, place)) in cases.into_iter().zip(started) {
        let ends = stage.end_all(0..3);
        let (named, its, zeros) = match misled {
            0 => (1, 3, its_size),
            rank => (rank, its_size, 3),
        };
        for end in &ends {
            assert_eq!(end.code, TIMED_OUT, "{}", stage.transcript());
        }
        for rank in [0, named] {
            let end = &ends[rank as usize];
            let told = (named, stage.pid(named as usize), its);
            assert_told(end.error(), told, (stage.pid(0), zeros));
            assert!(end.error().contains("the same world size"), "{end:?}");
            // The warning comes before the error.
            let is_warned = end
                .warnings()
                .iter()
                .any(|text| text.contains("was told that"));
            assert!(is_warned, "{}", stage.transcript());
        }
        assert_nothing_left(place.path());
    }
}

/// A world that waits for its rank 0 asks worlds of other sizes after a while; that harms neither.
#[test]
fn worlds_of_two_sizes_of_one_job_meet_beside_each_other() {
    let place = place();
    let mut stage = Stage::new();
    let sized = |ranks| World::new(ranks, place.path()).with("FSGATHER_JOB", "two-sizes");
    for (ranks, rank) in [(2, 0), (3, 1), (3, 2)] {
        stage.start(&mut sized(ranks).rank(rank, "join all_gather_bytes:100000 close"));
    }
    stage.let_pass(Duration::from_secs(7));
    for (ranks, rank) in [(2, 1), (3, 0)] {
        stage.start(&mut sized(ranks).rank(rank, "join all_gather_bytes:100000 close"));
    }
    stage.succeed(everybody(5));
    // Rank 0 of the world of two was asked, and has reported it.
    let was_asked = stage
        .transcript()
        .contains("was told that there are 3 ranks");
    assert!(was_asked, "{}", stage.transcript());
    assert_nothing_left(place.path());
}
