//! Two hosts that mount one directory through FUSE, with stale caches, and with every fault of a shared file system: a call gives the right
//! result or one error on all ranks.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::common::{
    PEER_FAILED, STORAGE, Stage, TIMED_OUT, World, assert_nothing_left, build::command_line_tool,
    double_mount::DoubleMount, refusals_in,
};

/// Payloads of several chunks, with both ways of reading them.
const STEPS: &str = "join all_gather_bytes:2500000 gather_from:0:1500000 close";

fn start(mount: &DoubleMount, script: &str) -> Stage {
    start_in(&mount.world(), mount, script)
}

fn start_in(world: &World, mount: &DoubleMount, script: &str) -> Stage {
    let mut stage = Stage::new();
    for rank in [0, 1] {
        stage.start(&mut mount.rank(world, rank, script));
    }
    stage
}

/// Checks that both ranks get the right results, and that nothing is left.
#[track_caller]
fn succeeds(mount: &DoubleMount, script: &str) {
    let mut stage = start(mount, script);
    stage.succeed(0..2);
    assert_nothing_left(&mount.behind());
}

/// The error of both ranks when a call fails because of rules for the host of rank 1; nothing is left.
fn fails(mount: &DoubleMount, rules: &str) -> String {
    mount.rules(2, rules);
    let mut stage = start(mount, "join all_gather_bytes:2500000 close");
    let (error, _) = stage.fail_alike(0..2, STORAGE);
    let named = mount.directory();
    assert!(
        error.contains(named.to_str().expect("text")) && error.contains("rank 1 on "),
        "{error}"
    );
    mount.rules(2, "");
    assert_nothing_left(&mount.behind());
    error
}

#[test]
fn stale_caches_are_no_obstacle_whichever_rank_is_first() {
    // Cached for longer than the test waits: it does not help to wait until the caches expire.
    let mount = DoubleMount::with("", 600);
    for first in [0, 1] {
        let world = mount.world();
        let mut stage = Stage::new();
        stage.start(&mut mount.rank(&world, first, STEPS));
        // It has searched, and its host has cached the absence of files.
        stage.let_pass(Duration::from_millis(300));
        stage.start(&mut mount.rank(&world, 1 - first, STEPS));
        stage.succeed(0..2);
        assert_nothing_left(&mount.behind());
    }
}

#[test]
fn create_write_sync_and_close_errors_fail_all_ranks() {
    let mount = DoubleMount::new();
    // If the error comes once, a repeated call would succeed, although data is lost.
    for (rule, operation, words) in [
        ("write payload-* ENOSPC after=3", "write", "o space left"),
        ("fsync payload-* ENOSPC count=1", "sync", "FSGATHER_DIR"),
        ("fsync payload-* EDQUOT count=1", "sync", "uota"),
        ("fsync payload-* EIO count=1", "sync", "nput/output error"),
        ("flush payload-* EIO count=1", "close", "nput/output error"),
        ("create payload-* EROFS", "create", "ead-only"),
        ("create payload-* EACCES", "create", "ermission denied"),
        ("rename payload-* EIO", "publish", "nput/output error"),
    ] {
        let error = fails(&mount, rule);
        assert!(
            error.contains(&format!("cannot {operation} ")) && error.contains(words),
            "{rule}: {error}"
        );
    }
}

#[test]
fn a_payload_whose_file_takes_no_more_goes_through_memory() {
    let mount = DoubleMount::new();
    for rule in [
        "write payload-* ENOSPC after=3",
        "fsync payload-* ENOSPC count=1",
        "fsync payload-* EDQUOT count=1",
        "flush payload-* EIO count=1",
        "create payload-* ENOSPC",
        "rename payload-* EIO",
    ] {
        mount.rules(2, rule);
        let steps = "join all_gather_bytes:2500000 all_gather:2500000 gather_from:0:1500000 close";
        let world = mount.world().with("FSGATHER_TRANSPORT", "auto");
        let mut stage = start_in(&world, &mount, steps);
        stage.succeed(0..2);
        let ends = stage.end_all(0..2);
        let warnings: Vec<&str> = ends.iter().flat_map(crate::common::End::warnings).collect();
        assert_eq!(warnings.len(), 1, "{rule}: {warnings:?}");
        assert!(
            warnings[0].contains("a payload of rank 1 on "),
            "{warnings:?}"
        );
        mount.rules(2, "");
        assert_nothing_left(&mount.behind());
    }
}

#[test]
fn a_listing_that_fails_for_a_moment_is_made_again() {
    let mount = DoubleMount::new();
    mount.rules(2, "readdir *all_gather_via_filesys EIO count=2");
    succeeds(&mount, "join barrier close");
    assert_eq!(refusals_in(&mount.behind()).len(), 0);
}

#[test]
fn who_makes_the_directory_lists_it_again_as_well() {
    let mount = DoubleMount::new();
    mount.rules(2, "readdir *all_gather_via_filesys EIO count=2");
    let world = mount.world();
    let mut stage = Stage::new();
    let first = stage.start(&mut mount.rank(&world, 1, "join barrier close"));
    let made = mount.behind().join("all_gather_via_filesys");
    stage.wait_until("the directory", || made.exists());
    let second = stage.start(&mut mount.rank(&world, 0, "join barrier close"));
    stage.succeed([first, second]);
}

#[test]
fn a_rank_that_cannot_look_for_rank_0_leaves_word() {
    let mount = DoubleMount::new();
    mount.rules(2, "readdir *all_gather_via_filesys EIO");
    let mut stage = start(&mount, "join barrier close");
    let cannot = stage.end(1);
    assert_eq!(cannot.code, STORAGE, "{}", stage.transcript());
    assert!(cannot.error().contains("cannot list "), "{cannot:?}");
    let told = stage.end(0);
    assert_eq!(told.code, PEER_FAILED, "{}", stage.transcript());
    let named = format!("(pid {})", stage.pid(1));
    let said = told.error();
    assert!(
        said.starts_with("rank 1 on ") && said.contains(&named) && said.contains(cannot.error()),
        "{said}"
    );
    assert_nothing_left(&mount.behind());
}

#[test]
fn all_name_a_rank_that_cannot_use_a_message_directory() {
    let mount = DoubleMount::new();
    let world = mount.world().with("FSGATHER_CONTROL", "markers");
    // Rank 0 makes it before any other rank has arrived, and rank 1 lists it all the time.
    mount.rules(1, "mkdir out EACCES");
    let mut stage = start_in(&world, &mount, "join barrier close");
    let (error, _) = stage.fail_alike(0..2, STORAGE);
    assert!(error.contains("rank 0 on "), "{error}");
    mount.rules(1, "");

    let mut stage = start_in(&world, &mount, "join at:end barrier close");
    stage.wait_at(0..2, "end");
    mount.rules(2, "readdir out EACCES");
    stage.go_all(0..2);
    let (error, _) = stage.fail_alike(0..2, STORAGE);
    assert!(error.contains("rank 1 on "), "{error}");
    mount.rules(2, "");
    assert_nothing_left(&mount.behind());
}

#[test]
fn a_partly_failed_removal_keeps_the_owner_record() {
    // Before the time limit of the test starts.
    command_line_tool();
    let mount = DoubleMount::new();
    let mut stage = start(&mount, "join all_gather_bytes:2500000 at:end close");
    stage.wait_at(0..2, "end");
    for rank in [0, 1] {
        stage.kill(rank);
        stage.end(rank);
    }
    let directory = mount.directory();
    let clean = ["clean", "--execute", directory.to_str().expect("text")];
    mount.rules(1, "unlink beat-* EIO");
    let cleaner = stage.start(&mut mount.tool(&mount.world(), 0, &clean));
    let cannot = stage.end(cleaner);
    assert!(
        cannot.code != 0 && holds(&mount.behind(), "owner"),
        "{}",
        stage.transcript()
    );
    mount.rules(1, "");
    let cleaner = stage.start(&mut mount.tool(&mount.world(), 0, &clean));
    stage.succeed([cleaner]);
    assert_nothing_left(&mount.behind());
}

#[test]
fn what_is_not_seen_stale_garbled_or_short_is_asked_for_again() {
    let mount = DoubleMount::with("", 1);
    for rules in [
        "open payload-* ESTALE count=2",
        "open payload-* ENOENT count=2",
        "lookup payload-* ESTALE count=2",
        "lookup payload-* ENOENT count=2",
        "read payload-* EIO count=1",
        "read payload-* ESTALE count=1",
        "read payload-* garbled count=1",
        "read payload-* garbled after=5 count=1",
        "read payload-* short count=2\nwrite payload-* short",
        "read payload-* EINTR count=3\nwrite payload-* EINTR count=3",
    ] {
        mount.rules(1, rules);
        mount.rules(2, rules);
        succeeds(&mount, STEPS);
    }
    // A directory that the other host has made.
    mount.rules(1, "");
    for rules in [
        "lookup gather-* ENOENT count=2",
        "lookup gather-* ESTALE count=1",
    ] {
        mount.rules(2, rules);
        succeeds(&mount, STEPS);
    }
}

#[test]
fn success_that_is_reported_as_failure_is_success() {
    let mount = DoubleMount::with("", 1);
    for host in [1, 2] {
        mount.rules(host, "rename payload-* lost\nmkdir * lost");
    }
    succeeds(&mount, STEPS);
    let mount = DoubleMount::with("--no-rename", 1);
    for host in [1, 2] {
        mount.rules(host, "link payload-* lost");
    }
    succeeds(&mount, STEPS);
}

#[test]
fn file_systems_without_this_or_that_serve() {
    for options in [
        "--no-types",
        "--no-link",
        "--no-rename",
        "--no-rename --no-link",
        "--slow-rename",
        "--no-fsync",
        "--on-close --slow-rename --no-link --no-fsync",
        "--on-close --no-rename --no-link --no-types",
    ] {
        let mount = DoubleMount::with(options, 30);
        succeeds(&mount, STEPS);
    }
}

/// Returns true if an entry at any depth has a name with this prefix.
fn holds(directory: &Path, prefix: &str) -> bool {
    let Ok(entries) = fs::read_dir(directory) else {
        return false;
    };
    entries.filter_map(Result::ok).any(|entry| {
        entry.file_name().to_string_lossy().starts_with(prefix) || holds(&entry.path(), prefix)
    })
}

/// The only payload file.
fn payload(directory: &Path) -> PathBuf {
    let gathers = crate::common::left_in(directory).into_iter();
    let payloads = gathers.filter_map(|gather| fs::read_dir(gather.join("payloads")).ok());
    let mut entries = payloads.flatten().filter_map(Result::ok);
    entries.next().expect("a payload").path()
}

#[test]
fn a_directory_stays_only_while_its_payload_is_open() {
    let mount = DoubleMount::new();
    let mut stage = start(&mount, "join gather_from:0:1500000:read close");
    stage.wait_at([0], "reading");
    let held = fs::File::open(payload(&mount.mount(1))).expect("a payload");
    stage.go(0);
    // The removed file stays under another name, in a directory that has to be removed.
    stage.wait_until("a file that lives on", || {
        holds(&mount.behind(), ".fuse_hidden")
    });
    stage.wait_for(1, "done close");
    drop(held);
    stage.succeed(0..2);
    assert_nothing_left(&mount.behind());
}

#[test]
fn a_directory_in_use_is_removed_a_little_later() {
    let mount = DoubleMount::new();
    mount.rules(
        1,
        "rmdir * ENOTEMPTY count=2\nunlink payload-* ENOENT count=1",
    );
    let mut stage = start(&mount, STEPS);
    stage.succeed(0..2);
    let left = crate::common::left_in(&mount.behind());
    assert!(left.is_empty(), "{left:?}\n{}", stage.transcript());
}

#[test]
fn a_rank_that_hangs_in_its_file_system_is_named_in_time() {
    let mount = DoubleMount::new();
    mount.rules(2, "fsync payload-* hang");
    let mut stage = Stage::new();
    let world = mount.world().with("FSGATHER_TIMEOUT", "2s");
    for rank in [0, 1] {
        stage.start(&mut mount.rank(&world, rank, "join all_gather_bytes:2500000 close"));
    }
    let end = stage.end(0);
    assert_eq!(end.code, TIMED_OUT, "{}", stage.transcript());
    let hangs = stage.pid(1);
    assert!(
        end.error().contains("rank 1 on ")
            && end.error().contains(&format!("(pid {hangs}, "))
            && end.error().contains("publishing its payload"),
        "{}",
        end.error()
    );
    // It could not return before; then it reports the same error.
    assert!(stage.runs(1));
    mount.rules(2, "");
    let late = stage.end(1);
    assert_eq!((late.code, late.error()), (TIMED_OUT, end.error()));
    assert_nothing_left(&mount.behind());
}

#[test]
fn a_file_system_that_hangs_for_a_while_costs_that_while() {
    let mount = DoubleMount::new();
    mount.rules(1, "read payload-* hang");
    mount.rules(2, "fsync payload-* hang");
    let mut stage = start(&mount, STEPS);
    stage.wait_until("a payload being written", || {
        holds(&mount.behind(), "payload-")
    });
    stage.let_pass(Duration::from_secs(1));
    assert!(stage.runs(0) && stage.runs(1));
    mount.rules(2, "");
    stage.let_pass(Duration::from_secs(1));
    assert!(stage.runs(0), "{}", stage.transcript());
    mount.rules(1, "");
    stage.succeed(0..2);
    assert_nothing_left(&mount.behind());
}

#[test]
fn a_hang_in_a_file_system_is_reported_with_none_waiting() {
    let mount = DoubleMount::new();
    for host in [1, 2] {
        mount.rules(host, "read payload-* hang");
    }
    let mut stage = start(&mount, "join all_gather_bytes:2500000 close");
    let shown = crate::common::in_step(&mount.directory());
    for rank in [0, 1] {
        let warning = stage.wait_for_where(rank, "a warning", |line| line.contains("WARN"));
        assert!(
            warning.contains("reading the payload of rank ")
                && warning.contains(&shown)
                && warning.ends_with("see whether that file system answers"),
            "{warning}"
        );
    }
    for host in [1, 2] {
        mount.rules(host, "");
    }
    stage.succeed(0..2);
    assert_nothing_left(&mount.behind());
}
