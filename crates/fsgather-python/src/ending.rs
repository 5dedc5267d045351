//! Calls of threads that continue while the process ends: [`InCall`], and [`end_calls`], which waits for them.
//!
//! While the interpreter is finalized, it ends by force each thread of a program that asks for its lock. A thread that asks for it within a
//! call would bring the whole process down during its clean-up. So calls must end before, and must not ask for the lock any more.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

use pyo3::{exceptions::PyRuntimeError, prelude::*};

/// Number of threads that are in calls.
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// The thread in which the process ends, once it ends.
static ENDER: OnceLock<Thread> = OnceLock::new();

/// Exists while this thread is in a call, or in other code in which the interpreter's lock may pass to another thread.
pub(crate) struct InCall(());

impl InCall {
    /// Begins a call; an error if the process ends in another thread.
    pub(crate) fn begin() -> PyResult<Self> {
        let begun = Self::count();
        if is_over_here() {
            // The error must not run Python code.
            return Err(PyRuntimeError::new_err(
                "this process ends, and its threads call nothing any more",
            ));
        }
        Ok(begun)
    }

    fn count() -> Self {
        CALLS.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

/// Runs `work` without the interpreter's lock, even while the process ends.
pub(crate) fn detach<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let _in_call = InCall::count();
    py.detach(work)
}

impl Drop for InCall {
    fn drop(&mut self) {
        // A forked child counts from 0 again, even in the middle of a call.
        let less = |calls: usize| Some(calls.saturating_sub(1));
        let _ = CALLS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        if let Some(ender) = ENDER.get() {
            ender.unpark();
        }
    }
}

/// Returns true if the process ends in another thread than this one, which must not ask for the interpreter's lock any more.
pub(crate) fn is_over_here() -> bool {
    ENDER
        .get()
        .is_some_and(|ender| ender.id() != thread::current().id())
}

/// Refuses new calls of other threads, and waits until the running ones have ended, for `seconds` at most. Returns true if all of them
/// have ended.
#[pyfunction]
pub(crate) fn end_calls(py: Python<'_>, seconds: f64) -> bool {
    ENDER.get_or_init(thread::current);
    let limit = Instant::now() + Duration::try_from_secs_f64(seconds).unwrap_or_default();
    py.detach(|| {
        while CALLS.load(Ordering::SeqCst) > 0 {
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            thread::park_timeout(left);
        }
        true
    })
}

/// Forgets the calls of threads that a forked child does not have.
#[pyfunction]
pub(crate) fn forget_calls() {
    CALLS.store(0, Ordering::SeqCst);
}
