//! Steps in which calls are awaited, by different executors.
#![expect(clippy::panic, reason = "a wrong script has to be mended")]

use std::{
    fs,
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use fsgather::Communicator;
use tokio::runtime;

use crate::{
    Failure, say, stop_at,
    values::{check_values, check_values_of, receive, value},
};

/// Runs a future by the executor that a script names.
fn run<F: Future>(executor: &str, future: F) -> F::Output {
    let runtime = match executor {
        "current" => runtime::Builder::new_current_thread().build(),
        "multi" => runtime::Builder::new_multi_thread().build(),
        "pollster" => return pollster::block_on(future),
        _ => panic!("no such executor: {executor}"),
    };
    runtime
        .unwrap_or_else(|error| panic!("{error}"))
        .block_on(future)
}

/// Takes one of these steps.
pub(crate) fn take(communicator: &Communicator, words: &[&str]) -> Result<(), Failure> {
    match words {
        ["await", executor, len] => join(communicator, executor, len),
        ["await_many", count] => many(communicator, count),
        ["unawaited", executor] => give_up(communicator, executor),
        _ => panic!("no such step: {}", words.join(":")),
    }
}

/// Several calls that are awaited together.
fn join(communicator: &Communicator, executor: &str, len: &str) -> Result<(), Failure> {
    let me = communicator.rank().get();
    let ranks = communicator.world_size().get();
    let own = value(me, len);
    let first = communicator.start_all_gather(&own)?;
    let second = communicator.start_gather(&own, ranks - 1)?;
    let small = communicator.start_all_gather(&value(me, "10"))?;
    let (small, second, first) = run(executor, async { tokio::join!(small, second, first) });
    check_values(ranks, &first?, len)?;
    receive(second?, "", |rank, value| {
        check_values_of(rank, &value, len)
    })?;
    check_values(ranks, &small?, "10")
}

/// Calls that are all polled before others have come to any of them.
fn many(communicator: &Communicator, count: &str) -> Result<(), Failure> {
    let count: u64 = count.parse().unwrap_or_else(|error| panic!("{error}"));
    let me = u64::from(communicator.rank().get());
    let mut calls = (0..count)
        .map(|call| communicator.start_all_gather(&(me, call)))
        .collect::<Result<Vec<_>, _>>()?;
    let mut context = Context::from_waker(Waker::noop());
    let polled: Vec<_> = calls
        .iter_mut()
        .map(|call| Pin::new(call).poll(&mut context))
        .collect();
    stop_at("awaiting");
    // All of them, also where the first has failed.
    let results: Vec<_> = calls
        .into_iter()
        .zip(polled)
        .map(|(call, polled)| match polled {
            Poll::Ready(result) => result,
            Poll::Pending => pollster::block_on(call),
        })
        .collect();
    for (number, result) in (0..).zip(results) {
        let got = result?;
        let ranks = u64::from(communicator.world_size().get());
        if !got.into_iter().eq((0..ranks).map(|rank| (rank, number))) {
            return Err(Failure::Wrong(format!(
                "call {number} brought something else"
            )));
        }
    }
    Ok(())
}

/// A call that nobody awaits any more, before all others have come.
fn give_up(communicator: &Communicator, executor: &str) -> Result<(), Failure> {
    let own = value(communicator.rank().get(), "300000");
    let mut started = communicator.start_all_gather(&own)?;
    run(executor, async {
        let has_come =
            poll_fn(|context| Poll::Ready(Pin::new(&mut started).poll(context).is_ready()));
        if has_come.await {
            return Err(Failure::Wrong("it has come early".into()));
        }
        drop(started);
        say("dropped");
        Ok(())
    })?;
    // The thread that waited has nothing to wait for any more.
    let began = Instant::now();
    while is_waited_for() {
        if began.elapsed() > Duration::from_secs(5) {
            return Err(Failure::Wrong("somebody still waits".into()));
        }
        thread::park_timeout(Duration::from_millis(5));
    }
    Ok(())
}

/// Whether a thread of this process waits for a call that is awaited.
fn is_waited_for() -> bool {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    let mut names = threads
        .filter_map(Result::ok)
        .filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    names.any(|name| name.trim() == "fsgather-await")
}
