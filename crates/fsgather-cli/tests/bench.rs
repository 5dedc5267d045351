//! `fsgather bench` with real processes.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "functions that tests share fail them in the same way"
)]

mod common;

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use common::{Finished, Running, children_of, finish, fsgather, is_guard, start, watch};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A fresh directory to measure in.
fn place() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// `fsgather bench --dir DIRECTORY OPTIONS`.
fn bench(directory: &Path, options: &[&str]) -> Command {
    let mut command = fsgather(&["bench", "--dir"]);
    command.arg(directory).args(options);
    command
}

fn left_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries
        .map(|entry| entry.unwrap().path().display().to_string())
        .collect()
}

/// The rows that a command prints with `--json`.
fn rows(done: &Finished) -> Vec<Value> {
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    let document: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(document["schema_version"], 1);
    document["rows"].as_array().unwrap().clone()
}

/// Runs `bench --json` in a directory of its own, and checks that nothing is left in it.
fn measured(options: &[&str]) -> Vec<Value> {
    let place = place();
    let rows = rows(&finish(bench(place.path(), options).arg("--json")));
    assert_eq!(left_in(place.path()), [""; 0]);
    rows
}

fn keys(row: &Value) -> BTreeSet<&str> {
    row.as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

const FIELDS: [&str; 11] = [
    "operation",
    "transport",
    "control",
    "ranks",
    "bytes",
    "recipients",
    "iterations",
    "median_seconds",
    "min_seconds",
    "p90_seconds",
    "peak_rss_bytes",
];

#[test]
fn every_operation_has_a_row_with_the_documented_fields() {
    let rows = measured(&["-n", "3", "--bytes", "100KiB", "--iterations", "4"]);
    let expected = [
        ("barrier", 0, "all"),
        ("broadcast", 100 << 10, "all"),
        ("gather", 100 << 10, "root"),
        ("all_gather", 100 << 10, "all"),
    ];
    assert_eq!(rows.len(), expected.len());
    for (row, (operation, bytes, recipients)) in rows.iter().zip(expected) {
        assert_eq!(keys(row), BTreeSet::from(FIELDS), "{row}");
        assert_eq!(row["operation"], operation);
        assert_eq!(row["transport"], "filesys");
        assert_eq!(row["control"], "auto");
        assert_eq!(row["ranks"], 3);
        assert_eq!(row["bytes"], bytes);
        assert_eq!(row["recipients"], recipients);
        assert_eq!(row["iterations"], 4);
        let seconds = |field: &str| row[field].as_f64().unwrap();
        assert!(seconds("min_seconds") > 0.0, "{row}");
        assert!(seconds("min_seconds") <= seconds("median_seconds"), "{row}");
        assert!(seconds("median_seconds") <= seconds("p90_seconds"), "{row}");
        assert!(row["peak_rss_bytes"].as_u64().unwrap() > 1 << 20, "{row}");
    }
}

#[test]
fn it_begins_with_what_is_measured_and_where() {
    let place = place();
    let options = [
        "-n",
        "2",
        "--bytes",
        "300KiB",
        "--iterations",
        "2",
        "--operation",
        "gather",
    ];
    let done = finish(&mut bench(place.path(), &options));
    let lines = done.lines();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(lines[0].starts_with("2 ranks on "), "{}", lines[0]);
    let directory = format!(", {} (", place.path().display());
    assert!(
        lines[0].contains(&directory) && lines[0].ends_with("), 300.0 KiB each"),
        "{}",
        lines[0]
    );
    assert!(lines[2].contains("  GiB/s  "), "{}", lines[2]);
    let mut json = bench(place.path(), &options);
    let done = finish(json.arg("--json"));
    let document: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(document["directory"], place.path().to_str().unwrap());
    assert!(document["host"].is_string() && document["file_system"].is_string());
}

#[test]
fn operations_and_recipients_choose_rows() {
    let names = |options: &[&str]| -> Vec<String> {
        let few = ["-n", "2", "--bytes", "64", "--iterations", "2"];
        let rows = measured(&[&few[..], options].concat());
        let names = rows.iter().map(|row| row["operation"].as_str().unwrap());
        names.map(str::to_owned).collect()
    };
    assert_eq!(names(&["--recipients", "root"]), ["gather"]);
    let two = names(&["--operation", "all_gather,barrier"]);
    assert_eq!(two, ["all_gather", "barrier"]);
}

#[test]
fn control_by_marker_files_is_measured_too() {
    let few = ["-n", "2", "--bytes", "64", "--iterations", "2"];
    for row in measured(&[&few[..], &["--control", "markers"]].concat()) {
        assert_eq!(row["control"], "markers");
    }
}

#[test]
fn variables_count_where_arguments_say_nothing() {
    let place = place();
    let options = ["-n", "2", "--bytes", "64", "--iterations", "2", "--json"];
    let mut command = fsgather(&["bench", "--operation", "gather"]);
    command
        .args(options)
        .env("FSGATHER_DIR", place.path())
        .env("FSGATHER_TRANSPORT", "memory")
        .env("FSGATHER_CONTROL", "tcp")
        // This shell may be a rank of some job.
        .env("FSGATHER_RANK", "7")
        .env("FSGATHER_WORLD_SIZE", "9")
        .env("FSGATHER_RENDEZVOUS", "tcp://127.0.0.1:9");
    let rows = rows(&finish(&mut command));
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["transport"], "memory");
    assert_eq!(rows[0]["control"], "tcp");
    assert_eq!(left_in(place.path()), [""; 0]);
}

#[test]
fn without_json_there_is_a_table() {
    let place = place();
    let options = ["-n", "2", "--bytes", "64KiB", "--iterations", "2"];
    let done = finish(&mut bench(place.path(), &options));
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    // After the line about the measurement, and an empty line.
    let lines = done.lines().split_off(2);
    assert_eq!(lines.len(), 5, "{lines:#?}");
    for word in ["OPERATION", "MEDIAN", "MEMORY"] {
        assert!(lines[0].contains(word), "{}", lines[0]);
    }
    assert!(
        lines[1].trim_start().starts_with("barrier "),
        "{}",
        lines[1]
    );
}

#[test]
fn without_a_directory_a_temporary_one_is_used() {
    let place = place();
    let options = ["-n", "2", "--bytes", "64", "--iterations", "2"];
    let mut command = fsgather(&["bench"]);
    command.args(options).env("TMPDIR", place.path());
    assert_eq!(finish(&mut command).code, Some(0));
    assert_eq!(left_in(place.path()), [""; 0]);
}

#[test]
fn wrong_arguments_end_with_2_before_anything_starts() {
    for wrong in [
        &["--ranks", "0"][..],
        &["--ranks", "1000"],
        &["--bytes", "0"],
        &["--bytes", "many"],
        &["--iterations", "0"],
        &["--transport", "pigeon"],
        &["--control", "memory"],
        &["--operation", "reduce"],
        &["--recipients", "some"],
        &["--operation", "gather", "--recipients", "all"],
        &["--dir", "/no/such/directory"],
        &["extra"],
    ] {
        let done = finish(&mut fsgather(&[&["bench"], wrong].concat()));
        assert_eq!(done.code, Some(2), "{wrong:?}: {}", done.stderr);
        assert_eq!(done.stdout, b"", "{wrong:?}");
        assert!(!done.stderr.is_empty(), "{wrong:?}");
    }
    let done = finish(fsgather(&["bench"]).env("FSGATHER_TRANSPORT", "pigeon"));
    assert_eq!(done.code, Some(2), "{}", done.stderr);
}

/// Starts a bench that does not end by itself, and waits until it measures.
fn endless(directory: &Path, options: &[&str]) -> Running {
    let many = ["-n", "3", "--iterations", "1000000"];
    let mut command = bench(directory, &[&many[..], options].concat());
    let mut running = start(command.env("FSGATHER_LOG", "info").stdin(Stdio::null()));
    running.wait_for("measuring ");
    running
}

/// The pids of the ranks.
fn ranks_of(running: &Running) -> Vec<String> {
    let mut children = children_of(running.pid());
    children.retain(|pid| !is_guard(pid));
    children
}

#[test]
fn a_killed_rank_ends_the_benchmark_with_the_signal_code() {
    for options in [
        &["--operation", "barrier"][..],
        &["--operation", "gather", "--bytes", "300KiB"],
        &["--operation", "all_gather", "--bytes", "300KiB"],
        &["--operation", "all_gather", "--bytes", "64"],
    ] {
        let place = place();
        let running = endless(place.path(), options);
        let ranks = ranks_of(&running);
        assert_eq!(ranks.len(), 3);
        let victim = Pid::from_raw(ranks[1].parse().unwrap()).unwrap();
        kill_process(victim, Signal::KILL).unwrap();
        let done = running.finish();
        assert_eq!(done.code, Some(137), "{options:?}\n{}", done.stderr);
        assert!(done.lines().len() <= 2, "no table: {options:?}");
        let said = format!("rank 1 (pid {}) was killed by signal 9", ranks[1]);
        assert!(done.stderr.contains(&said), "{options:?}\n{}", done.stderr);
        // The other ranks know the cause as well, and may report it in one line.
        let mut lines = done.stderr.lines();
        assert!(
            lines.any(|line| line.starts_with("[0")
                && line.contains("] fsgather bench: rank 1 on ")),
            "{options:?}\n{}",
            done.stderr
        );
        assert_eq!(left_in(place.path()), [""; 0]);
    }
}

#[test]
fn a_signal_ends_it_and_nothing_is_left() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let place = place();
        let options = ["--operation", "all_gather", "--bytes", "300KiB"];
        let running = endless(place.path(), &options);
        let ranks: Vec<_> = ranks_of(&running).iter().map(|pid| watch(pid)).collect();
        running.signal(signal);
        for rank in &ranks {
            rank.wait();
        }
        let done = running.finish();
        assert_eq!(done.code, Some(code), "{}", done.stderr);
        assert!(done.lines().len() <= 2, "no table");
        assert_eq!(left_in(place.path()), [""; 0]);
    }
}

#[test]
fn a_file_system_that_does_not_take_files_is_named() {
    let done = finish(&mut bench(
        Path::new("/proc"),
        &["-n", "2", "--bytes", "64"],
    ));
    assert_eq!(done.code, Some(12), "{}", done.stderr);
    assert!(done.stderr.contains("/proc"), "{}", done.stderr);
}

#[test]
fn the_help_says_what_is_measured() {
    let help = finish(&mut fsgather(&["bench", "--help"]))
        .lines()
        .join("\n");
    for part in [
        "Examples:\n  fsgather bench",
        "slowest rank",
        "docs/reference/json.md",
    ] {
        assert!(help.contains(part), "{part} is missing in:\n{help}");
    }
    let short = finish(&mut fsgather(&["-h"])).lines().join("\n");
    assert!(
        short.contains("bench") && !short.contains("bench-rank"),
        "{short}"
    );
}
