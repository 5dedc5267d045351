//! Blocking calls inside of the caller's tokio runtime: [`step_aside`].

use std::task::{Context, Waker};

use fsgather_core::Error;
use fsgather_core::stacks::Caller;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::coop,
};

/// Runs a call that blocks, so that it neither panics nor starves a tokio runtime it is made in.
///
/// On a multi-thread runtime other tasks move to another thread meanwhile. On the one thread of a current-thread
/// runtime nothing else could run, perhaps not even the task that the call waits for, so the call is refused. Threads
/// of a runtime for blocking calls are like any other thread.
pub(crate) fn step_aside<R>(call: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    // Reports to waiting ranks show the stack of this thread.
    let _caller = Caller::enter();
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Err(_) => call(),
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(call),
        Ok(_) if !is_in_a_task() => call(),
        Ok(_) => Err(Error::config(
            "this call blocks, and the current-thread tokio runtime it was made in would stand still; \
             wrap it in tokio::task::spawn_blocking",
        )),
    }
}

/// Returns true if a runtime is running a task on this thread, rather than a blocking call.
///
/// Only tasks have a budget, so that they yield to each other now and then. The only effect of this check is that a
/// task without budget yields at its next opportunity.
fn is_in_a_task() -> bool {
    /// More than the budget of any task.
    const STEPS: u32 = 1024;
    let mut context = Context::from_waker(Waker::noop());
    (0..STEPS).any(|_| {
        let step = coop::poll_proceed(&mut context).map(|step| step.made_progress());
        step.is_pending()
    })
}

/// Runs the end of a communicator on any thread that drops it, even if blocking is not allowed there.
pub(crate) fn wherever(end: impl FnOnce() + Send) {
    if Handle::try_current().is_err() {
        return end();
    }
    std::thread::scope(|scope| {
        let ended = std::thread::Builder::new().spawn_scoped(scope, end);
        if let Err(error) = ended {
            tracing::debug!("a communicator was not left in good order: {error}");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_inside_runtimes_neither_panic_nor_starve() {
        assert_eq!(step_aside(|| Ok(1)), Ok(1));
        let multi = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        assert_eq!(multi.block_on(async { step_aside(|| Ok(2)) }), Ok(2));
        let single = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let refused = single.block_on(async { step_aside(|| Ok(3)) });
        assert!(matches!(refused, Err(Error::Config { .. })));
        let refused = single.block_on(async {
            let task = tokio::spawn(async { [step_aside(|| Ok(4)), step_aside(|| Ok(5))] });
            task.await.unwrap()
        });
        for refused in refused {
            assert!(matches!(refused, Err(Error::Config { .. })));
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "it is what users do")]
    fn calls_on_threads_for_blocking_calls_are_made() {
        for runtime in [
            tokio::runtime::Builder::new_current_thread().build(),
            tokio::runtime::Builder::new_multi_thread().build(),
        ] {
            let runtime = runtime.unwrap();
            let made = runtime.block_on(async {
                let blocking = tokio::task::spawn_blocking(|| step_aside(|| Ok(1)));
                blocking.await.unwrap()
            });
            assert_eq!(made, Ok(1));
            // A thread that only knows a runtime, and does not run it.
            let _entered = runtime.enter();
            assert_eq!(step_aside(|| Ok(2)), Ok(2));
        }
    }
}
