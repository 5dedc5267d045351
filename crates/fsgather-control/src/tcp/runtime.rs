//! Decides which thread does the work of the control plane: [`CallerRuntime`].
//!
//! All sockets belong to one single-threaded runtime, and a thread that waits for a verdict runs it: a call sends, receives
//! and returns without ever changing threads. Several callers at once share it (one runs it, the others are woken by it;
//! when it leaves, another continues). Between calls a progress thread runs it, so that losses are noticed and other ranks
//! are answered while the user computes.
//!
//! The progress thread must not be in the way of back-to-back calls: it checks only every [`IDLE_FOR`] whether there were
//! callers, and takes over when there were none for that long. A caller that arrives asks it to leave, and it does so at
//! once.
//!
//! # Panics
//!
//! A panic of a task, of a caller's future or of the runtime itself ends the world of this rank: see [`BackgroundThreads`]. After the
//! first two the runtime continues, and carries the report to the other ranks. The third one means that the program has closed
//! descriptors that are not its own. Then no thread enters the runtime again, and it is never dropped: the numbers of its
//! descriptors may be those of other files by now.

use std::{
    any::Any,
    future::Future,
    ops::Deref,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use fsgather_core::{BackgroundThread, BackgroundThreads, Error, Interrupt, lock};
use tokio::{runtime::Runtime, sync::Notify};

use crate::{
    forked,
    tcp::tasks::{TaskOwner, caught, wake},
};

/// Time for which the runtime must have been without a caller before the progress thread runs it.
const IDLE_FOR: Duration = Duration::from_millis(20);

/// Maximum time that the end of the runtime waits for the progress thread, which may be in a task.
const STOP_LIMIT: Duration = Duration::from_secs(10);

struct RuntimeState {
    /// Absent once it has lost its driver.
    runtime: Mutex<Option<Arc<Background>>>,
    /// Wakes all callers once it is gone.
    lost: Notify,
    /// The first panic.
    failure: OnceLock<Error>,
    /// Callers in the runtime now.
    callers: AtomicUsize,
    /// Callers that ever waited in it.
    arrivals: AtomicUsize,
    /// True while the progress thread runs the runtime.
    resting: AtomicBool,
    /// Notified when a caller arrives while it does.
    arrived: Notify,
    stopping: AtomicBool,
    owner: TaskOwner,
}

/// The runtime, and the right to run it.
pub(crate) struct CallerRuntime {
    shared: Arc<RuntimeState>,
    /// Wakes the progress thread, and when dropped ends it.
    wake: Option<mpsc::Sender<()>>,
    progress: Option<BackgroundThread>,
}

impl CallerRuntime {
    /// Starts the progress thread around a runtime.
    pub(crate) fn new(
        runtime: Runtime,
        name: String,
        threads: &BackgroundThreads,
    ) -> std::io::Result<Self> {
        Self::with_idle_time(runtime, name, threads, IDLE_FOR)
    }

    fn with_idle_time(
        runtime: Runtime,
        name: String,
        threads: &BackgroundThreads,
        idle_for: Duration,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(RuntimeState {
            runtime: Mutex::new(Some(Arc::new(Background(Some(runtime))))),
            lost: Notify::new(),
            failure: OnceLock::new(),
            callers: AtomicUsize::new(0),
            arrivals: AtomicUsize::new(0),
            resting: AtomicBool::new(false),
            arrived: Notify::new(),
            stopping: AtomicBool::new(false),
            owner: TaskOwner::new(threads.clone(), &name),
        });
        let (wake, woken) = mpsc::channel();
        let its = Arc::clone(&shared);
        let progress = threads.start(name, move || {
            its.rest_between_calls(&woken, idle_for);
        })?;
        Ok(Self {
            shared,
            wake: Some(wake),
            progress: Some(progress),
        })
    }

    /// Runs the runtime until `future` is done.
    ///
    /// # Errors
    ///
    /// After a panic.
    pub(crate) fn run<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        self.shared.arrivals.fetch_add(1, Ordering::Relaxed);
        self.visit(future)
    }

    /// Runs a function inside of the runtime. Tasks make no progress by that, so it keeps the progress thread away no
    /// longer than it takes: messages still move if a caller does nothing else, however often.
    ///
    /// # Errors
    ///
    /// After a panic.
    pub(crate) fn run_at_once<R>(&self, act: impl FnOnce() -> R) -> Result<R, Error> {
        self.visit(async { act() })
    }

    fn visit<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        let shared = &self.shared;
        shared.callers.fetch_add(1, Ordering::SeqCst);
        let woken = if shared.resting.load(Ordering::SeqCst) {
            wake(|| shared.arrived.notify_one())
        } else {
            Ok(())
        };
        let output = match woken {
            Ok(()) => shared.block_on(future),
            Err(panic) => Err(shared.lose(&*panic)),
        };
        shared.callers.fetch_sub(1, Ordering::SeqCst);
        output
    }

    /// Runs the runtime until `future` is done; now and then this thread polls, outside of the runtime, whether it must
    /// end. It returns only when `future` is done.
    pub(crate) fn run_asking<F: Future>(
        &self,
        future: F,
        interrupt: &Interrupt,
    ) -> Result<F::Output, Error> {
        if !interrupt.is_polled() {
            return self.run(future);
        }
        let mut future = pin!(future);
        loop {
            let slice =
                async { tokio::time::timeout(Interrupt::POLL_EVERY, future.as_mut()).await };
            if let Ok(output) = self.run(slice)? {
                return Ok(output);
            }
            interrupt.poll();
        }
    }

    /// Lets the progress thread run the runtime now rather than soon, if no other thread does.
    pub(crate) fn nudge(&self) {
        if let Some(wake) = &self.wake {
            // The receiver exists as long as this.
            let _ = wake.send(());
        }
    }

    /// Starts a task that runs whenever a thread runs the runtime.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let runtime = lock(&self.shared.runtime).clone();
        if let Some(runtime) = runtime {
            runtime.spawn(self.shared.owner.clone().run(task));
        }
    }
}

impl RuntimeState {
    /// Runs the runtime until `future` is done, or the runtime is gone.
    fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        let mut lost = pin!(self.lost.notified());
        lost.as_mut().enable();
        let runtime = lock(&self.runtime).clone().ok_or_else(|| self.failure())?;
        let future = async {
            tokio::select! {
                biased;
                output = caught(self.owner.own(future)) => Some(output),
                () = lost => None,
            }
        };
        match catch_unwind(AssertUnwindSafe(|| runtime.block_on(future))) {
            Ok(Some(Ok(output))) => Ok(output),
            Ok(Some(Err(panic))) => {
                self.note(&*panic);
                self.owner.report(&*panic);
                Err(self.failure())
            }
            Ok(None) => Err(self.failure()),
            Err(panic) => Err(self.lose(&*panic)),
        }
    }

    /// Gives up the runtime after a panic of its own, and returns the error of this call.
    fn lose(&self, panic: &(dyn Any + Send)) -> Error {
        self.note(panic);
        std::mem::forget(lock(&self.runtime).take());
        let _ = wake(|| self.lost.notify_waiters());
        forked::end_connections();
        self.owner.report(panic);
        self.failure()
    }

    fn is_lost(&self) -> bool {
        lock(&self.runtime).is_none()
    }

    /// Notes a panic as the error of calls from now on, if it is the first.
    fn note(&self, panic: &(dyn Any + Send)) {
        let reason = self.owner.describe(panic);
        let failure = format!("the connections of this process have failed: {reason}");
        self.failure.get_or_init(|| Error::config(failure));
    }

    fn failure(&self) -> Error {
        self.failure.get().cloned().unwrap_or_else(Error::closed)
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
                // Several callers may have asked this thread to leave at once: remaining requests are void now.
                pin!(self.arrived.notified()).enable();
                self.resting.store(true, Ordering::SeqCst);
                // A caller may have arrived between the check and the flag, and would not wake this thread.
                if self.callers.load(Ordering::SeqCst) == 0
                    && !self.stopping.load(Ordering::SeqCst)
                    && self.block_on(self.arrived.notified()).is_err()
                {
                    return;
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
        let woken = wake(|| self.shared.arrived.notify_one());
        // A progress thread that cannot be woken any more waits for descriptors of another owner.
        if let Some(progress) = self.progress.take()
            && woken.is_ok()
            && !self.shared.is_lost()
        {
            progress.wait(STOP_LIMIT);
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
        started(idle, &Interrupt::default(), || ())
    }

    fn started(
        idle: Duration,
        interrupt: &Interrupt,
        before_parking: impl Fn() + Send + Sync + 'static,
    ) -> CallerRuntime {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_park(before_parking)
            .build()
            .unwrap();
        let threads = BackgroundThreads::new(interrupt.clone());
        CallerRuntime::with_idle_time(runtime, "test".into(), &threads, idle).unwrap()
    }

    /// A runtime that loses its driver when a thread waits in it, and the switch of its world.
    fn without_driver(idle: Duration) -> (CallerRuntime, Interrupt) {
        let interrupt = Interrupt::default();
        let runtime = started(idle, &interrupt, || panic!("the driver is lost"));
        (runtime, interrupt)
    }

    fn reasons(interrupt: &Interrupt) -> mpsc::Receiver<String> {
        let (raised, reasons) = mpsc::channel();
        interrupt.on_raise(move |reason| raised.send(reason.to_owned()).unwrap());
        reasons
    }

    const REASON: &str = "its thread test has panicked: the driver is lost";

    #[test]
    fn panic_of_a_future_is_an_error_and_the_runtime_continues() {
        let interrupt = Interrupt::default();
        let runtime = started(IDLE_FOR, &interrupt, || ());
        let failed: Result<(), _> = runtime.run(async { panic!("on purpose") });
        let failure = failed.unwrap_err().to_string();
        assert!(failure.contains("panicked: on purpose"), "{failure}");
        assert!(interrupt.reason().is_some());
        assert_eq!(runtime.run(async { 7 }).ok(), Some(7));
    }

    #[test]
    fn panic_of_a_task_raises_the_switch_and_the_runtime_continues() {
        let interrupt = Interrupt::default();
        let runtime = started(IDLE_FOR, &interrupt, || ());
        runtime.spawn(async { panic!("on purpose") });
        let reason = reasons(&interrupt).recv_timeout(patience()).unwrap();
        assert_eq!(reason, "its thread test has panicked: on purpose");
        assert_eq!(runtime.run(async { 7 }).ok(), Some(7));
    }

    #[test]
    fn callers_fail_once_the_driver_is_lost() {
        let (runtime, interrupt) = without_driver(Duration::from_secs(3600));
        let waits = || runtime.run(std::future::pending::<()>());
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..4).map(|_| scope.spawn(waits)).collect();
            for caller in callers {
                let failure = caller.join().unwrap().unwrap_err().to_string();
                // A caller that has entered meanwhile finds no driver, and may be the first to report.
                assert!(
                    failure.contains("its thread test has panicked"),
                    "{failure}"
                );
            }
        });
        assert!(runtime.run_at_once(|| ()).is_err());
        assert!(interrupt.reason().is_some());
    }

    #[test]
    fn progress_thread_reports_that_the_driver_is_lost() {
        let (runtime, interrupt) = without_driver(Duration::from_millis(1));
        let reason = reasons(&interrupt).recv_timeout(patience());
        assert_eq!(reason.unwrap(), REASON);
        assert!(runtime.run(async {}).is_err());
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
        assert_eq!(by.ok(), Some(me));
        runtime.run(told).unwrap().unwrap();
    }

    #[test]
    fn tasks_run_while_callers_come_and_go() {
        let runtime = runtime();
        let (done, wait) = mpsc::channel();
        runtime.spawn(async move { done.send(()).unwrap() });
        let mut visits = 0;
        while wait.recv_timeout(IDLE_FOR / 10).is_err() {
            runtime.run_at_once(|| ()).unwrap();
            visits += 1;
            assert!(visits < 5000, "after {visits} visits");
        }
    }

    #[test]
    fn nudge_runs_tasks_before_the_idle_time_is_over() {
        let runtime = idle_for(Duration::from_secs(3600));
        for _ in 0..40 {
            runtime.run(async {}).unwrap();
            // Like the request of one of two callers that arrive at the same moment.
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
                    })
                })
            })
            .collect();
        go.store(true, Ordering::SeqCst);
        released.notify_waiters();
        for caller in callers {
            caller.join().unwrap().unwrap();
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
