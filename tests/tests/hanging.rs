//! A rank that does not come is told with the system call that it waits in, where it is no Python.

mod common;

use common::{Stage, World, place};
use rustix::process::Signal;

/// What rank 0 is told of rank 1, which stands still in its program or was stopped.
fn told_of_rank_1(world: &World, stopped: bool) -> String {
    let mut stage = Stage::new();
    stage.start(&mut world.rank(0, "join barrier barrier"));
    stage.start(&mut world.rank(1, "join barrier at:here barrier"));
    stage.wait_at([1], "here");
    if stopped {
        stage.signal(1, Signal::STOP);
    }
    let end = stage.end_all([0]).remove(0);
    if stopped {
        stage.signal(1, Signal::CONT);
    }
    stage.go(1);
    let other = stage.end_all([1]).remove(0);
    let line = |stderr: &[String]| {
        let told = stderr
            .iter()
            .find_map(|line| line.strip_prefix("  rank 1: "));
        told.map(str::to_owned).unwrap_or_default()
    };
    assert_eq!(end.error(), other.error(), "{}", stage.transcript());
    assert_eq!(line(&end.stderr), line(&other.stderr));
    line(&end.stderr)
}

fn world(control: &str, directory: &std::path::Path) -> World {
    World::new(2, directory)
        .with("FSGATHER_TIMEOUT", "3s")
        .with("FSGATHER_CONTROL", control)
}

#[test]
fn all_are_told_the_system_call_that_a_rank_waits_in() {
    for control in ["tcp", "markers"] {
        let place = place();
        let told = told_of_rank_1(&world(control, place.path()), false);
        assert_eq!(told, "waiting, in read on a pipe", "{control}");
    }
}

#[test]
fn a_rank_that_is_stopped_is_told_as_such_by_its_neighbour() {
    for control in ["tcp", "markers"] {
        let place = place();
        let told = told_of_rank_1(&world(control, place.path()), true);
        assert_eq!(told, "does not answer; its process is stopped", "{control}");
    }
}

#[test]
fn nothing_is_told_where_rank_0_does_not_ask() {
    let place = place();
    let world = world("tcp", place.path()).with("FSGATHER_STACKS", "0");
    assert_eq!(told_of_rank_1(&world, false), "");
}
