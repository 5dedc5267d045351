//! A rank that does not come is told with the function and the system call that it waits in, in any language.

use crate::common::{Stage, World, double_mount::DoubleMount, place, within};
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
fn all_are_told_the_function_and_the_system_call_that_a_rank_waits_in() {
    for control in ["tcp", "markers"] {
        let place = place();
        let told = told_of_rank_1(&world(control, place.path()), false);
        let expected = within("rank::stop_at", "waiting, in read on a pipe");
        assert_eq!(told.trim_end_matches(')'), expected, "{control}");
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
fn a_rank_that_is_in_a_call_of_a_group_is_told_with_that_call() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_TIMEOUT", "3s");
    let mut stage = Stage::new();
    stage.start(&mut world.rank(0, "join barrier barrier barrier"));
    stage.start(&mut world.rank(1, "join barrier barrier group:1,2 barrier"));
    stage.start(&mut world.rank(2, "join barrier barrier group:1,2 at:here"));
    let end = stage.end(0);
    let names_it = |line: &str| {
        line.contains("rank 1 on ")
            && line.contains(", last known waiting for the others in barrier #1 at ")
    };
    assert!(names_it(end.error()), "{}", stage.transcript());
    let barrier = "fsgather::communicator::Communicator<C>::barrier, called from rank::calls::call";
    let call = format!("  rank 1: {}", within(barrier, "waiting, in "));
    let mut lines = end.stderr.iter();
    assert!(
        lines.any(|line| line.starts_with(&call)),
        "{}",
        stage.transcript()
    );
    stage.end_input(2);
}

#[test]
fn a_rank_whose_file_server_hangs_is_told_with_the_file() {
    let Some(mount) = DoubleMount::new() else {
        return;
    };
    for control in ["tcp", "markers"] {
        let file = mount.directory().join("data.h5");
        std::fs::write(mount.behind().join("data.h5"), "data").expect("a file");
        mount.rules(2, "read data.h5 hang");
        let world = mount
            .world()
            .with("FSGATHER_TIMEOUT", "3s")
            .with("FSGATHER_CONTROL", control);
        let mut stage = Stage::new();
        let steps = format!("join barrier read:{} barrier", file.display());
        stage.start(&mut mount.rank(&world, 0, "join barrier barrier"));
        stage.start(&mut mount.rank(&world, 1, &steps));
        let end = stage.end(0);
        mount.rules(2, "");
        let late = stage.end(1);
        assert_eq!(late.error(), end.error(), "{}", stage.transcript());
        let told = format!("in read on {}", file.display());
        let begin = format!("  rank 1: {}", within("rank::read", "waiting, "));
        let mut lines = end.stderr.iter();
        assert!(
            lines.any(|line| line.starts_with(&begin) && line.contains(&told)),
            "{}",
            stage.transcript()
        );
    }
}

#[test]
fn nothing_is_told_where_rank_0_does_not_ask() {
    let place = place();
    let world = world("tcp", place.path()).with("FSGATHER_STACKS", "0");
    assert_eq!(told_of_rank_1(&world, false), "");
}
