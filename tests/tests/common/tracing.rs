//! Last calls of ranks, and the output of `ps` and `trace` about them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use fsgather_testkit::process;
use serde_json::Value;

use super::{Stage, World, build::command_line_tool};

/// The command with these arguments and a directory.
pub(crate) fn tool(arguments: &[&str], directory: &Path) -> Command {
    let mut command = Command::new(command_line_tool());
    command
        .args(arguments)
        .arg(directory)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// Returns the standard output of the command.
pub(crate) fn said(arguments: &[&str], directory: &Path) -> String {
    let output = process::output(&mut tool(arguments, directory)).expect("a program");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the document that the command prints.
pub(crate) fn document(arguments: &[&str], directory: &Path) -> Value {
    serde_json::from_str(&said(arguments, directory)).expect("JSON")
}

/// Returns the files with last calls in a directory.
pub(crate) fn calls_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.join("all_gather_via_filesys")).expect("a directory");
    let mut calls: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.to_string_lossy().contains("/calls-"))
        .collect();
    calls.sort();
    calls
}

/// Starts a world of three ranks, in which rank 1 waits in its program between two barriers.
pub(crate) fn with_one_late(stage: &mut Stage, world: &World) {
    for rank in 0..3 {
        let script = if rank == 1 {
            "join barrier all_gather_bytes:5000 at:here barrier close"
        } else {
            "join barrier all_gather_bytes:5000 barrier close"
        };
        stage.start(&mut world.rank(rank, script));
    }
    stage.wait_at([1], "here");
}

/// Waits until two ranks wait in this call.
pub(crate) fn wait_for_two_in(stage: &mut Stage, directory: &Path, call: &str) {
    let waits = |rank: &&Value| rank["doing"] == "waiting" && rank["call"]["name"] == call;
    stage.wait_until("two ranks that wait", || {
        let seen = document(&["ps", "--json"], directory);
        let ranks = seen["jobs"][0]["ranks"].as_array();
        ranks.is_some_and(|ranks| ranks.iter().filter(waits).count() == 2)
    });
}
