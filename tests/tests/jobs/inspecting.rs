//! Tests the output about leftovers for users: large amounts, on narrow terminals, repeatedly.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

use std::{
    fs,
    io::Read,
    process::{Command, Stdio},
};

use fsgather_testkit::process;
use serde_json::Value;

use crate::common::{
    build::command_line_tool, left_in, leftovers::crashed, place, terminal::at_terminal,
    verbs::said,
};

/// Returns what the command writes to a terminal.
fn shown(columns: u32, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let mut command = at_terminal(columns, command_line_tool(), arguments, variables);
    let output = process::output(&mut command).expect("python3");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    text.replace("\r\n", "\n")
}

#[test]
fn thirty_crashed_jobs_are_a_line_and_each_of_them_if_asked() {
    let place = place();
    let named = place.path().to_str().expect("text");
    crashed(place.path(), 30);
    let thesis = place.path().join("all_gather_via_filesys/thesis.tex");
    fs::write(&thesis, "x").expect("a file");
    // An item without others of its kind is shown by name.
    let plan = said(&["clean", named], &[]);
    let kept = format!("kept          {}\n", thesis.display());
    assert!(
        plan.starts_with("would remove  /") && plan.contains(&kept),
        "{plan}"
    );
    fs::remove_file(&thesis).expect("ours");
    let brief = said(&["inspect", named], &[]);
    assert!(brief.contains("     30  stale  "), "{brief}");
    assert!(brief.contains("\n      its owner has ended ("), "{brief}");
    assert!(brief.contains("\n0 live, 30 stale, "), "{brief}");
    assert!(brief.lines().count() <= 9, "{brief}");
    let more = format!("each of them: fsgather inspect --long {named}\n");
    assert!(brief.ends_with(&more), "{brief}");
    let long = said(&["inspect", "--long", named], &[]);
    let rows = long.lines().filter(|line| line.starts_with("  gather-"));
    assert_eq!(rows.count(), 30, "{long}");
    // One of them has a record, which has no row.
    assert_eq!(
        long.matches("has ended; its record is ").count(),
        1,
        "{long}"
    );
    assert!(!long.contains("LEFTOVER"), "{long}");
    let plan = said(&["clean", named], &[]);
    assert!(
        plan.contains("  would remove     30  stale gather directory  "),
        "{plan}"
    );
    assert!(plan.lines().count() <= 12, "{plan}");
    let more = format!("each of them: fsgather clean {named} --long\n");
    assert!(plan.ends_with(&more), "{plan}");
    let long = said(&["clean", "--long", named], &[]);
    let planned = long
        .lines()
        .filter(|line| line.starts_with("would remove  /"));
    assert_eq!(planned.count(), 32, "{long}");
    let done = said(&["clean", "--yes", named], &[]);
    assert!(done.contains("\n32 removed ("), "{done}");
    assert!(left_in(place.path()).is_empty());
}

#[test]
fn programs_are_told_whose_a_record_was() {
    let place = place();
    let named = place.path().to_str().expect("text");
    crashed(place.path(), 1);
    let document: Value =
        serde_json::from_str(&said(&["inspect", "--json", named], &[])).expect("JSON");
    let seen = &document["directories"][0];
    let record = &seen["leftovers"][0];
    let owner = &seen["gather_dirs"][0]["owner"];
    assert_eq!(
        (&record["owner"], &record["job"]),
        (owner, &"4711".into()),
        "{seen}"
    );
    assert_eq!(record["user"], seen["gather_dirs"][0]["user"], "{seen}");
    assert!(
        record["removable"] == true && record["reason"].is_string(),
        "{seen}"
    );
}

#[test]
fn a_terminal_is_told_what_fits_and_a_pipe_everything() {
    let place = place();
    let directory = place.path().to_str().expect("text");
    let gathers = crashed(place.path(), 4);
    let names: Vec<&str> = gathers
        .iter()
        .filter_map(|path| path.file_name()?.to_str())
        .collect();
    let whole = said(&["inspect", directory], &[]);
    for columns in [200, 80, 60, 40] {
        let told = shown(columns, &["inspect", directory], &[("NO_COLOR", "1")]);
        assert!(!told.contains('\x1b'), "{told:?}");
        for line in told.lines() {
            // A path, and a line to copy, are not wrapped.
            let is_free = line.starts_with('/') || line.contains("fsgather clean ");
            let columns = usize::try_from(columns).expect("small");
            assert!(
                is_free || line.chars().count() <= columns,
                "{columns}: {line}\n{told}"
            );
        }
        // No word of the output is broken.
        let is_age = |word: &str| word.parse::<u64>().is_ok();
        let words = told
            .split_whitespace()
            .filter(|word| !word.starts_with("..") && !is_age(word));
        for word in words {
            assert!(
                whole.split_whitespace().any(|known| known == word),
                "{word}: {told}"
            );
        }
        for name in &names {
            let salt = name.rsplit('-').next().expect("a salt");
            assert!(told.contains(salt), "{salt}: {told}");
        }
        let is_wide = match columns {
            200 => true,
            40 => false,
            // The width depends on the names of users and hosts.
            _ => continue,
        };
        assert_eq!(told.contains(names[0]), is_wide, "{told}");
    }
    assert!(names.iter().all(|name| whole.contains(name)), "{whole}");
    let plan = shown(80, &["clean", directory], &[]);
    assert!(
        plan.contains("\nwould remove  gather-20261121t033336z-00000001  "),
        "{plan}"
    );
    // The contents of one directory, and then the directory itself.
    assert_eq!(plan.matches(":\nwould remove").count(), 2, "{plan}");
}

const STALE: &str = "\x1b[33mstale\x1b[0m";

#[test]
fn colours_are_where_they_are_wanted() {
    let place = place();
    let named = place.path().to_str().expect("text");
    crashed(place.path(), 1);
    let to_pipe = |arguments: &[&str], variables: &[(&str, &str)]| {
        said(&[&["inspect", named], arguments].concat(), variables).contains(STALE)
    };
    assert!(!to_pipe(&[], &[]));
    assert!(to_pipe(&["--color", "always"], &[("NO_COLOR", "1")]));
    assert!(to_pipe(&[], &[("CLICOLOR_FORCE", "1")]));
    assert!(!to_pipe(&["--color=never"], &[("CLICOLOR_FORCE", "1")]));
    assert!(!to_pipe(&[], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    let forced = [("CLICOLOR_FORCE", "1")];
    assert!(!said(&["inspect", "--json", named], &forced).contains('\x1b'));
    let verdict = said(&["doctor", named, "--color=always"], &[]);
    assert!(verdict.starts_with("\x1b[32musable\x1b[0m ("), "{verdict}");
    let ranks = [
        "run",
        "-n",
        "2",
        "--color=always",
        "--dir",
        named,
        "--",
        "echo",
        "x",
    ];
    let lines = said(&ranks, &[]);
    for line in ["\x1b[36m[0]\x1b[0m x\n", "\x1b[32m[1]\x1b[0m x\n"] {
        assert!(lines.contains(line), "{lines:?}");
    }
    assert!(!said(&["run", "-n", "2", "--dir", named, "--", "echo", "x"], &[]).contains('\x1b'));
    let mut command = Command::new(command_line_tool());
    command
        .args(["inspect", "--color=always", named])
        .env("FSGATHER_XYZZY", "1");
    let warned = process::output(&mut command).expect("the command");
    let warned = String::from_utf8(warned.stderr).expect("text");
    assert!(
        warned.starts_with("fsgather: rank 0: \x1b[33mwarning: \x1b[0m"),
        "{warned:?}"
    );
    let to_terminal = |arguments: &[&str], variables: &[(&str, &str)]| {
        shown(80, &[&["inspect", named], arguments].concat(), variables).contains('\x1b')
    };
    assert!(to_terminal(&[], &[]));
    assert!(!to_terminal(&[], &[("NO_COLOR", "1")]));
    assert!(!to_terminal(&[], &[("TERM", "dumb")]));
    assert!(!to_terminal(&["--color=never"], &[]));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let place = place();
    let script = "\"$0\" inspect --watch \"$1\" | head -n 1; echo ${PIPESTATUS[0]}";
    let mut command = Command::new("bash");
    command
        .args(["-c", script])
        .arg(command_line_tool())
        .arg(place.path());
    let output = process::output(&mut command).expect("a shell");
    let lines = String::from_utf8(output.stdout).expect("text");
    assert!(lines.ends_with("\n0\n"), "{lines}");
}

#[test]
fn watching_has_a_clock_and_draws_over_what_was_there() {
    let place = place();
    let named = place.path().to_str().expect("text");
    let script = "\"$0\" inspect --watch --interval 20ms \"$1\" | head -n 9";
    let mut command = Command::new("bash");
    command
        .args(["-c", script])
        .arg(command_line_tool())
        .arg(named);
    let output = process::output(&mut command).expect("a shell");
    let lines = String::from_utf8(output.stdout).expect("text");
    let clocks = lines
        .lines()
        .filter(|line| line.ends_with(" UTC, every 20ms"));
    assert_eq!(clocks.count(), 3, "{lines}");
    let watching = ["inspect", "--watch", "--interval", "20ms", named];
    let mut command = at_terminal(80, command_line_tool(), &watching, &[]);
    command.stdout(Stdio::piped());
    let mut child = process::spawn(&mut command).expect("python3");
    let mut frames = child.stdout.take().expect("a pipe");
    let mut seen = Vec::new();
    let home = |seen: &[u8]| String::from_utf8_lossy(seen).matches("\x1b[H").count();
    while home(&seen) < 4 {
        let mut more = [0; 4096];
        let count = frames.read(&mut more).expect("frames");
        assert!(count > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&more[..count]);
    }
    child.kill().expect("ours");
    drop(frames);
    child.wait().expect("an end");
    let seen = String::from_utf8_lossy(&seen);
    // The screen is cleared once, and never between frames.
    assert_eq!(seen.matches("\x1b[2J").count(), 1, "{seen:?}");
    assert!(seen.contains(" UTC, every 20ms\x1b[K"), "{seen:?}");
}

#[test]
fn an_unreadable_directory_is_reported_and_not_clean() {
    let place = place();
    let missing = place.path().join("missing");
    let mut command = Command::new(command_line_tool());
    command.arg("clean").args([place.path(), &missing]);
    let output = process::output(&mut command).expect("a program that can be started");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let [told, failed] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text"));
    assert_eq!(told, "nothing to remove, 0 kept, 1 not looked at\n");
    assert!(
        failed.contains(&format!("cannot read {}", missing.display())),
        "{failed}"
    );
}
