//! Tests the progress line with real processes on a real terminal.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "functions that tests share fail them in the same way"
)]

mod common;

use std::{fs, path::Path, process::Command};

use common::{TOOL, finish, fsgather, on_terminal, run_script, start_drawing};

/// Two files and a pipe as the payloads of three ranks, in a directory of their own.
fn work() -> tempfile::TempDir {
    let work = tempfile::tempdir().unwrap();
    for rank in 0..2 {
        fs::write(work.path().join(format!("part.{rank}")), vec![7; 300_000]).unwrap();
    }
    let made = finish(Command::new("mkfifo").arg(work.path().join("part.2")));
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    work
}

/// Writes `bytes` bytes into a pipe once it has a reader, and closes it.
fn fill(pipe: &Path, bytes: u32) {
    let mut shell = Command::new("sh");
    shell.args(["-c", "head -c \"$0\" /dev/zero >\"$1\""]);
    let done = finish(shell.arg(bytes.to_string()).arg(pipe));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
}

/// `fsgather run` of three ranks that gather their payloads, with the tested command in `PATH`.
fn gather_of_three(work: &Path, columns: u32) -> Command {
    let script =
        "fsgather gather part.$FSGATHER_RANK --concat=whole; echo rank $FSGATHER_RANK is through";
    let script =
        format!("PATH=\"$DIRECTORY:$PATH\" exec fsgather run -n 3 --dir . -- sh -c '{script}'");
    let mut command = on_terminal(columns, &script);
    command
        .current_dir(work)
        .env("DIRECTORY", Path::new(TOOL).parent().unwrap());
    command
}

#[test]
fn run_draws_a_progress_line_on_a_terminal() {
    let work = work();
    let mut run = start_drawing(&mut gather_of_three(work.path(), 200));
    // The third rank has reached the gather, but its payload has not ended.
    let line = run.wait_for("2 of 3 ranks in");
    assert!(
        line.contains("gather #") && line.contains(": publishing "),
        "{line}"
    );
    fill(&work.path().join("part.2"), 300_000);
    for rank in 0..3 {
        // A line of its own, regardless of earlier drawing.
        let line = run.wait_for(&format!("rank {rank} is through"));
        assert!(
            line.ends_with(&format!("[{rank}] rank {rank} is through")),
            "{line}"
        );
    }
    let done = run.finish();
    let all = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(done.code, Some(0), "{all}");
    let last = all.trim_end().rsplit('\n').next().unwrap_or_default();
    assert!(!last.contains("gather #"), "{last}");
    assert_eq!(fs::read(work.path().join("whole")).unwrap().len(), 900_000);
}

#[test]
fn the_line_fits_into_a_narrow_terminal() {
    let work = work();
    let mut run = start_drawing(&mut gather_of_three(work.path(), 40));
    let line = run.wait_for("publishing ");
    let text = line.rsplit('\u{1b}').next().unwrap_or_default();
    let text = text.trim_start_matches(|c: char| c == '[' || c.is_ascii_digit() || c == 'K');
    assert!(text.trim_end().chars().count() <= 40, "{text:?}");
    fill(&work.path().join("part.2"), 1);
    assert_eq!(run.finish().code, Some(0));
}

/// The environment of the ranks of a run.
fn found(command: &mut Command) -> String {
    let done = finish(command);
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(done.code, Some(0), "{said}{}", done.stderr);
    said
}

#[test]
fn ranks_are_asked_for_reports_by_a_terminal_alone() {
    // Like a rank of another run, whose progress file its ranks must not use.
    let mut inner = run_script(2, &[], "env");
    let said = found(inner.env("FSGATHER_PROGRESS_FILE", "/proc/1/fd/9"));
    assert!(
        said.contains("FSGATHER_RANK=1") && !said.contains("FSGATHER_PROGRESS_FILE"),
        "{said}"
    );
    let place = std::env::temp_dir();
    let on_terminal = |options: &str| {
        let command = format!(r#"exec "$TOOL" run -n 1 {options} --dir "$PLACE" -- env"#);
        found(on_terminal(200, &command).env("PLACE", &place))
    };
    assert!(on_terminal("").contains("FSGATHER_PROGRESS_FILE=/proc/"));
    // Variables of a rank, which `run` replaces, need not be valid.
    let command =
        r#"FSGATHER_RANK=0 FSGATHER_WORLD_SIZE=0 exec "$TOOL" run -n 1 --dir "$PLACE" -- env"#;
    let said = found(self::on_terminal(200, command).env("PLACE", &place));
    assert!(said.contains("FSGATHER_WORLD_SIZE=1"), "{said}");
    let quiet = on_terminal("-q");
    assert!(!quiet.contains("FSGATHER_PROGRESS_FILE"), "{quiet}");
    for (name, value) in [("LOG", "error"), ("PROGRESS", "off")] {
        assert!(
            quiet.contains(&format!("FSGATHER_{name}={value}")),
            "{quiet}"
        );
    }
}

#[test]
fn ranks_that_cannot_leave_their_reports_run_as_well() {
    let place = tempfile::tempdir().unwrap();
    for path in ["/nowhere/at/all", "/proc/self/fd/0", "/dev/full"] {
        let mut command = fsgather(&["gather", "-"]);
        command
            .env("FSGATHER_DIR", place.path())
            .env("FSGATHER_RANK", "0")
            .env("FSGATHER_WORLD_SIZE", "1")
            .env("FSGATHER_PROGRESS_FILE", path);
        let done = finish(&mut command);
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{path}");
    }
}

#[test]
fn a_run_that_says_more_says_a_line_of_each_call_with_the_time() {
    let script = r#"exec "$TOOL" barrier"#;
    let done = finish(&mut run_script(2, &["-vv"], script));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let line = |rank: u32| {
        let lines = done.stderr.lines();
        let mut lines =
            lines.filter(|line| line.contains(&format!("fsgather: rank {rank}: debug: barrier #")));
        lines
            .next()
            .unwrap_or_else(|| panic!("{}", done.stderr))
            .to_owned()
    };
    for rank in 0..2 {
        let line = line(rank);
        assert!(
            line.starts_with(&format!("[{rank}] 2")) && line.contains("Z fsgather: "),
            "{line}"
        );
        assert!(
            line.contains("  2 ranks  ") && line.contains(" s (waited "),
            "{line}"
        );
    }
    let last = [line(0), line(1)].map(|line| line.contains(", came last, moved for "));
    assert!(last[0] != last[1], "{}", done.stderr);
    // A more precise setting of the user takes precedence.
    let mut finer = run_script(2, &["-vv"], script);
    let done = finish(finer.env("FSGATHER_LOG", "warn"));
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
}
