//! Tests the forwarding of output by `fsgather run`, with real processes.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "functions that tests share fail them in the same way"
)]

mod common;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    process::Stdio,
};

use common::{finish, fsgather, pid, run_script, start};
use fsgather_testkit::process;
use rustix::process::{Signal, kill_process};

#[test]
fn lines_of_many_ranks_stay_whole() {
    let script =
        "i=0; while [ $i -lt 100 ]; do printf 'left '; printf 'right\\n'; i=$((i+1)); done";
    let done = finish(&mut run_script(11, &[], script));
    assert_eq!(done.code, Some(0));
    let mut expected = Vec::new();
    for rank in 0..11 {
        expected.extend(std::iter::repeat_n(format!("[{rank:>2}] left right"), 100));
    }
    let mut lines = done.lines();
    lines.sort();
    assert_eq!(lines, expected);
}

#[test]
fn streams_stay_apart_and_last_lines_are_completed() {
    let done = finish(&mut run_script(
        2,
        &[],
        "printf out; printf \"err $RANK\" >&2",
    ));
    let mut out = done.lines();
    out.sort();
    assert_eq!(out, ["[0] out", "[1] out"]);
    let mut err: Vec<&str> = done.stderr.lines().collect();
    err.sort_unstable();
    assert_eq!(err, ["[0] err 0", "[1] err 1"]);
}

#[test]
fn bytes_that_are_no_text_pass() {
    let done = finish(&mut run_script(1, &[], r"printf '\377\200\0x\n'"));
    assert_eq!(done.stdout, b"[0] \xff\x80\0x\n");
}

#[test]
fn a_very_long_line_comes_in_pieces() {
    let script = "head -c 200000 /dev/zero | tr '\\0' x; echo; echo end";
    let done = finish(&mut run_script(1, &[], script));
    let lengths: Vec<usize> = done.lines_of(0).iter().map(String::len).collect();
    assert_eq!(lengths, [65536, 65536, 65536, 200_000 - 3 * 65536, 3]);
}

#[test]
fn without_prefix_bytes_pass_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bytes");
    let bytes: Vec<u8> = (0..1_000_000_u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    fs::write(&path, &bytes).unwrap();
    let mut command = fsgather(&["run", "-n", "1", "--no-prefix", "--", "cat"]);
    let output = process::output(command.arg(&path)).unwrap();
    assert!(output.status.success());
    assert!(output.stdout == bytes, "{} bytes", output.stdout.len());
}

#[test]
fn when_the_reader_goes_away_the_ranks_are_ended() {
    let mut command = run_script(2, &[], "echo pid $$ >&2; exec yes");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = process::spawn(&mut command).unwrap();
    let mut some = [0; 100];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut some).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(141));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("fsgather run: ending ranks 0 1 with SIGTERM"),
        "{said}"
    );
}

#[test]
fn a_prompt_is_seen_before_its_answer() {
    for (options, prompt) in [(&["--no-prefix"][..], "ok? "), (&[], "[0] ok? ")] {
        let script = "printf 'ok? '; read answer; echo got $answer";
        let mut command = run_script(1, options, script);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = process::spawn(&mut command).unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut seen = vec![0; prompt.len()];
        stdout.read_exact(&mut seen).unwrap();
        assert_eq!(String::from_utf8(seen).unwrap(), prompt);
        child.stdin.take().unwrap().write_all(b"yes\n").unwrap();
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "got yes\n");
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_stalled_reader_of_standard_output_hides_no_line() {
    // More than fits into the pipe, but not more than the rank can write.
    let script = "head -c 100000 /dev/zero; exit 3";
    let options = ["--no-prefix", "--kill-after", "1s"];
    let mut command = run_script(1, &options, script);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = process::spawn(&mut command).unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    for text in [
        "rank 0 (pid ",
        "their output has not: it is not being read",
        "waiting for the reader of their output",
    ] {
        let line = lines.next().unwrap().unwrap();
        assert!(line.contains(text), "{line}");
    }
    let mut stdout = Vec::new();
    let mut source = child.stdout.take().unwrap();
    source.read_to_end(&mut stdout).unwrap();
    assert_eq!(stdout.len(), 100_000);
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn a_daemon_that_holds_the_output_is_reported() {
    let script = "setsid sh -c 'echo daemon $$; exec sleep 1000' & cat";
    let mut command = run_script(1, &["--kill-after", "2s"], script);
    let mut running = start(command.stdin(Stdio::piped()));
    let daemon = running.wait_for("daemon ");
    running.close_input();
    running.wait_for("processes that they started hold it open; waiting for 1 s more");
    let done = running.finish();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let (_, daemon) = daemon.split_once("daemon ").unwrap();
    kill_process(pid(daemon.parse().unwrap()), Signal::KILL).unwrap();
}
