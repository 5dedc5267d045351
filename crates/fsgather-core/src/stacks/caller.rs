//! The threads of this process that make calls: [`Caller`].

use nix::sys::pthread::pthread_self;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A thread of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its number in the kernel, if known.
    pub id: Option<u32>,
    /// Its handle in the C library, if known.
    pub handle: Option<u64>,
}

impl Thread {
    /// Returns the calling thread.
    pub(crate) fn current() -> Self {
        Self {
            id: Some(rustix::thread::gettid().as_raw_pid().unsigned_abs()),
            handle: Some(pthread_self()),
        }
    }

    /// Returns true if both are the same thread. The C library reuses the handles of threads that have ended.
    pub(crate) fn is(self, other: Self) -> bool {
        let ids = self.id.zip(other.id);
        self.handle.is_some() && self.handle == other.handle && ids.is_none_or(|(a, b)| a == b)
    }
}

/// The threads that make calls.
struct Callers {
    /// The threads in calls, in the order in which they entered.
    within: Vec<Thread>,
    /// The thread that has left a call last.
    last: Option<Thread>,
}

static CALLERS: Mutex<Callers> = Mutex::new(Callers {
    within: Vec::new(),
    last: None,
});

fn callers() -> MutexGuard<'static, Callers> {
    CALLERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks this thread as being in a call, as long as this exists.
#[derive(Debug)]
pub struct Caller(Thread);

impl Caller {
    /// Marks the thread from here on.
    #[must_use]
    pub fn enter() -> Self {
        let thread = Thread::current();
        callers().within.push(thread);
        Self(thread)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let mut callers = callers();
        let within = &mut callers.within;
        if let Some(place) = within.iter().rposition(|thread| *thread == self.0) {
            within.remove(place);
        }
        callers.last = Some(self.0);
    }
}

/// Returns the threads in calls, the latest first. Some may be threads of a process from which this one was forked.
pub(crate) fn within_calls() -> Vec<Thread> {
    callers().within.iter().rev().copied().collect()
}

/// Returns the thread that has left a call last. It may have ended.
pub(crate) fn after_last_call() -> Option<Thread> {
    callers().last
}
