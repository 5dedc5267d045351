//! Tasks of a runtime whose panics are reported: [`TaskOwner`], [`spawn`] for tasks that tasks start, and [`wake`].

use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use fsgather_core::BackgroundThreads;
use tokio::task::{JoinHandle, futures::TaskLocalFuture};

tokio::task_local! {
    static OWNER: TaskOwner;
}

/// The world of the tasks of one runtime, and the name of the thread that runs it.
#[derive(Clone)]
pub(crate) struct TaskOwner {
    threads: BackgroundThreads,
    name: Arc<str>,
}

impl TaskOwner {
    pub(crate) fn new(threads: BackgroundThreads, name: &str) -> Self {
        Self {
            threads,
            name: name.into(),
        }
    }

    /// Reports a panic.
    pub(crate) fn report(&self, panic: &(dyn Any + Send)) {
        self.threads.report(&self.name, panic);
    }

    /// The reason that other ranks receive for a panic.
    pub(crate) fn describe(&self, panic: &(dyn Any + Send)) -> String {
        BackgroundThreads::describe(&self.name, panic)
    }

    /// Runs a future whose tasks are those of this owner.
    pub(crate) fn own<F: Future>(&self, future: F) -> TaskLocalFuture<Self, F> {
        OWNER.scope(self.clone(), future)
    }

    /// Runs a task, and reports its panic.
    pub(crate) async fn run(self, task: impl Future<Output = ()>) {
        if let Err(panic) = caught(self.own(task)).await {
            self.report(&*panic);
        }
    }
}

/// Starts a task that belongs to the owner of the current one.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    match OWNER.try_with(Clone::clone) {
        Ok(owner) => tokio::spawn(owner.run(task)),
        Err(_) => tokio::spawn(task),
    }
}

/// Wakes tasks, or the thread that runs them, and returns the panic of a runtime whose descriptors the program has closed. Threads
/// that do not run it leave the report to the one that does.
pub(crate) fn wake<R>(wakes: impl FnOnce() -> R) -> Result<R, Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(wakes))
}

/// Runs a future, and returns its panic.
pub(crate) async fn caught<F: Future>(future: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use fsgather_core::Interrupt;

    use super::*;

    #[test]
    fn panic_of_a_nested_task_raises_the_switch_of_its_owner() {
        let interrupt = Interrupt::default();
        let owner = TaskOwner::new(BackgroundThreads::new(interrupt.clone()), "test");
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let task = owner.run(async {
            let inner = spawn(async { drop(spawn(async { panic!("on purpose") }).await) });
            drop(inner.await);
        });
        runtime.unwrap().block_on(task);
        let reason = "its thread test has panicked: on purpose";
        assert_eq!(interrupt.reason().as_deref(), Some(reason));
    }
}
