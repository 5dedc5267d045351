//! The verbs `gather`, `broadcast` and `barrier` as shell jobs use them.

use std::fs;

use rustix::process::Signal;

use crate::common::{
    place,
    shell::{RANKS, ended_by, files_in, parts, run, said_by, succeed, work},
};

#[test]
fn gather_all_gives_every_rank_a_file_from_every_rank() {
    for len in [100, 300_000] {
        let (directory, work) = (place(), work(len));
        succeed(&run(
            directory.path(),
            work.path(),
            "fsgather gather part.$FSGATHER_RANK --all --out 'got.{rank}'",
        ));
        for rank in 0..RANKS {
            let got = work.path().join(format!("got.{rank}"));
            assert_eq!(files_in(&got), ["rank-00000", "rank-00001", "rank-00002"]);
            for (name, part) in files_in(&got).iter().zip(parts(len)) {
                assert!(fs::read(got.join(name)).expect("a file") == part, "{name}");
            }
        }
    }
}

#[test]
fn gather_concat_joins_standard_inputs_in_rank_order() {
    let (directory, work) = (place(), work(300_000));
    succeed(&run(
        directory.path(),
        work.path(),
        "cat part.$FSGATHER_RANK | fsgather gather --concat=whole",
    ));
    let whole = fs::read(work.path().join("whole")).expect("a file");
    assert!(whole == parts(300_000).concat());
}

#[test]
fn a_missing_input_is_told_to_all_ranks() {
    let (directory, work) = (place(), work(10));
    fs::remove_file(work.path().join("part.1")).expect("our file");
    let script = "fsgather gather part.$FSGATHER_RANK --out got; echo code $?";
    let end = run(directory.path(), work.path(), script);
    let mut codes = end.stdout.clone();
    codes.sort();
    // The rank that failed exits with the code of its own failure.
    assert_eq!(codes, ["[0] code 11", "[1] code 12", "[2] code 11"]);
    for rank in 0..RANKS {
        // That rank prints its own error.
        let told = said_by(&end, rank);
        let is_told = told.iter().any(|line| match rank {
            1 => line.starts_with("fsgather gather: cannot read part.1: No such file"),
            _ => line.contains("rank 1 on") && line.contains("part.1"),
        });
        assert!(is_told, "{end:?}");
    }
    assert!(!work.path().join("got").exists(), "{end:?}");
}

#[test]
fn broadcast_hands_the_roots_file_to_every_rank() {
    let (directory, work) = (place(), work(300_000));
    succeed(&run(
        directory.path(),
        work.path(),
        "fsgather broadcast part.$FSGATHER_RANK --root 2 --out 'got.{rank}'",
    ));
    for rank in 0..RANKS {
        let got = fs::read(work.path().join(format!("got.{rank}"))).expect("a file");
        assert!(got == parts(300_000)[2], "rank {rank}");
    }
}

#[test]
fn nobody_passes_a_barrier_before_all_have_come() {
    let (directory, work) = (place(), place());
    let end = run(
        directory.path(),
        work.path(),
        "touch came.$FSGATHER_RANK; fsgather barrier || exit; ls | wc -l",
    );
    succeed(&end);
    let mut counts = end.stdout.clone();
    counts.sort();
    assert_eq!(counts, ["[0] 3", "[1] 3", "[2] 3"]);
}

#[test]
fn sigterm_of_a_rank_fails_all_ranks_with_its_name() {
    ended_by(Signal::TERM, "SIGTERM", 143, 1);
}
