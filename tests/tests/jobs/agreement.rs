//! Ranks in different calls, and the functions that existing programs call.
use std::path::Path;

use crate::common::{DESYNC, Stage, World, assert_nothing_left, everybody, place};

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
fn nobody_gets_anything_in_different_calls() {
    for call in [
        "all_gather_from:1000000",
        "all_gather:10",
        "gather_bytes:0:1000000",
    ] {
        // Each of the four ends with this error, and so without data.
        let (_, error) = in_different_calls("barrier", call);
        assert!(error.contains("different operations"), "{error}");
    }
}

/// What `all_gather` gives each of three ranks under these variables, and what they warn of.
fn switched(variables: &[(&str, &str)], step: &str) -> (Vec<String>, Vec<Vec<String>>) {
    let place = place();
    let mut world = World::new(3, place.path());
    for (name, value) in variables {
        world = world.with(name, value);
    }
    let step = step.replace("DIR", &crate::common::in_step(place.path()));
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

/// Whether payloads of three ranks went through files in `directory`: only then somebody has made room for
/// them there.
fn goes_through_files(world: &World, directory: &Path) -> bool {
    let mut stage = Stage::new();
    stage.start_all(world, |_| {
        "function:100000 at:gathered function_close".into()
    });
    stage.wait_at(everybody(3), "gathered");
    let gathers = crate::common::left_in(directory);
    let found = gathers.iter().any(|path| path.join("payloads").exists());
    stage.go_all(everybody(3));
    stage.succeed(everybody(3));
    assert_nothing_left(directory);
    found
}

#[test]
fn the_originals_switches_choose_between_files_and_memory() {
    for (variables, through_files) in [
        (&[("MDETR_FILESYS_REDUCE", "1")][..], true),
        (&[("MDETR_CPU_REDUCE", "1")], false),
        // As in the original, files go before memory, and only the exact value 1 counts.
        (
            &[("MDETR_FILESYS_REDUCE", "1"), ("MDETR_CPU_REDUCE", "1")],
            true,
        ),
        (
            &[("MDETR_FILESYS_REDUCE", "yes"), ("MDETR_CPU_REDUCE", "1")],
            false,
        ),
        (
            &[
                ("MDETR_FILESYS_REDUCE_RANK_0_ONLY", "1"),
                ("MDETR_CPU_REDUCE", "1"),
            ],
            true,
        ),
        // Our own name wins over theirs.
        (
            &[
                ("MDETR_FILESYS_REDUCE", "1"),
                ("FSGATHER_TRANSPORT", "memory"),
            ],
            false,
        ),
    ] {
        let place = place();
        let mut world = World::new(3, place.path());
        for (name, value) in variables {
            world = world.with(name, value);
        }
        assert_eq!(
            goes_through_files(&world, place.path()),
            through_files,
            "{variables:?}"
        );
    }
}

#[test]
fn the_originals_directory_is_used_where_ours_is_not_named() {
    let (ours, theirs) = (place(), place());
    let theirs_path = theirs.path().to_str().expect("text");
    let both = World::new(3, ours.path()).with("EXP_DIR", theirs_path);
    assert!(goes_through_files(&both, ours.path()));
    assert!(!theirs.path().join("all_gather_via_filesys").exists());
    let unset = both.with("FSGATHER_DIR", "");
    assert!(goes_through_files(&unset, theirs.path()));
}

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
fn where_the_transport_differs_that_of_rank_0_counts_and_others_warn() {
    for (told, warned) in [
        (["memory", "filesys", "memory"], [0, 1, 0]),
        (["filesys", "memory", "auto"], [0, 1, 1]),
        (["auto", "auto", "filesys"], [0, 0, 1]),
    ] {
        let place = place();
        let world = World::new(3, place.path());
        let mut stage = Stage::new();
        for (rank, own) in (0..).zip(told) {
            // As functions ask for it and as methods do.
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
fn the_switch_to_rank_0_gives_the_others_an_empty_list_and_one_warning() {
    let switch = [("MDETR_FILESYS_REDUCE_RANK_0_ONLY", "1")];
    let (got, warnings) = switched(&switch, "function:100000");
    assert_eq!(got, [ALL, NONE, NONE]);
    let counts: Vec<usize> = warnings.iter().map(Vec::len).collect();
    assert_eq!(counts, [0, 1, 0], "{warnings:?}");
    assert!(warnings[1][0].contains("empty list"), "{warnings:?}");
}

#[test]
fn the_switch_to_rank_0_goes_before_that_to_memory() {
    let switches = [
        ("MDETR_FILESYS_REDUCE_RANK_0_ONLY", "1"),
        ("MDETR_CPU_REDUCE", "1"),
    ];
    let (got, warnings) = switched(&switches, "function:100000");
    assert_eq!(got, [ALL, NONE, NONE]);
    let counts: Vec<usize> = warnings.iter().map(Vec::len).collect();
    assert_eq!(counts, [0, 1, 0], "{warnings:?}");
}

#[test]
fn only_the_value_one_switches_to_rank_0_and_our_own_name_wins() {
    let old = "MDETR_FILESYS_REDUCE_RANK_0_ONLY";
    for switches in [
        &[(old, "true")][..],
        &[(old, "1"), ("FSGATHER_ROOT_ONLY", "0")],
    ] {
        let (got, warnings) = switched(switches, "function:100000");
        assert_eq!(
            (got, warnings),
            ([ALL; 3].map(str::to_owned).into(), vec![vec![]; 3])
        );
    }
    let (got, warnings) = switched(&[("FSGATHER_ROOT_ONLY", "1")], "function:100000");
    assert_eq!(got, [ALL, NONE, NONE]);
    assert_eq!(
        (warnings[0].len(), warnings[1].len()),
        (0, 1),
        "{warnings:?}"
    );
}

#[test]
fn the_switch_to_rank_0_leaves_methods_alone() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_ROOT_ONLY", "1");
    let mut stage = Stage::new();
    // Each rank checks that it has received from all.
    stage.start_all(&world, |_| "join all_gather:100000 close".into());
    stage.succeed(everybody(3));
    let ends = stage.end_all(everybody(3));
    assert!(ends.iter().all(|end| end.warnings().is_empty()));
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
    let directory = crate::common::in_step(data.path());
    let mut stage = Stage::new();
    stage.start_all(&World::new(2, meeting.path()), |_| {
        format!("via:{directory}:0:100000 at:gathered function_close")
    });
    stage.wait_at(everybody(2), "gathered");
    assert_eq!(crate::common::left_in(data.path()).len(), 1);
    stage.go_all(everybody(2));
    stage.succeed(everybody(2));
    assert_nothing_left(data.path());
    assert_nothing_left(meeting.path());
}
