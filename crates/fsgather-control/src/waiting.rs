//! Waiting for machines that several threads share, while time passes for them: [`wait_on`].

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Shared state in which things fall due.
pub(crate) trait Timed {
    /// When time has to pass next, if nothing else happens before.
    fn next_tick(&self) -> Option<Instant>;
}

/// Waits until `ready` has a result, for `limit` at most. Whenever something is due, `pass_time` is
/// called to let it happen, with the lock, which it gives back.
pub(crate) fn wait_on<S: Timed, R>(
    state: &Mutex<S>,
    changed: &Condvar,
    limit: Option<Duration>,
    pass_time: impl Fn(MutexGuard<'_, S>, Instant),
    mut ready: impl FnMut(&mut S) -> Option<R>,
) -> Option<R> {
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let deadline = limit.map(|limit| Instant::now() + limit);
    let mut guard = lock();
    loop {
        if let Some(result) = ready(&mut guard) {
            return Some(result);
        }
        let now = Instant::now();
        let due = guard.next_tick();
        // Before the deadline, so that time passes for those as well who only look now and then.
        if due.is_some_and(|due| now >= due) {
            pass_time(guard, now);
            guard = lock();
            continue;
        }
        if deadline.is_some_and(|deadline| now >= deadline) {
            return None;
        }
        guard = match due.into_iter().chain(deadline).min() {
            None => changed.wait(guard).unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                changed
                    .wait_timeout(guard, until - now)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
    }
}
