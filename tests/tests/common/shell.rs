//! Shell scripts that use the command-line tool on every rank.

use std::{ffi::OsString, fs, path::Path, process::Command};

use fsgather_tests::Generated;
use rustix::process::Signal;

use super::{
    End, PEER_FAILED, Stage, World, assert_nothing_left, build::command_line_tool, left_in,
    name_of, payloads, place,
};

/// Number of ranks of these jobs.
pub(crate) const RANKS: u32 = 3;

/// Runs a shell script on every rank by `fsgather run`: `fsgather` is in its `PATH`, `$WORK` is the working directory.
pub(crate) fn run(directory: &Path, work: &Path, script: &str) -> End {
    let mut command = Command::new(command_line_tool());
    let mut stage = Stage::new();
    command
        .args(["run", "-n", &RANKS.to_string(), "--timeout", "10m", "--dir"])
        .arg(directory)
        .args(["--", "sh", "-c", script])
        .env_clear()
        .env("PATH", path())
        .env("WORK", work)
        .current_dir(work);
    let index = stage.start(&mut command);
    let end = stage.end(index);
    assert!(
        left_in(directory).is_empty(),
        "{:?}\n{}",
        left_in(directory),
        stage.transcript()
    );
    end
}

/// The `PATH` of these scripts, with the tool's directory first.
fn path() -> OsString {
    let mut path = command_line_tool()
        .parent()
        .expect("a directory")
        .as_os_str()
        .to_owned();
    path.push(":/usr/sbin:/usr/bin:/sbin:/bin");
    path
}

/// Asserts that all ranks succeeded.
#[track_caller]
pub(crate) fn succeed(end: &End) {
    assert_eq!(end.code, 0, "{end:?}");
}

/// Makes a directory with a file `part.RANK` of `len` bytes for each rank.
pub(crate) fn work(len: usize) -> tempfile::TempDir {
    let work = place();
    for rank in 0..RANKS {
        let bytes = Generated::new(rank, len).bytes();
        fs::write(work.path().join(format!("part.{rank}")), bytes).expect("a file");
    }
    work
}

/// Returns the bytes of these files.
pub(crate) fn parts(len: usize) -> Vec<Vec<u8>> {
    (0..RANKS)
        .map(|rank| Generated::new(rank, len).bytes())
        .collect()
}

/// Returns the sorted names in a directory.
pub(crate) fn files_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().into_string())
        .map(|name| name.expect("text"))
        .collect();
    names.sort();
    names
}

/// Returns the lines of a rank on standard error; `run` prints equal lines of several ranks once.
pub(crate) fn said_by(end: &End, rank: u32) -> Vec<&str> {
    let speaks = |spans: &str| {
        spans.split(',').any(|span| {
            let (first, last) = span.split_once('-').unwrap_or((span, span));
            let number = |text: &str| text.trim().parse::<u32>();
            number(first)
                .is_ok_and(|first| first <= rank && number(last).is_ok_and(|last| rank <= last))
        })
    };
    let lines = end.stderr.iter();
    let said = lines.filter_map(|line| line.strip_prefix('[')?.split_once("] "));
    said.filter(|(spans, _)| speaks(spans))
        .map(|(_, line)| line)
        .collect()
}

/// Counts the lines of all ranks on standard error that contain a text.
pub(crate) fn said_times(end: &End, text: &str) -> usize {
    let all = (0..RANKS).flat_map(|rank| said_by(end, rank));
    all.filter(|line| line.contains(text)).count()
}

/// Starts a gather of three ranks: two have contributed, the input of the third has no end yet.
pub(crate) fn a_gather_that_waits(directory: &Path, work: &Path) -> Stage {
    let world = World::new(RANKS, directory);
    let mut stage = Stage::new();
    for rank in 0..RANKS {
        let file = format!("part.{rank}");
        let arguments: &[&str] = if rank == 2 {
            &["gather", "--out", "got"]
        } else {
            &["gather", &file, "--out", "got"]
        };
        stage.start(world.tool(rank, arguments).current_dir(work));
    }
    stage.wait_until("two payloads", || payloads(directory) == 2);
    stage
}

/// Asserts that a rank fails because another was ended by a signal.
pub(crate) fn told_of(stage: &mut Stage, rank: usize, ended: usize, signal: &str) {
    let end = stage.end(rank);
    assert_eq!(end.code, PEER_FAILED, "{}", stage.transcript());
    let said = end.stderr.join("\n");
    let named = name_of(u32::try_from(ended).expect("small"), stage.pid(ended));
    for named in [named, format!("ended by {signal}")] {
        assert!(said.contains(&named), "{named}\n{}", stage.transcript());
    }
}

/// Ends `rank` of a gather by a signal: it reports the signal, and the other ranks fail with its name.
pub(crate) fn ended_by(signal: Signal, name: &str, code: i32, rank: usize) {
    let (directory, work) = (place(), work(300_000));
    let mut stage = a_gather_that_waits(directory.path(), work.path());
    stage.signal(rank, signal);
    let own = stage.end(rank);
    assert_eq!(own.code, code, "{}", stage.transcript());
    let said = own.stderr.join("\n");
    assert!(said.contains(&format!("ended by {name}")), "{said}");
    told_of(&mut stage, 1 - rank, rank, name);
    // The third rank still waits for its input.
    told_of(&mut stage, 2, rank, name);
    assert_nothing_left(directory.path());
    assert!(!work.path().join("got").exists());
}
