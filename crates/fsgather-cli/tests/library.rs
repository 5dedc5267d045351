//! The command as a function, for programs that contain it and are started again in their own way.

use std::ffi::OsString;

/// The words that start the command here; more than one, as those of an interpreter are.
fn main(arguments: &[&str]) -> u8 {
    let program = ["/usr/bin/env", env!("CARGO_BIN_EXE_fsgather")];
    fsgather_cli::main(
        arguments.iter().map(OsString::from),
        program.map(OsString::from).into(),
        None,
    )
}

// A single test, since a process should call this once, or at least once at a time.
#[test]
fn codes_come_back_and_ranks_are_started_as_the_caller_says() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().to_str().unwrap();
    assert_eq!(main(&["--version"]), 0);
    assert_eq!(main(&["no-such-verb"]), 2);
    let run = ["run", "-n", "2", "--dir", directory, "--"];
    assert_eq!(main(&[&run[..], &["true"]].concat()), 0);
    assert_eq!(main(&[&run[..], &["sh", "-c", "exit 7"]].concat()), 7);
    assert_eq!(main(&["--json", "demo", "-n", "2"]), 0);
    let bench = [
        "bench",
        "--ranks",
        "2",
        "--iterations",
        "1",
        "--operation",
        "barrier",
    ];
    assert_eq!(main(&bench), 0);
    // A verb that runs on a thread of its own.
    assert_eq!(main(&["doctor", directory]), 0);
}
