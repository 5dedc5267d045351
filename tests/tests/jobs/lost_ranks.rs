//! Ranks that are killed in the middle of a ring, and errors about a rank that has just ended.

use std::{path::Path, process::Command};

use crate::common::{
    PEER_FAILED, Stage, World, assert_nothing_left,
    build::{command_line_tool, rank_program},
    in_step, name_of, others, place,
};
use rustix::process::Signal;

const RANKS: u32 = 5;

#[test]
fn a_just_begun_read_of_a_killed_rank_is_known() {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&World::new(2, place.path()), |rank| {
        let half = if rank == 1 { ":half" } else { "" };
        format!("join barrier gather_from:0:100000{half} close")
    });
    stage.wait_at([1], "publishing");
    stage.settle();
    stage.kill(1);
    let (error, _) = stage.fail_alike([0], PEER_FAILED);
    let doing = "while publishing its payload in gather #";
    assert!(error.contains(doing), "{error}");
}

#[test]
fn run_names_a_program_that_ends_by_its_own_error_with_it() {
    let place = place();
    let script = "case $FSGATHER_RANK in 1) exec \"$0\" join main_ends:no-such-model;; *) exec \"$0\" join barrier;; esac";
    let mut command = Command::new(command_line_tool());
    command
        .args(["run", "-n", "3", "--dir"])
        .arg(place.path())
        .args(["--", "sh", "-c", script])
        .arg(rank_program())
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let mut stage = Stage::new();
    let index = stage.start(&mut command);
    let end = stage.end(index);
    let said = end.stderr.join("\n");
    assert_eq!(end.code, 1, "{said}");
    assert!(
        said.contains("exited with code 1; last error: no-such-model"),
        "{said}"
    );
}

/// Starts ranks that pass payloads on in a ring, again and again; returns when `victim`, which joins by `joins`, has done so twice. Rank
/// `last` stops at `end` afterwards, so that no rank continues beyond it.
fn in_a_ring(place: &Path, victim: usize, joins: &str, last: usize) -> Stage {
    let rings = ["all_gather_bytes:3000000"; 6].join(" ");
    let world = World::new(RANKS, place).with("FSGATHER_TRANSPORT", "memory");
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| {
        let rank = rank as usize;
        let joins = if rank == victim { joins } else { "join" };
        let stop = if rank == last { "at:end" } else { "" };
        format!("{joins} {rings} {stop} barrier close")
    });
    for _ in 0..2 {
        stage.wait_for_where(victim, "a ring", |line| line.starts_with("done"));
    }
    stage
}

#[test]
fn a_rank_killed_in_a_ring_is_named_rather_than_its_neighbours() {
    const VICTIM: u32 = 2;
    let place = place();
    let mut stage = in_a_ring(place.path(), VICTIM as usize, "join", VICTIM as usize);
    stage.kill(VICTIM as usize);
    let (error, _) = stage.fail_alike(others(RANKS, VICTIM as usize), PEER_FAILED);
    let name = name_of(VICTIM, stage.pid(VICTIM as usize));
    assert!(
        error.starts_with(&name) && error.contains("was lost"),
        "{error}"
    );
    assert_nothing_left(place.path());
}

#[test]
fn a_rank_interrupted_in_a_ring_is_told_with_its_cause() {
    const VICTIM: u32 = 2;
    let (place, aside) = (place(), place());
    let asked = aside.path().join("asked");
    let joins = format!("join_asking:{}", in_step(&asked));
    let mut stage = in_a_ring(place.path(), VICTIM as usize, &joins, 0);
    std::fs::write(&asked, "").expect("a directory of our own");
    stage.end(VICTIM as usize);
    // If rank 0 has reached its stop, the victim ended during that.
    stage.go_if_it_is_there(0);
    let (error, _) = stage.fail_alike(others(RANKS, VICTIM as usize), PEER_FAILED);
    let name = name_of(VICTIM, stage.pid(VICTIM as usize));
    assert!(
        error.starts_with(&name) && error.contains("KeyboardInterrupt"),
        "{error}"
    );
    assert_nothing_left(place.path());
}

#[test]
fn a_rank_killed_before_its_ring_part_blocks_no_rank() {
    const VICTIM: usize = 3;
    let place = place();
    let world = World::new(RANKS, place.path()).with("FSGATHER_TRANSPORT", "memory");
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| {
        let stop = if rank == 0 { "at:here" } else { "" };
        format!("join all_gather_bytes:300000 {stop} all_gather_bytes:300000 barrier close")
    });
    stage.wait_at([0], "here");
    stage.wait_for_where(VICTIM, "a ring", |line| line.starts_with("done"));
    // It contributes to the second call, and waits for rank 0.
    stage.settle();
    stage.signal(VICTIM, Signal::STOP);
    stage.go(0);
    // The others are in the ring, and wait for a link that will not be made.
    stage.settle();
    stage.kill(VICTIM);
    let name = name_of(3, stage.pid(VICTIM));
    for end in stage.end_all(others(RANKS, VICTIM)) {
        assert!(end.error().starts_with(&name), "{}", stage.transcript());
    }
}
