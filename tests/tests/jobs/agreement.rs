//! The functions that existing programs call, and variables that differ between ranks.

use crate::common::{Stage, World, assert_nothing_left, everybody, in_step, left_in, place};

#[test]
fn a_world_of_one_touches_no_file_whatever_the_switches_say() {
    let place = place();
    let world = World::new(1, &place.path().join("nowhere"))
        .with("MDETR_FILESYS_REDUCE", "1")
        .with("MDETR_FILESYS_REDUCE_RANK_0_ONLY", "1");
    let mut stage = Stage::new();
    stage.start(&mut world.rank(0, "function:100000 function_close"));
    stage.wait_for(0, "got 1");
    stage.succeed([0]);
    assert_eq!(stage.end(0).warnings(), [""; 0]);
}

#[test]
fn rank_0s_transport_counts_and_ranks_that_differ_warn() {
    for (told, warned) in [
        (["filesys", "memory", "auto"], [0, 1, 1]),
        (["auto", "auto", "filesys"], [0, 0, 1]),
    ] {
        let place = place();
        let world = World::new(3, place.path());
        let mut stage = Stage::new();
        for (rank, own) in (0..).zip(told) {
            // With the options of functions and of methods.
            let script =
                "function:100000 function:100001 function_close join all_gather:100000 close";
            let mut command = world.rank(rank, script);
            stage.start(command.env("FSGATHER_TRANSPORT", own));
        }
        stage.succeed(everybody(3));
        for (rank, end) in stage.end_all(everybody(3)).iter().enumerate() {
            let warnings = end.warnings();
            // Once for each world: that of the functions, and the other.
            assert_eq!(warnings.len(), 2 * warned[rank], "{told:?} {warnings:?}");
            let me = format!("this rank ({rank}) {}", told[rank]);
            for warning in warnings {
                for said in [
                    "FSGATHER_TRANSPORT",
                    &format!("rank 0 was told {}", told[0]),
                    &me,
                ] {
                    assert!(warning.contains(said), "{told:?} {warning}");
                }
            }
        }
        assert_nothing_left(place.path());
    }
}

#[test]
fn the_switch_to_rank_0_leaves_methods_alone() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_ROOT_ONLY", "1");
    let mut stage = Stage::new();
    // Each rank checks that it has received the data of all.
    stage.start_all(&world, |_| "join all_gather:100000 close".into());
    stage.succeed(everybody(3));
    let ends = stage.end_all(everybody(3));
    assert!(ends.iter().all(|end| end.warnings().is_empty()));
}

#[test]
fn a_directory_named_in_the_call_is_the_one_that_is_used() {
    let (meeting, data) = (place(), place());
    let directory = in_step(data.path());
    let mut stage = Stage::new();
    stage.start_all(&World::new(2, meeting.path()), |_| {
        format!("via:{directory}:0:100000 via:{directory}:1:100000 at:gathered function_close")
    });
    // First to all ranks, then to rank 0 only.
    for (rank, got) in [(0, "got 2"), (0, "got 2"), (1, "got 2"), (1, "got 0")] {
        stage.wait_for(rank, got);
    }
    stage.wait_at(everybody(2), "gathered");
    assert_eq!(left_in(data.path()).len(), 1);
    stage.go_all(everybody(2));
    stage.succeed(everybody(2));
    assert_nothing_left(data.path());
    assert_nothing_left(meeting.path());
}
