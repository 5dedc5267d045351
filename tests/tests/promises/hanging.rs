//! Errors name the system call that a missing rank waits in.

use fsgather_testkit::pace::cases;
use rustix::process::Signal;

use crate::common::{Stage, World, place};

/// Carriers of messages.
const CONTROLS: [&str; 2] = ["tcp", "markers"];

/// Time-outs of the call in milliseconds. A rank has at most half of that time to report its activity, and a busy machine may need longer
/// or another attempt.
const TIMEOUTS: [u32; 5] = [1000, 4000, 4000, 8000, 16_000];

/// Returns the first line about rank 1 that is as expected, in jobs with longer and longer time-outs; otherwise the last line.
fn first_line(control: &str, is_stopped: bool, is_expected: impl Fn(&str) -> bool) -> String {
    let mut line = String::new();
    for timeout in TIMEOUTS {
        let place = place();
        let world = World::new(2, place.path()).with("FSGATHER_CONTROL", control);
        line = line_about_rank_1(&world, timeout, is_stopped);
        if is_expected(&line) {
            break;
        }
    }
    line
}

/// Returns the line about rank 1 in the error of rank 0. Rank 1 waits in its program, or is stopped, until the call has timed out.
fn line_about_rank_1(world: &World, timeout: u32, is_stopped: bool) -> String {
    let mut stage = Stage::new();
    let script = format!("join barrier at:here timed_barrier:{timeout}");
    stage.start_all(world, |_| script.clone());
    stage.wait_at([0, 1], "here");
    if is_stopped {
        stage.signal(1, Signal::STOP);
    }
    stage.go(0);
    let end = stage.end(0);
    if is_stopped {
        stage.signal(1, Signal::CONT);
    }
    stage.go(1);
    let other = stage.end(1);
    let line = |stderr: &[String]| {
        let line = stderr
            .iter()
            .find_map(|line| line.strip_prefix("  rank 1: "));
        line.map(str::to_owned).unwrap_or_default()
    };
    assert_eq!(end.error(), other.error(), "{}", stage.transcript());
    assert_eq!(line(&end.stderr), line(&other.stderr));
    line(&end.stderr)
}

#[test]
fn errors_name_the_system_call_of_a_waiting_rank() {
    let expected = "waiting, in read on a pipe";
    for control in &CONTROLS[..cases(1, 2)] {
        let line = first_line(control, false, |line| line == expected);
        assert_eq!(line, expected, "{control}");
    }
}

#[test]
fn errors_say_that_a_rank_is_stopped() {
    let expected = "does not answer; its process is stopped";
    for control in &CONTROLS[..cases(1, 2)] {
        let line = first_line(control, true, |line| line == expected);
        assert_eq!(line, expected, "{control}");
    }
}

#[test]
fn errors_have_no_stacks_if_rank_0_does_not_ask() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_STACKS", "0");
    assert_eq!(line_about_rank_1(&world, 1000, false), "");
}
