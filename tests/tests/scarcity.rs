//! Shortages: of descriptors, of memory, of a quota. Every rank has the right result or reports the cause, in time.
//!
//! `scripts/prove bad-luck` runs these tests one after the other, and prints the output of each rank.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

mod common;

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use common::{
    CONFIG, End, PEER_FAILED, STORAGE, Stage, World, assert_nothing_left, everybody,
    memory_limit::MemoryLimit, mounts::Mounted, place, report::tell,
};

/// Calls with every transport of payloads.
const CALLS: &str = "all_gather_bytes:300000 gather_from:1:300000 barrier all_gather:100";

fn limited_to(descriptors: u32, world: &World, rank: u32, script: &str) -> Command {
    let limit = format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"");
    world.rank_behind(&["bash".into(), "-c".into(), limit], rank, script)
}

#[test]
fn rank_0_with_64_descriptors_reports_the_need_of_8_ranks() {
    for transport in ["filesys", "memory"] {
        let place = place();
        let world = World::new(8, place.path()).with("FSGATHER_TRANSPORT", transport);
        let mut stage = Stage::new();
        for rank in 1..8 {
            let index = stage.start(&mut limited_to(64, &world, rank, "join close"));
            stage.wait_for_where(index, "who it is", |line| line.contains(" of 8, by "));
        }
        // So that they were certainly there before rank 0 gave up.
        stage.let_pass(Duration::from_millis(200));
        let since = Instant::now();
        stage.start(&mut limited_to(64, &world, 0, "join close"));
        let mut ends = stage.end_all(everybody(8));
        ends.rotate_right(1);
        tell(&format!("64 descriptors, {transport}"), since, &ends);
        for end in &ends {
            assert!(
                end.error()
                    .contains("needs 144 open files, the limit is 64"),
                "{}",
                stage.transcript()
            );
        }
        assert_eq!(ends[0].code, CONFIG);
        assert_nothing_left(place.path());
    }
}

#[test]
fn rank_0_raises_its_soft_limit_of_open_files() {
    let place = place();
    let world = World::new(8, place.path());
    let mut stage = Stage::new();
    for rank in 0..8 {
        let soft = "ulimit -S -n 64; exec \"$0\" \"$@\"".to_owned();
        let behind = ["bash".into(), "-c".into(), soft];
        let script = format!("join {CALLS} close");
        stage.start(&mut world.rank_behind(&behind, rank, &script));
    }
    for end in stage.end_all(everybody(8)) {
        assert_eq!(end.code, 0, "{}", stage.transcript());
    }
    assert_nothing_left(place.path());
}

#[test]
fn members_and_marker_worlds_do_with_64_descriptors() {
    for (control, transport) in [
        ("tcp", "filesys"),
        ("tcp", "memory"),
        ("markers", "filesys"),
    ] {
        let place = place();
        let world = World::new(8, place.path())
            .with("FSGATHER_TRANSPORT", transport)
            .with("FSGATHER_CONTROL", control);
        let mut stage = Stage::new();
        let since = Instant::now();
        for rank in 0..8 {
            let script = format!("join {CALLS} {CALLS} close");
            let descriptors = if rank == 0 && control == "tcp" {
                144
            } else {
                64
            };
            stage.start(&mut limited_to(descriptors, &world, rank, &script));
        }
        let ends = stage.end_all(everybody(8));
        tell(
            &format!("64 descriptors, 144 on rank 0, {control}, {transport}"),
            since,
            &ends,
        );
        stage.succeed(everybody(8));
        assert_nothing_left(place.path());
    }
}

const MIB: u64 = 1 << 20;

/// Length of the payload of each of eight ranks.
const PART: u64 = 8 * MIB;

/// Runs eight ranks with a memory limit of `each`; that of rank 2 is `rank_2`.
fn with_little_memory(transport: &str, calls: &str, each: u64, rank_2: u64) -> (Stage, Vec<End>) {
    let place = place();
    let world = World::new(8, place.path())
        .with("FSGATHER_TRANSPORT", transport)
        .with("FSGATHER_CONTROL", "tcp");
    let mut limits = Vec::new();
    for rank in 0..8 {
        let bytes = if rank == 2 { rank_2 } else { each };
        limits.push(MemoryLimit::new(&rank.to_string(), bytes));
    }
    let mut stage = Stage::new();
    let since = Instant::now();
    for (rank, limit) in (0..8).zip(&limits) {
        let script = format!("join {calls} peak close");
        stage.start(&mut world.rank_behind(&limit.enter(), rank, &script));
    }
    let ends = stage.end_all(everybody(8));
    let most = limits
        .iter()
        .map(MemoryLimit::peak)
        .max()
        .unwrap_or_default();
    let resident = ends.iter().flat_map(|end| &end.stdout);
    let resident = resident.filter_map(|line| line.strip_prefix("peak ")?.parse::<u64>().ok());
    let what = format!(
        "{calls}, {transport}: {} MiB of memory for each rank, {} for rank 2; the most used with the page cache was {} MiB, \
         resident {} MiB",
        each / MIB,
        rank_2 / MIB,
        most / MIB,
        resident.max().unwrap_or_default() / 1024
    );
    tell(&what, since, &ends);
    drop(limits);
    (stage, ends)
}

/// The memory that a rank needs according to docs/performance.md: the payloads that it holds and some MiB.
const fn needed(payloads: u64) -> u64 {
    payloads * PART + 9 * MIB
}

#[test]
fn twice_the_memory_that_is_needed_is_enough() {
    for transport in ["filesys", "memory"] {
        for (call, payloads) in [("gather_bytes:0", 2), ("all_gather_bytes", 9)] {
            let limit = 2 * needed(payloads);
            let call = format!("{call}:{PART}");
            let calls = format!("{call} {call}");
            let (mut stage, _) = with_little_memory(transport, &calls, limit, limit);
            stage.succeed(everybody(8));
        }
    }
}

#[test]
fn a_rank_that_the_kernel_kills_for_its_memory_is_named_by_all() {
    for transport in ["filesys", "memory"] {
        let calls = format!("barrier all_gather_bytes:{PART}");
        let (stage, ends) = with_little_memory(transport, &calls, 64 * needed(9), PART);
        let name = common::name_of(2, stage.pid(2));
        for (rank, end) in ends.iter().enumerate().filter(|(rank, _)| *rank != 2) {
            assert_eq!(end.code, PEER_FAILED, "rank {rank}\n{}", stage.transcript());
            assert!(
                end.error().starts_with(&format!("{name} was lost")),
                "{end:?}"
            );
        }
    }
}

/// Mounts a btrfs with a quota of 4 MB, at `place` in a directory.
fn with_a_quota(directory: &Path, disk: &Path) -> Mounted {
    // The disk is outside the mount: a file system in a file on its own parent mount would keep that mounted.
    let disk = disk.join("disk").to_str().expect("text").to_owned();
    let make = format!(
        "truncate -s 200m {disk} && mkfs.btrfs -q {disk} >/dev/null 2>&1 && mkdir place && mount -o loop {disk} place
         btrfs quota enable place && btrfs qgroup limit 4M place"
    );
    Mounted::over(directory, "size=1m", &make)
}

#[test]
fn a_quota_fails_all_ranks_or_moves_payloads_to_memory() {
    for transport in ["filesys", "auto"] {
        let (outside, disk) = (place(), place());
        let mounted = with_a_quota(outside.path(), disk.path());
        let named = outside.path().join("place");
        let world = World::new(4, &named).with("FSGATHER_TRANSPORT", transport);
        let mut stage = Stage::new();
        let since = Instant::now();
        for rank in 0..4 {
            let script = "join all_gather_bytes:1500000 all_gather_from:1500000 close";
            stage.start(&mut mounted.rank(&world, rank, script));
        }
        let ends = stage.end_all(everybody(4));
        tell(
            &format!("a quota of 4 MB for 6 MB, {transport}"),
            since,
            &ends,
        );
        if transport == "filesys" {
            let (error, _) = stage.fail_alike(everybody(4), STORAGE);
            assert!(
                error.contains("uota exceeded") && error.contains("your quota is used up"),
                "{error}"
            );
        } else {
            stage.succeed(everybody(4));
            let warnings: Vec<&str> = ends.iter().flat_map(End::warnings).collect();
            assert_eq!(warnings.len(), 1, "{warnings:?}");
            assert!(warnings[0].contains("uota exceeded"), "{warnings:?}");
        }
        assert_nothing_left(&mounted.directory().join("place"));
    }
}
