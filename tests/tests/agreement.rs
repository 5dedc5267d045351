//! Ranks in different calls, and the functions that existing programs call.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

mod common;

use common::{DESYNC, Stage, World, assert_nothing_left, everybody, place};

/// Rank 1 of four takes one step, the others another; what all are told.
fn in_different_calls(one: &str, others: &str) -> (Stage, String) {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&World::new(4, place.path()), |rank| {
        format!("join {} close", if rank == 1 { one } else { others })
    });
    let (error, _) = stage.fail_alike(everybody(4), DESYNC);
    assert_nothing_left(place.path());
    (stage, error)
}

/// Where a rank said that it makes a call, as messages write it.
fn place_of_call(stage: &mut Stage, index: usize, call: &str) -> String {
    let prefix = format!("calls {call} at line ");
    let line = stage.wait_for_where(index, &prefix, |line| line.starts_with(&prefix));
    let file = if call == "close" { "main" } else { "calls" };
    format!("rank/{file}.rs:{}:", &line[prefix.len()..])
}

#[test]
fn a_barrier_against_a_gather_names_both_places() {
    let (mut stage, error) = in_different_calls("barrier", "gather:0:10");
    let barrier = place_of_call(&mut stage, 1, "barrier");
    let gather = place_of_call(&mut stage, 2, "gather");
    assert!(error.contains("different operations"), "{error}");
    for named in [
        &barrier,
        &gather,
        "rank 1 on",
        "called barrier",
        "called gather",
    ] {
        assert!(error.contains(named), "{named}: {error}");
    }
}

#[test]
fn different_roots_are_told_with_both_places() {
    let (mut stage, error) = in_different_calls("gather_bytes:1:10", "gather_bytes:0:10");
    let place = place_of_call(&mut stage, 1, "gather");
    assert!(error.contains("root"), "{error}");
    assert_eq!(error.matches(&place).count(), 2, "{place}: {error}");
}

#[test]
fn different_types_are_told() {
    let (_, error) = in_different_calls("all_gather:10", "all_gather_bytes:10");
    assert!(error.contains("different"), "{error}");
}

#[test]
fn close_against_a_barrier_names_both_places() {
    let (mut stage, error) = in_different_calls("", "barrier");
    let close = place_of_call(&mut stage, 1, "close");
    let barrier = place_of_call(&mut stage, 2, "barrier");
    for named in [&close, &barrier, "called close", "called barrier"] {
        assert!(error.contains(named), "{named}: {error}");
    }
}

#[test]
fn large_payloads_do_not_move_between_ranks_in_different_calls() {
    let (_, error) = in_different_calls("barrier", "all_gather_from:1000000");
    assert!(error.contains("different operations"), "{error}");
}

/// What `all_gather` gives each of three ranks under these variables, and what they warn of.
fn switched(variables: &[(&str, &str)], step: &str) -> (Vec<String>, Vec<Vec<String>>) {
    let place = place();
    let mut world = World::new(3, place.path());
    for (name, value) in variables {
        world = world.with(name, value);
    }
    let step = step.replace("DIR", place.path().to_str().expect("text"));
    let mut stage = Stage::new();
    // Twice, because warnings are to be said once.
    stage.start_all(&world, |_| format!("{step} {step} function_close"));
    stage.succeed(everybody(3));
    let ends = stage.end_all(everybody(3));
    let got = ends.iter().map(|end| {
        let lines = end.stdout.iter().filter(|line| line.starts_with("got "));
        lines.cloned().collect::<Vec<_>>().join(", ")
    });
    let warnings = ends.iter().map(|end| {
        let warnings = end.warnings().into_iter();
        warnings.map(str::to_owned).collect()
    });
    assert_nothing_left(place.path());
    (got.collect(), warnings.collect())
}

const ALL: &str = "got 3, got 3";
const NONE: &str = "got 0, got 0";

#[test]
fn without_switches_all_gather_gives_everybody_the_list() {
    let (got, warnings) = switched(&[], "function:100000");
    assert_eq!(got, [ALL; 3]);
    assert_eq!(warnings, [[""; 0]; 3]);
}

#[test]
fn the_switch_to_files_gives_everybody_the_list() {
    let (got, warnings) = switched(&[("MDETR_FILESYS_REDUCE", "1")], "function:100000");
    assert_eq!(got, [ALL; 3]);
    assert_eq!(warnings, [[""; 0]; 3]);
}

#[test]
fn the_switch_to_memory_gives_everybody_the_list() {
    let (got, _) = switched(&[("MDETR_CPU_REDUCE", "1")], "function:100000");
    assert_eq!(got, [ALL; 3]);
}

#[test]
fn the_switch_to_rank_0_gives_the_others_an_empty_list_and_one_warning() {
    let switch = [("MDETR_FILESYS_REDUCE_RANK_0_ONLY", "1")];
    let (got, warnings) = switched(&switch, "function:100000");
    assert_eq!(got, [ALL, NONE, NONE]);
    let counts: Vec<usize> = warnings.iter().map(Vec::len).collect();
    assert_eq!(counts, [0, 1, 0], "{warnings:?}");
    assert!(warnings[1][0].contains("empty list"), "{warnings:?}");
}

#[test]
fn all_gather_via_a_directory_gives_everybody_the_list() {
    let (got, _) = switched(&[], "via:DIR:0:100000");
    assert_eq!(got, [ALL; 3]);
}

#[test]
fn all_gather_via_a_directory_to_rank_0_gives_the_others_an_empty_list() {
    let (got, _) = switched(&[], "via:DIR:1:100000");
    assert_eq!(got, [ALL, NONE, NONE]);
}

#[test]
fn a_directory_named_in_the_call_is_the_one_that_is_used() {
    let (meeting, data) = (place(), place());
    let directory = data.path().to_str().expect("text").to_owned();
    let mut stage = Stage::new();
    stage.start_all(&World::new(2, meeting.path()), |_| {
        format!("via:{directory}:0:100000 at:gathered function_close")
    });
    stage.wait_at(everybody(2), "gathered");
    assert_eq!(common::left_in(data.path()).len(), 1);
    stage.go_all(everybody(2));
    stage.succeed(everybody(2));
    assert_nothing_left(data.path());
    assert_nothing_left(meeting.path());
}
