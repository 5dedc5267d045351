//! Ranks in different calls, and the variables that existing programs set.

use std::path::Path;

use crate::common::{
    DESYNC, Stage, World, assert_nothing_left, everybody, left_in, name_of, place,
};

/// Returns the place in the rank program of the call that a rank has printed.
fn place_of_call(stage: &mut Stage, index: usize, call: &str) -> String {
    let prefix = format!("calls {call} at line ");
    let line = stage.wait_for_where(index, &prefix, |line| line.starts_with(&prefix));
    let file = if call == "close" { "main" } else { "calls" };
    format!("rank/{file}.rs:{}:", &line[prefix.len()..])
}

#[test]
fn a_barrier_against_a_gather_names_both_places() {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&World::new(3, place.path()), |rank| {
        let call = if rank == 1 {
            "barrier"
        } else {
            "gather_bytes:0:1000000"
        };
        format!("join {call} close")
    });
    // All ranks get this error, and no data.
    let (error, _) = stage.fail_alike(everybody(3), DESYNC);
    let barrier = place_of_call(&mut stage, 1, "barrier");
    let gather = place_of_call(&mut stage, 2, "gather");
    for named in [
        "different operations",
        &name_of(1, stage.pid(1)),
        "called barrier",
        "called gather",
        &barrier,
        &gather,
    ] {
        assert!(error.contains(named), "{named}: {error}");
    }
    assert_nothing_left(place.path());
}

/// Returns true if payloads of two ranks went through files in `directory`: only then a rank has made a place for them there.
fn goes_through_files(world: &World, directory: &Path) -> bool {
    let mut stage = Stage::new();
    stage.start_all(world, |_| {
        "function:100000 at:gathered function_close".into()
    });
    for rank in everybody(2) {
        stage.wait_for(rank, "got 2");
        stage.wait_at([rank], "gathered");
    }
    let gathers = left_in(directory);
    let found = gathers.iter().any(|path| path.join("payloads").exists());
    stage.go_all(everybody(2));
    stage.succeed(everybody(2));
    assert_nothing_left(directory);
    found
}

#[test]
fn originals_variables_choose_transport_and_directory() {
    for (switch, through_files) in [("MDETR_FILESYS_REDUCE", true), ("MDETR_CPU_REDUCE", false)] {
        let place = place();
        let world = World::new(2, place.path())
            .with("FSGATHER_DIR", "")
            .with("EXP_DIR", place.path().to_str().expect("text"))
            .with(switch, "1");
        let found = goes_through_files(&world, place.path());
        assert_eq!(found, through_files, "{switch}");
    }
}

#[test]
fn rank_0_only_gives_others_an_empty_list_and_a_warning() {
    let place = place();
    let world = World::new(3, place.path()).with("MDETR_FILESYS_REDUCE_RANK_0_ONLY", "1");
    let mut stage = Stage::new();
    // The warning comes once, although there are two calls.
    stage.start_all(&world, |_| {
        "function:100000 function:100000 function_close".into()
    });
    stage.succeed(everybody(3));
    let ends = stage.end_all(everybody(3));
    for (end, got) in ends.iter().zip(["got 3", "got 0", "got 0"]) {
        let lines = end.stdout.iter().filter(|line| line.starts_with("got "));
        assert_eq!(lines.collect::<Vec<_>>(), [got; 2]);
    }
    let counts: Vec<usize> = ends.iter().map(|end| end.warnings().len()).collect();
    assert_eq!(counts, [0, 1, 0], "{ends:?}");
    assert!(ends[1].warnings()[0].contains("empty list"), "{ends:?}");
    assert_nothing_left(place.path());
}
