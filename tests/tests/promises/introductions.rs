//! Ranks that meet through a channel of the program's own.

use crate::common::{Stage, World, assert_nothing_left, everybody, in_step, place};

const RANKS: u32 = 3;

#[test]
fn a_file_introduces_ranks_once_each_on_the_thread_that_builds() {
    for control in ["tcp", "markers"] {
        let (notes, payloads) = (place(), place());
        let world = World::new(RANKS, payloads.path()).with("FSGATHER_CONTROL", control);
        let mut stage = Stage::new();
        stage.start_all(&world, |_| {
            // A file that ranks can use to meet, beside the directory for payloads.
            let join = format!("introduce:note:{}", in_step(&notes.path().join("note")));
            format!(
                "{join} all_gather_bytes:100000 gather:1:100000 barrier close {join}2 barrier close"
            )
        });
        stage.succeed(everybody(RANKS));
        assert_nothing_left(payloads.path());
    }
}
