//! The thread of this process that others wait for: [`Caller`].

use nix::sys::pthread::pthread_self;
use std::{
    process,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// A thread of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread {
    /// As the kernel numbers it.
    pub(crate) id: u32,
    /// As the C library names it; the main thread's need not be known.
    pub(crate) handle: Option<u64>,
}

impl Thread {
    /// The one that asks.
    pub(crate) fn current() -> Self {
        Self {
            id: rustix::thread::gettid().as_raw_pid().unsigned_abs(),
            handle: Some(pthread_self()),
        }
    }
}

/// The threads that are in calls, in the order in which they came.
static CALLERS: Mutex<Vec<Thread>> = Mutex::new(Vec::new());

fn callers() -> MutexGuard<'static, Vec<Thread>> {
    CALLERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This thread is in a call, as long as this exists.
#[derive(Debug)]
pub struct Caller(Thread);

impl Caller {
    /// From here on.
    #[must_use]
    pub fn enter() -> Self {
        let thread = Thread::current();
        callers().push(thread);
        Self(thread)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let mut callers = callers();
        if let Some(place) = callers.iter().rposition(|thread| *thread == self.0) {
            callers.remove(place);
        }
    }
}

/// The thread that came last of those that are in calls, else the main thread.
pub(crate) fn thread_of_interest() -> Thread {
    let main = || Thread {
        id: process::id(),
        handle: None,
    };
    callers().last().copied().unwrap_or_else(main)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_that_is_in_a_call_is_of_interest_and_else_the_main_one() {
        assert_eq!(thread_of_interest().id, process::id());
        let outer = Caller::enter();
        {
            let _inner = Caller::enter();
        }
        assert_eq!(thread_of_interest(), Thread::current());
        assert_ne!(
            Thread::current().id,
            process::id(),
            "tests run on threads of their own"
        );
        drop(outer);
        assert_eq!(thread_of_interest().id, process::id());
    }
}
