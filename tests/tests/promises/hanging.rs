//! Errors name the function and the system call that a missing rank waits in, in any language.

use rustix::process::Signal;

use crate::common::{Stage, World, place, within};

/// Returns the line about rank 1 in the error of rank 0. Rank 1 waits in its program, or is stopped, until the call has timed out.
fn line_about_rank_1(world: &World, stopped: bool) -> String {
    let mut stage = Stage::new();
    stage.start_all(world, |_| "join barrier at:here timed_barrier:300".into());
    stage.wait_at([0, 1], "here");
    if stopped {
        stage.signal(1, Signal::STOP);
    }
    stage.go(0);
    let end = stage.end(0);
    if stopped {
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
fn errors_name_function_and_system_call_of_a_waiting_rank() {
    for control in ["tcp", "markers"] {
        let place = place();
        let world = World::new(2, place.path()).with("FSGATHER_CONTROL", control);
        let line = line_about_rank_1(&world, false);
        let expected = within("rank::stop_at", "waiting, in read on a pipe");
        assert_eq!(line.trim_end_matches(')'), expected, "{control}");
    }
}

#[test]
fn errors_say_that_a_rank_is_stopped() {
    for control in ["tcp", "markers"] {
        let place = place();
        let world = World::new(2, place.path()).with("FSGATHER_CONTROL", control);
        let line = line_about_rank_1(&world, true);
        assert_eq!(line, "does not answer; its process is stopped", "{control}");
    }
}

#[test]
fn errors_have_no_stacks_if_rank_0_does_not_ask() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_STACKS", "0");
    assert_eq!(line_about_rank_1(&world, false), "");
}
