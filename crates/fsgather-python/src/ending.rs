//! Calls of threads that go on while the process ends: [`InCall`], and [`end_calls`], which waits for them.
//!
//! Once the interpreter is taken down it ends by force each thread of a program that asks for its lock. One that asks for it
//! from within a call would, cleaned up after, bring the whole process down. So calls are to come to their ends before, and
//! ask for the lock no more.

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

/// The thread in which the process ends, once it does.
static ENDER: OnceLock<Thread> = OnceLock::new();

/// For as long as this thread is in a call, or in something else in which the interpreter's lock may pass to another thread.
pub(crate) struct InCall(());

impl InCall {
    /// Begins one; an error where the process ends in another thread.
    pub(crate) fn begin() -> PyResult<Self> {
        let begun = Self::count();
        if is_over_here() {
            // What takes no code of Python.
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

/// Does something without the interpreter's lock, also where the process ends.
pub(crate) fn detach<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let _in_call = InCall::count();
    py.detach(work)
}

impl Drop for InCall {
    fn drop(&mut self) {
        // In a forked child it counts from 0 again, also in the middle of a call.
        let less = |calls: usize| Some(calls.saturating_sub(1));
        let _ = CALLS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        if let Some(ender) = ENDER.get() {
            ender.unpark();
        }
    }
}

/// Whether the process ends in another thread than this one, which must not ask for the interpreter's lock any more.
pub(crate) fn is_over_here() -> bool {
    ENDER
        .get()
        .is_some_and(|ender| ender.id() != thread::current().id())
}

/// Has calls of other threads end, and waits for that, for some seconds at most. Returns whether all of them have ended.
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

/// Forgets the calls of threads that a forked child has not.
#[pyfunction]
pub(crate) fn forget_calls() {
    CALLS.store(0, Ordering::SeqCst);
}
