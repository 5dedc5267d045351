//! Decides which thread does the work of the control plane: [`CallerRuntime`].
//!
//! All sockets belong to one single-threaded runtime, and whoever waits for a verdict runs it: a call
//! sends, receives and returns without ever changing threads. Several callers at once share it (one
//! runs it, the others are woken by it; when it leaves, another goes on). Between calls a progress
//! thread runs it, so that losses are noticed and other ranks are answered while the user computes.
//!
//! The progress thread must not be in the way of back-to-back calls: it looks only every
//! [`IDLE_FOR`] whether there were callers, and takes over when there were none for that long. A caller
//! that arrives asks it to leave, and it does so at once.

use std::{
    future::Future,
    ops::Deref,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use fsgather_core::Interrupt;
use tokio::{runtime::Runtime, sync::Notify};

/// How long the runtime must have been without a caller before the progress thread runs it.
const IDLE_FOR: Duration = Duration::from_millis(20);

struct RuntimeState {
    runtime: Background,
    /// Callers in the runtime now.
    callers: AtomicUsize,
    /// Callers that ever waited in it.
    arrivals: AtomicUsize,
    /// Whether the progress thread runs the runtime now.
    resting: AtomicBool,
    /// Told when a caller arrives while it does.
    arrived: Notify,
    stopping: AtomicBool,
    /// Whether running it has panicked.
    broken: AtomicBool,
}

/// The runtime, and the right to run it.
pub(crate) struct CallerRuntime {
    shared: Arc<RuntimeState>,
    /// Wakes the progress thread; dropping it, for good.
    wake: Option<mpsc::Sender<()>>,
    progress: Option<JoinHandle<()>>,
}

impl CallerRuntime {
    /// Starts the progress thread around a runtime.
    pub(crate) fn new(runtime: Runtime, name: String) -> std::io::Result<Self> {
        Self::with_idle_time(runtime, name, IDLE_FOR)
    }

    fn with_idle_time(runtime: Runtime, name: String, idle_for: Duration) -> std::io::Result<Self> {
        let shared = Arc::new(RuntimeState {
            runtime: Background(Some(runtime)),
            callers: AtomicUsize::new(0),
            arrivals: AtomicUsize::new(0),
            resting: AtomicBool::new(false),
            arrived: Notify::new(),
            stopping: AtomicBool::new(false),
            broken: AtomicBool::new(false),
        });
        let (wake, woken) = mpsc::channel();
        let its = Arc::clone(&shared);
        let progress = std::thread::Builder::new()
            .name(name)
            .spawn(move || its.rest_between_calls(&woken, idle_for))?;
        Ok(Self {
            shared,
            wake: Some(wake),
            progress: Some(progress),
        })
    }

    /// Runs the runtime until `future` is done.
    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        self.shared.arrivals.fetch_add(1, Ordering::Relaxed);
        self.visit(future)
    }

    /// Does something inside of the runtime. Tasks do not get on by that, so it keeps the progress thread away no longer than it
    /// takes: whoever does nothing else, however often, is heard and hears.
    pub(crate) fn run_at_once<R>(&self, act: impl FnOnce() -> R) -> R {
        self.visit(async { act() })
    }

    fn visit<F: Future>(&self, future: F) -> F::Output {
        let shared = &self.shared;
        shared.callers.fetch_add(1, Ordering::SeqCst);
        if shared.resting.load(Ordering::SeqCst) {
            shared.arrived.notify_one();
        }
        let output = shared.block_on(future);
        shared.callers.fetch_sub(1, Ordering::SeqCst);
        output
    }

    /// The same; now and then this thread asks, outside of the runtime, whether it is to end. It is over
    /// only when `future` is.
    pub(crate) fn run_asking<F: Future>(&self, future: F, interrupt: &Interrupt) -> F::Output {
        if !interrupt.is_polled() {
            return self.run(future);
        }
        let mut future = pin!(future);
        loop {
            let slice =
                async { tokio::time::timeout(Interrupt::POLL_EVERY, future.as_mut()).await };
            if let Ok(output) = self.run(slice) {
                return output;
            }
            interrupt.poll();
        }
    }

    /// Has the progress thread run the runtime now rather than soon, if nobody else does.
    pub(crate) fn nudge(&self) {
        if let Some(wake) = &self.wake {
            // It is there for as long as this is.
            let _ = wake.send(());
        }
    }

    /// Starts a task that runs whenever somebody runs the runtime.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.shared.runtime.spawn(task);
    }
}

impl RuntimeState {
    /// Runs the runtime. A panic of it, as after the program has closed its descriptors, is passed on to this caller and to all later ones:
    /// the runtime has lost its driver, and would keep them waiting for ever.
    fn block_on<F: Future>(&self, future: F) -> F::Output {
        if self.broken.load(Ordering::SeqCst) {
            resume_unwind(Box::new(
                "the connections of this process have failed before",
            ));
        }
        let ran = catch_unwind(AssertUnwindSafe(|| self.runtime.block_on(future)));
        ran.unwrap_or_else(|panic| {
            self.broken.store(true, Ordering::SeqCst);
            resume_unwind(panic)
        })
    }

    fn rest_between_calls(&self, woken: &mpsc::Receiver<()>, idle_for: Duration) {
        loop {
            let before = self.arrivals.load(Ordering::Relaxed);
            let quiet = match woken.recv_timeout(idle_for) {
                Ok(()) => true,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    self.arrivals.load(Ordering::Relaxed) == before
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            };
            if quiet && self.callers.load(Ordering::SeqCst) == 0 {
                // Several callers may have asked this thread to leave at once: what is left of that is not meant now.
                pin!(self.arrived.notified()).enable();
                self.resting.store(true, Ordering::SeqCst);
                // A caller may have come between the look and the flag; it would not know of us.
                if self.callers.load(Ordering::SeqCst) == 0 && !self.stopping.load(Ordering::SeqCst)
                {
                    self.block_on(self.arrived.notified());
                }
                self.resting.store(false, Ordering::SeqCst);
            }
        }
    }
}

impl Drop for CallerRuntime {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        drop(self.wake.take());
        self.shared.arrived.notify_one();
        if let Some(progress) = self.progress.take() {
            // It holds nothing and waits for nothing but the two things just told to it.
            let _ = progress.join();
        }
    }
}

/// A runtime that ends without waiting.
///
/// A runtime's own drop waits for file calls that may hang, and panics inside another runtime.
struct Background(Option<Runtime>);

impl Deref for Background {
    type Target = Runtime;

    #[expect(
        clippy::expect_used,
        reason = "it is taken in drop, after which nobody can ask"
    )]
    fn deref(&self) -> &Runtime {
        self.0
            .as_ref()
            .expect("the runtime is there until it is dropped")
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use fsgather_testkit::pace::patience;
    use tokio::sync::oneshot;

    use super::*;

    fn runtime() -> CallerRuntime {
        idle_for(IDLE_FOR)
    }

    fn idle_for(idle: Duration) -> CallerRuntime {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        CallerRuntime::with_idle_time(runtime, "test".into(), idle).unwrap()
    }

    #[test]
    fn callers_after_a_panic_fail_instead_of_waiting() {
        let runtime = runtime();
        let fails = |is_lost: bool| {
            let future = async move { assert!(!is_lost, "the driver is lost") };
            catch_unwind(AssertUnwindSafe(|| runtime.run(future))).is_err()
        };
        assert!(!fails(false));
        assert!(fails(true));
        assert!(fails(false), "the runtime may have lost its driver");
        drop(runtime);
    }

    #[test]
    fn tasks_run_on_the_progress_thread_when_nobody_calls() {
        let runtime = runtime();
        let (done, wait) = mpsc::channel();
        runtime.spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            done.send(std::thread::current().name().map(str::to_owned))
                .unwrap();
        });
        let ran_by = wait.recv_timeout(patience()).unwrap();
        assert_eq!(ran_by.as_deref(), Some("test"));
    }

    #[test]
    fn a_caller_gets_the_runtime_from_a_resting_progress_thread() {
        let runtime = runtime();
        let (done, wait) = mpsc::channel();
        runtime.spawn(async move { done.send(()).unwrap() });
        wait.recv_timeout(patience()).unwrap();
        // The progress thread is inside the runtime now; the caller must run its own task all the same.
        let me = std::thread::current().id();
        let (tell, told) = oneshot::channel();
        runtime.spawn(async move {
            tokio::task::yield_now().await;
            tell.send(std::thread::current().id()).unwrap();
        });
        let by = runtime.run(async {
            // Long enough for the progress thread to have left.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let (late, wait) = oneshot::channel();
            tokio::spawn(async move {
                late.send(std::thread::current().id()).unwrap();
            });
            wait.await.unwrap()
        });
        assert_eq!(by, me);
        runtime.run(told).unwrap();
    }

    #[test]
    fn tasks_run_while_callers_come_and_go() {
        let runtime = runtime();
        let (done, wait) = mpsc::channel();
        runtime.spawn(async move { done.send(()).unwrap() });
        let mut visits = 0;
        while wait.recv_timeout(IDLE_FOR / 10).is_err() {
            runtime.run_at_once(|| ());
            visits += 1;
            assert!(visits < 5000, "after {visits} visits");
        }
    }

    #[test]
    fn nudge_runs_tasks_before_the_idle_time_is_over() {
        let runtime = idle_for(Duration::from_secs(3600));
        for _ in 0..40 {
            runtime.run(async {});
            // As of one of two callers that came at the same moment.
            runtime.shared.arrived.notify_one();
            let (done, wait) = mpsc::channel();
            runtime.spawn(async move { done.send(()).unwrap() });
            runtime.nudge();
            wait.recv_timeout(patience()).unwrap();
        }
    }

    #[test]
    fn callers_that_wait_together_all_return() {
        let runtime = Arc::new(runtime());
        let released = Arc::new(Notify::new());
        let go = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = (0..4)
            .map(|_| {
                let (runtime, released, go) = (runtime.clone(), released.clone(), go.clone());
                std::thread::spawn(move || {
                    runtime.run(async {
                        while !go.load(Ordering::SeqCst) {
                            let notified = released.notified();
                            if go.load(Ordering::SeqCst) {
                                break;
                            }
                            notified.await;
                        }
                    });
                })
            })
            .collect();
        go.store(true, Ordering::SeqCst);
        released.notify_waiters();
        for caller in callers {
            caller.join().unwrap();
        }
    }

    #[test]
    fn it_can_be_dropped_inside_another_runtime() {
        let other = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let runtime = runtime();
        other.block_on(async move { drop(runtime) });
    }
}
