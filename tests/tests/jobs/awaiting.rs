//! Calls that are awaited.

use std::{
    fs,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    thread,
};

use crate::common::{
    PEER_FAILED, Stage, TIMED_OUT, World, assert_nothing_left, everybody, name_of, payloads, place,
};
use fsgather::Communicator;
use rustix::process::Signal;

const EXECUTORS: [&str; 3] = ["current", "multi", "pollster"];

#[test]
fn several_calls_are_awaited_together_by_any_executor() {
    for transport in ["filesys", "memory"] {
        let place = place();
        let world = World::new(3, place.path()).with("FSGATHER_TRANSPORT", transport);
        let mut stage = Stage::new();
        stage.start_all(&world, |_| {
            let steps = EXECUTORS.map(|executor| format!("await:{executor}:200000*"));
            format!("join {} close", steps.join(" "))
        });
        stage.succeed(everybody(3));
        assert_nothing_left(place.path());
    }
}

#[test]
fn a_future_that_is_dropped_half_way_neither_blocks_nor_leaves_anything() {
    for executor in EXECUTORS {
        let place = place();
        let mut stage = Stage::new();
        stage.start_all(&World::new(2, place.path()), |rank| match rank {
            0 => format!("join unawaited:{executor} at:given-up barrier close"),
            _ => "join at:late start_all_gather:300000 wait:0 barrier close".into(),
        });
        stage.wait_at([1], "late");
        stage.wait_for(0, "dropped");
        stage.wait_at([0], "given-up");
        stage.go_all([0, 1]);
        stage.wait_until("payloads to go", || payloads(place.path()) == 0);
        stage.succeed(everybody(2));
        assert_nothing_left(place.path());
    }
}

#[test]
fn one_thread_waits_for_all_calls_that_are_awaited() {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&World::new(2, place.path()), |rank| match rank {
        0 => "join await_many:50 at:done close".into(),
        _ => "join at:late await_many:50 close".into(),
    });
    stage.wait_at([1], "late");
    stage.wait_at([0], "awaiting");
    let process = stage.pid(0);
    // A thread gives itself its name, once it runs.
    stage.wait_until("the thread to begin", || waiting_threads(process) > 0);
    assert_eq!(waiting_threads(process), 1);
    stage.go_all([0, 1]);
    stage.wait_at([1], "awaiting");
    stage.go_all([1]);
    stage.wait_at([0], "done");
    stage.wait_until("the thread to end", || waiting_threads(process) == 0);
    stage.go_all([0]);
    stage.succeed(everybody(2));
}

#[test]
fn awaited_calls_that_fail_together_are_told_together() {
    let place = place();
    let mut stage = Stage::new();
    let world = World::new(2, place.path()).with("FSGATHER_TIMEOUT", "10s");
    stage.start_all(&world, |rank| match rank {
        // Half a second for each would be longer than a test may take.
        0 => "join await_many:400 close".into(),
        _ => "join at:late close".into(),
    });
    stage.wait_at([1], "late");
    stage.wait_at([0], "awaiting");
    stage.signal(1, Signal::STOP);
    stage.go_all([0]);
    let end = stage.end(0);
    assert_eq!(end.code, TIMED_OUT, "{end:?}");
}

#[test]
fn calls_of_ranks_that_are_threads_are_awaited_together() {
    let act = |rank: Communicator| {
        let mut context = Context::from_waker(Waker::noop());
        // All are polled before any is waited for.
        let mut poll = |call: u32| {
            let mut pending = rank.start_all_gather(&call).unwrap();
            (Pin::new(&mut pending).poll(&mut context), pending)
        };
        let polled: Vec<_> = (0..50).map(&mut poll).collect();
        for (call, (polled, pending)) in (0..).zip(polled) {
            let result = match polled {
                Poll::Ready(result) => result,
                Poll::Pending => pollster::block_on(pending),
            };
            assert_eq!(result, Ok(vec![call; 2]));
        }
    };
    thread::scope(|scope| {
        for rank in Communicator::threads(2).unwrap() {
            scope.spawn(move || act(rank));
        }
    });
}

/// How many threads of a process wait for calls that are awaited.
fn waiting_threads(process: u32) -> usize {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    let names = threads
        .into_iter()
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "fsgather-await").count()
}

#[test]
fn what_goes_wrong_is_told_to_those_who_await() {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&World::new(3, place.path()), |rank| match rank {
        1 => "join at:gone".into(),
        _ => "join at:ready await:current:1000".into(),
    });
    stage.wait_at([1], "gone");
    stage.wait_at([0, 2], "ready");
    stage.go_all([0, 2]);
    stage.kill(1);
    let (error, _) = stage.fail_alike([0, 2], PEER_FAILED);
    assert!(error.contains(&name_of(1, stage.pid(1))), "{error}");
}
