//! Steps in which calls are awaited, by different executors.
#![expect(clippy::panic, reason = "a wrong script has to be mended")]

use std::{
    fs,
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use fsgather::Communicator;
use tokio::runtime;

use crate::{
    Failure, say,
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

/// Several calls that are awaited together.
pub(crate) fn join(communicator: &Communicator, executor: &str, len: &str) -> Result<(), Failure> {
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

/// A call that nobody awaits any more, before all others have come.
pub(crate) fn give_up(communicator: &Communicator, executor: &str) -> Result<(), Failure> {
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
