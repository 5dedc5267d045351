//! Tests that `trace` and `ps` report files of calls that cannot be read, or not all of them, and show no older call as the last one.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use crate::common::{Stage, World, build::command_line_tool, everybody, place};
use fsgather_testkit::process;

/// Returns the status and the output of `fsgather trace`.
fn trace(directory: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(command_line_tool());
    command.arg("trace").arg(directory).env_clear();
    let output = process::output(&mut command).expect("a program");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).expect("text"))
}

/// Length of the header and of a record, in bytes.
const HEADER: usize = 4096;
/// The place of the number of calls that have begun.
const COUNT: usize = HEADER - 8;
const RECORD: usize = 192;

/// Returns the files of calls in a directory, by rank.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.join("all_gather_via_filesys")).expect("a directory");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.to_string_lossy().contains("/calls-"))
        .collect();
    files.sort();
    files
}

#[test]
fn older_call_of_a_cut_file_is_not_shown_as_the_last() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_TRACE", "always");
    let mut stage = Stage::new();
    let script = format!("join {}close", "barrier ".repeat(20));
    stage.start_all(&world, |_| script.clone());
    stage.succeed(everybody(2));
    let files = files(place.path());
    let [_, file] = files.as_slice() else {
        panic!("{files:?}");
    };
    let whole = fs::read(file).expect("a file");
    let (status, said) = trace(place.path());
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains(", 2 ranks on ") && !said.contains("not read"),
        "{said}"
    );
    // Within the header, just after it, and among the calls.
    let cuts = [
        0,
        10,
        200,
        HEADER - 1,
        HEADER,
        HEADER + RECORD,
        HEADER + 5 * RECORD + 7,
    ];
    for cut in cuts {
        fs::write(file, &whole[..cut]).expect("a file");
        let (status, said) = trace(place.path());
        assert_eq!(status, Some(0), "{cut}: {said}");
        let not_read = format!("  not read: {}: ", file.display());
        assert!(said.contains(&not_read), "{cut}: {said}");
        assert!(
            said.contains(", 1 of 2 ranks have left their calls "),
            "{cut}: {said}"
        );
    }
    // Without a part in the middle, later calls are shown, and the missing ones are counted.
    let mut holed = whole.clone();
    holed[HEADER + 3 * RECORD..HEADER + 7 * RECORD].fill(0);
    fs::write(file, &holed).expect("a file");
    let (status, said) = trace(place.path());
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains(", 2 ranks on "), "{said}");
    let what = ": 4 of its last 21 calls are missing or damaged";
    assert!(said.contains(what), "{said}");
    // Files that cannot be read are reported.
    for file in &files {
        fs::write(file, &whole[..10]).expect("a file");
    }
    let (status, said) = trace(place.path());
    assert_eq!(status, Some(2), "{said}");
    for file in &files {
        let why = format!("not read: {}: it is incomplete or damaged", file.display());
        assert!(said.contains(&why), "{said}");
    }
}

#[test]
fn rank_with_a_damaged_last_call_is_shown_as_not_read() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_TRACE", "always");
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| match rank {
        0 => "join barrier barrier".to_owned(),
        _ => "join barrier at:here".to_owned(),
    });
    stage.wait_at([1], "here");
    let files = files(place.path());
    let count = |file: &Path| {
        let bytes = fs::read(file).expect("a file");
        u64::from_ne_bytes(*bytes[COUNT..].first_chunk().expect("a number"))
    };
    stage.wait_until("one call and two", || {
        [&files[0], &files[1]].map(|file| count(file)) == [2, 1]
    });
    for rank in everybody(2) {
        stage.kill(rank);
    }
    for rank in everybody(2) {
        stage.end(rank);
    }
    for (rank, file) in files.iter().enumerate() {
        let whole = fs::read(file).expect("a file");
        let last = HEADER + RECORD * usize::try_from(count(file) - 1).expect("a few");
        let mut flipped = whole.clone();
        flipped[last + 1] ^= 1;
        for damaged in [flipped.as_slice(), &whole[..HEADER]] {
            fs::write(file, damaged).expect("a file");
            let (status, said) = trace(place.path());
            assert_eq!(status, Some(0), "{said}");
            let not_read = format!("  not read: {}: ", file.display());
            assert!(said.contains(&not_read), "rank {rank}: {said}");
            assert!(said.contains(" missing or damaged"), "rank {rank}: {said}");
            assert!(
                !said.contains("before its first call"),
                "rank {rank}: {said}"
            );
        }
        fs::write(file, whole).expect("a file");
    }
}

#[test]
fn job_that_ends_while_it_is_asked_is_reported_as_ended() {
    let place = place();
    let world = World::new(2, place.path());
    let mut stage = Stage::new();
    stage.start_all(&world, |_| "join barrier at:here close".to_owned());
    stage.wait_at([0, 1], "here");
    let mut command = Command::new(command_line_tool());
    command
        .args(["ps", "--stacks"])
        .arg(place.path())
        .env_clear();
    let said = thread::spawn(move || {
        let output = process::output(&mut command).expect("a program");
        String::from_utf8(output.stdout).expect("text")
    });
    let rendezvous = place.path().join("all_gather_via_filesys");
    let is_asked = || {
        let entries = fs::read_dir(&rendezvous).expect("a directory");
        let mut names = entries.map(|entry| entry.expect("an entry").file_name());
        names.any(|name| name.to_string_lossy().starts_with("asked-"))
    };
    stage.wait_until("a question", is_asked);
    for rank in 0..2 {
        stage.go(rank);
    }
    stage.succeed(everybody(2));
    let said = said.join().expect("an end");
    // The answer may have come just before.
    let is_answered = said.contains("\n  ranks 0 1: ");
    let is_reported = said.contains("the job has ended or failed meanwhile");
    assert!(is_answered || is_reported, "{said}");
    assert!(!said.contains("FSGATHER_STACKS"), "{said}");
}
