//! Waiting for another thread: [`Condition`].

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A condition variable. It ignores that a thread has panicked while it held the lock.
#[derive(Debug, Default)]
pub struct Condition(Condvar);

impl Condition {
    /// Waits to be woken, for `limit` at most; spurious wake-ups are possible. `state` is a guard of `lock`, which is
    /// released meanwhile.
    pub fn wait<'a, S>(
        &self,
        lock: &'a Mutex<S>,
        state: MutexGuard<'a, S>,
        limit: Option<Duration>,
    ) -> MutexGuard<'a, S> {
        #[cfg(feature = "model")]
        if let Some(model) = crate::sys::model::current() {
            drop(state);
            model.wait(self.place(), limit);
            return crate::sys::lock(lock);
        }
        let _ = lock;
        match limit {
            None => self.0.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                let waited = self.0.wait_timeout(state, limit);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Wakes one waiting thread.
    pub fn wake_one(&self) {
        crate::sys::ask_model!(model => model.wake(self.place(), false));
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn wake_all(&self) {
        crate::sys::ask_model!(model => model.wake(self.place(), true));
        self.0.notify_all();
    }

    #[cfg(feature = "model")]
    fn place(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
