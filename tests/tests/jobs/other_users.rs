//! Tests what root sees of the job of a user, and what a third user can change about it. Only root can run these tests.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, chown},
    path::Path,
    process::Command,
};

use fsgather_testkit::process;

use crate::common::{
    Stage, World, everybody, place,
    tracing::{calls_in, document, said, tool, wait_for_two_in},
};

/// The owner of the job, and a user who wants to disturb it. No real users have these numbers.
const OWNER: u32 = 61_001;
const INTRUDER: u32 = 61_002;

/// Returns a directory that all users may write into, as `/tmp`, unless this is not root.
fn sticky_place() -> Option<tempfile::TempDir> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let place = place();
    fs::set_permissions(place.path(), Permissions::from_mode(0o1777)).expect("a mode");
    Some(place)
}

/// Returns the command that runs another one as a user.
fn prefix(user: u32) -> Vec<String> {
    let [user, group] = ["reuid", "regid"].map(|what| format!("--{what}={user}"));
    vec!["setpriv".into(), user, group, "--clear-groups".into()]
}

/// Returns what the owner's `ps --stacks` writes.
fn said_to_owner(directory: &Path) -> String {
    let as_root = tool(&["ps", "--stacks"], directory);
    let (user, arguments) = (prefix(OWNER), as_root.get_args());
    let mut command = Command::new(&user[0]);
    command
        .args(&user[1..])
        .arg(as_root.get_program())
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let output = process::output(&mut command).expect("a program");
    String::from_utf8(output.stdout).expect("text")
}

/// Starts a job of the owner in which rank 1 is late for the second barrier.
fn start_late(stage: &mut Stage, directory: &Path) {
    let world = World::new(3, directory).with("FSGATHER_TRACE", "always");
    for rank in 0..3 {
        let script = if rank == 1 {
            "join barrier at:here barrier close"
        } else {
            "join barrier barrier close"
        };
        stage.start(&mut world.rank_behind(&prefix(OWNER), rank, script));
    }
    stage.wait_at([1], "here");
    wait_for_two_in(stage, directory, "barrier #2");
}

#[test]
fn root_and_owner_are_answered_in_spite_of_forged_answers() {
    let Some(place) = sticky_place() else {
        return;
    };
    let mut stage = Stage::new();
    start_late(&mut stage, place.path());
    let rendezvous = place.path().join("all_gather_via_filesys");
    // The intruder takes the name of an answer as soon as there is a question.
    let script = "while :; do for asked in asked-*; do [ -e \"$asked\" ] || continue; \
        echo forged > answer-${asked#asked-}-00000000; echo forged > answer-${asked#asked-}; done; done";
    let user = prefix(INTRUDER);
    let mut intruder = Command::new(&user[0]);
    intruder
        .args(&user[1..])
        .args(["sh", "-c", script])
        .stderr(std::process::Stdio::null())
        .current_dir(&rendezvous);
    let mut intruder = process::spawn(&mut intruder).expect("a shell");
    let to_root = said(&["ps", "--stacks"], place.path());
    let to_owner = said_to_owner(place.path());
    intruder.kill().expect("an end");
    intruder.wait().expect("an end");
    for said in [&to_root, &to_owner] {
        assert!(said.contains("\n  rank 1: waiting, in read"), "{said}");
        assert!(!said.contains("forged"), "{said}");
        let refused = format!("an answer of uid {INTRUDER}, but this is a job of uid {OWNER}");
        assert!(said.contains(&refused), "{said}");
    }
    assert!(
        to_root.contains(&format!(" of uid {OWNER} in ")),
        "{to_root}"
    );
    stage.go(1);
    stage.succeed(everybody(3));
}

#[test]
fn calls_of_another_user_are_not_taken_into_a_job() {
    let Some(place) = sticky_place() else {
        return;
    };
    let mut stage = Stage::new();
    start_late(&mut stage, place.path());
    stage.go(1);
    stage.succeed(everybody(3));
    let calls = calls_in(place.path());
    let forged = &calls[2];
    chown(forged, Some(INTRUDER), None).expect("another owner");
    let said = said(&["trace"], place.path());
    let why = format!("it is of uid {INTRUDER}, but this is a job of uid {OWNER}");
    let not_read = format!("  not read: {}: {why}\n", forged.display());
    assert!(said.contains(&not_read), "{said}");
    let seen = document(&["trace", "--json"], place.path());
    let ranks = seen["ranks"].as_array().expect("ranks");
    assert_eq!(ranks.len(), 2, "{seen}");
}
