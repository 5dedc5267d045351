//! Tests the output of `inspect` and `clean` about leftovers, and removals that end early.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Command, Stdio},
};

use fsgather_testkit::process;
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{
    STORAGE, Stage, World,
    build::command_line_tool,
    everybody,
    leftovers::{crashed, gather_dirs, waiting},
    place,
    verbs::{clean, command, text},
};

#[test]
fn text_is_for_people_and_tells_what_to_do() {
    let place = place();
    let named = place.path().to_str().expect("text");
    let mut stage = Stage::new();
    waiting(
        &mut stage,
        &World::new(2, place.path())
            .with("FSGATHER_JOB", "a\u{1b}[2Jb")
            .with("FSGATHER_TRACE", "off"),
    );
    stage.kill(0);
    stage.kill(1);
    stage.end_all(everybody(2));
    let output = command(&[], command_line_tool(), &["inspect", named]);
    let shown = text(&output.stdout);
    assert!(
        !shown.contains('\u{1b}') && shown.contains("a\\u{1b}[2Jb"),
        "{shown}"
    );
    assert!(
        shown.contains("0 live, 1 stale, 0 finished, 0 unknown, 1 leftover;"),
        "{shown}"
    );
    assert!(
        shown.contains(&format!("fsgather clean {named} --execute\n")),
        "{shown}"
    );
    let missing = place.path().join("missing");
    let missing = missing.to_str().expect("text");
    let output = command(&[], command_line_tool(), &["inspect", missing]);
    assert_eq!(output.status.code(), Some(STORAGE));
    assert!(text(&output.stderr).contains(missing));
    let output = command(&[], command_line_tool(), &["clean", missing]);
    assert_eq!(
        text(&output.stderr),
        format!("fsgather clean: cannot read {missing}: No such file or directory (os error 2)\n")
    );
    let bare = command(
        &[],
        command_line_tool(),
        &["clean", named, "--older-than", "5"],
    );
    assert_eq!(bare.status.code(), Some(2));
    assert_eq!(gather_dirs(place.path()).len(), 1);
}

#[test]
fn an_interrupted_cleaning_reports_removed_and_remaining() {
    let place = place();
    crashed(place.path(), 1200);
    for (signal, name, code) in [(Signal::INT, "SIGINT", 130), (Signal::TERM, "SIGTERM", 143)] {
        let before = gather_dirs(place.path()).len();
        let mut command = Command::new(command_line_tool());
        command
            .args(["clean", "--execute"])
            .arg(place.path())
            .env_clear()
            .stdout(Stdio::piped());
        let mut child = process::spawn(&mut command).expect("a program that can be started");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut said = String::new();
        // It prints each removal at once, and is soon blocked because the pipe is not read.
        output.read_line(&mut said).expect("text");
        assert!(said.starts_with("removed  "), "{said}");
        let pid = i32::try_from(child.id()).expect("a pid");
        let pid = Pid::from_raw(pid).expect("a pid");
        kill_process(pid, signal).expect("ours");
        output.read_to_string(&mut said).expect("text");
        assert_eq!(child.wait().expect("an end").code(), Some(code), "{said}");
        let removed = said.lines().filter(|line| line.starts_with("removed  "));
        let removed = removed.count();
        let left = gather_dirs(place.path()).len();
        assert_eq!(before - left, removed, "{said}");
        assert!(left > 0, "{said}");
        let summary = said.lines().last().expect("a summary");
        let expected = format!("stopped by {name}: {removed} removed (");
        assert!(summary.starts_with(&expected), "{summary}");
        assert!(summary.contains(" to go ("), "{summary}");
    }
    assert_eq!(clean(&[], place.path(), &["--execute"])["stopped"], false);
    assert_eq!(fs::read_dir(place.path()).expect("a directory").count(), 0);
}
