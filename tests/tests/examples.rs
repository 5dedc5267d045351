//! The examples of the library print their documented output, with several ranks.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

mod common;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use common::{
    Stage, assert_nothing_left,
    build::{command_line_tool, library_example},
    place,
};

/// The output of the ranks of a program under `fsgather run`, sorted, each line behind its rank.
fn printed(ranks: u32, program: &Path, arguments: &[&str]) -> Vec<String> {
    let tool = command_line_tool();
    let directory = place();
    let mut stage = Stage::new();
    let mut command = Command::new(tool);
    let path = tool.parent().expect("a directory").display();
    command
        .args(["run", "-n", &ranks.to_string(), "--timeout", "10m", "--dir"])
        .arg(directory.path())
        .arg("--")
        .arg(program)
        .args(arguments)
        .env_clear()
        .env("PATH", format!("{path}:/usr/sbin:/usr/bin:/sbin:/bin"));
    let index = stage.start(&mut command);
    let end = stage.end(index);
    assert_eq!(end.code, 0, "{}", stage.transcript());
    assert_nothing_left(directory.path());
    let mut lines = end.stdout;
    lines.sort();
    lines
}

fn example(ranks: u32, name: &str) -> Vec<String> {
    printed(ranks, &library_example(name), &[])
}

/// A file of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

#[test]
fn evaluation_prints_the_same_with_any_number_of_ranks() {
    let one = example(1, "evaluation");
    assert_eq!(one, ["[0] 298 of 300 images were recognized"]);
    assert_eq!(example(3, "evaluation"), one);
}

#[test]
fn metrics_are_the_same_on_every_rank_at_every_step() {
    let lines = example(3, "metrics");
    let stopped: Vec<_> = (0..3)
        .map(|rank| format!("[{rank}] rank {rank} stops after step 399"))
        .collect();
    for line in &stopped {
        assert!(lines.contains(line), "{line}: {lines:?}");
    }
    let steps = lines.iter().filter(|line| line.contains("over 27 samples"));
    assert_eq!(steps.count(), 3, "{lines:?}");
}

#[test]
fn groups_by_host_and_by_parity_and_several_at_once() {
    let lines = example(4, "groups");
    let expected = [
        "[0] 4 lists of boxes, mask 0, mask 1, mask 2, mask 3",
        "[0] rank 0 is 0 of 4 here: loaded by rank 0",
        "[0] rank 0 is with [0, 2]",
        "[1] rank 1 is 1 of 4 here: loaded by rank 0",
        "[1] rank 1 is with [1, 3]",
        "[2] rank 2 is 2 of 4 here: loaded by rank 0",
        "[2] rank 2 is with [0, 2]",
        "[3] rank 3 is 3 of 4 here: loaded by rank 0",
        "[3] rank 3 is with [1, 3]",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn overlap_loses_no_batch() {
    let lines = example(3, "overlap");
    assert_eq!(lines, ["[0] 750000 scores of 5 batches of 3 ranks"]);
}

#[test]
fn samples_of_an_earlier_attempt_are_not_missing() {
    let place = place();
    let directory = place.path().join("run");
    let program = library_example("samples");
    let run = |ranks, count| {
        let count = format!("{count}");
        printed(
            ranks,
            &program,
            &[directory.to_str().expect("text"), &count],
        )
    };
    let first = [
        "[0] rank 0: 20 missing",
        "[0] right: 20 of 20 samples",
        "[1] rank 1: 20 missing",
    ];
    assert_eq!(run(2, 20), first);
    let second = ["[0] rank 0: 10 missing", "[0] right: 30 of 30 samples"];
    assert_eq!(run(1, 30), second);
}

#[test]
fn the_shell_job_gathers_files_in_rank_order() {
    let results = place();
    let argument = results.path().to_str().expect("text");
    let script = repository("crates/fsgather/examples/shell_job.sh");
    let lines = printed(3, &script, &[argument]);
    let expected = [
        "[0] 9 lines in all",
        "[0] rank 0 has the files of 3 ranks",
        "[1] rank 1 has the files of 3 ranks",
        "[2] rank 2 has the files of 3 ranks",
    ];
    assert_eq!(lines, expected);
    let found = fs::read_to_string(results.path().join("found.txt")).expect("a file");
    let expected: String = (0..3)
        .flat_map(|rank| (3..=5).map(move |n| format!("rank {rank} found {n}\n")))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn examples_are_short_enough_to_be_read_at_once() {
    let directory = repository("crates/fsgather/examples");
    let mut seen = 0;
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            continue;
        }
        let text = fs::read_to_string(&path).expect("text");
        let lines = text.lines().count();
        assert!(lines < 60, "{}: {lines} lines", path.display());
        seen += 1;
    }
    assert_eq!(seen, 6);
}
