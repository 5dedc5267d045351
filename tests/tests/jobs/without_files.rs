//! Ranks without file descriptors.

use std::process::Command;

use crate::common::{CONFIG, Stage, World, everybody, in_step, place};

const RANKS: u32 = 3;

/// A rank that may open only a few files, and has used up most of them.
fn short_of_descriptors(world: &World, rank: u32, script: &str) -> Command {
    let open = "ulimit -n 160; for n in $(seq 12 156); do eval \"exec $n</dev/null\"; done; exec \"$0\" \"$@\"";
    world.rank_behind(&["bash", "-c", open].map(str::to_owned), rank, script)
}

#[test]
fn a_rank_0_without_descriptors_fails_all_ranks() {
    let notes = place();
    let note = format!("introduce:note:{}", in_step(&notes.path().join("note")));
    for join in ["join", &note] {
        let place = place();
        let world = World::new(RANKS, place.path());
        let mut stage = Stage::new();
        for rank in 1..RANKS {
            let index = stage.start(&mut world.rank(rank, join));
            stage.wait_for_where(index, "who it is", |line| line.contains(" of 3, by "));
        }
        stage.age_processes();
        stage.start(&mut short_of_descriptors(&world, 0, join));
        for end in stage.end_all(everybody(RANKS)) {
            let error = end.error();
            assert!(
                error.contains("out of file descriptors (`ulimit -n` is 160)"),
                "{error}"
            );
        }
        assert_eq!(stage.end(2).code, CONFIG, "{}", stage.transcript());
    }
}
