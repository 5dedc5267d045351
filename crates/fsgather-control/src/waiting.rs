//! Waits that an interrupt can end: [`wait_asking`]; and waits whose time passes only while this process runs: [`AwakeDeadline`].

use std::time::{Duration, Instant};

use fsgather_core::{AwakeClock, Deadline, Interrupt, sys::clock};

/// Waits by `wait`, which returns `None` once its time slice has passed, for `limit` at most. Between two slices the
/// interrupt is polled, on this thread. `is_over` returns true if there will be no result any more.
///
/// Without an interrupt to poll it is `wait` itself; if the result arrives soon, it polls nothing.
pub(crate) fn wait_asking<R>(
    interrupt: &Interrupt,
    limit: Option<Duration>,
    is_over: impl Fn() -> bool,
    mut wait: impl FnMut(Option<Duration>) -> Option<R>,
) -> Option<R> {
    const SLICE: Duration = Interrupt::POLL_EVERY;
    if !interrupt.is_polled() || limit.is_some_and(|limit| limit <= SLICE) {
        return wait(limit);
    }
    let deadline = limit.map(|limit| Deadline::after(clock::now(), limit));
    loop {
        let left = deadline.map_or(SLICE, |deadline| deadline.remaining(clock::now()));
        let result = wait(Some(left.min(SLICE)));
        if result.is_some() || left.is_zero() || is_over() {
            return result;
        }
        interrupt.poll();
    }
}

/// The end of a wait that is extended while this process is stopped, and by a moment more.
#[derive(Debug)]
pub(crate) struct AwakeDeadline {
    clock: AwakeClock,
    due: Instant,
}

impl AwakeDeadline {
    /// The deadline `timeout` after `now`.
    pub(crate) fn after(now: Instant, timeout: Duration) -> Self {
        Self {
            clock: AwakeClock::new(now),
            due: Deadline::after(now, timeout).at(),
        }
    }

    /// Postpones it.
    pub(crate) fn postpone(&mut self, by: Duration) {
        self.due = Deadline::after(self.due, by).at();
    }

    /// Returns the time until it passes.
    pub(crate) fn left(&mut self) -> Duration {
        let now = self.clock.look(clock::now());
        self.due.saturating_duration_since(now)
    }

    /// Waits until it has passed; may be dropped and called again.
    pub(crate) async fn passed(&mut self) {
        while self.clock.look(clock::now()) < self.due || self.clock.is_hearing() {
            tokio::time::sleep_until(self.clock.next_look(self.due).into()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        sync::{
            Arc, Condvar, Mutex,
            atomic::{AtomicU32, Ordering},
        },
    };

    use super::*;

    fn counting(ends_at: u32) -> (Interrupt, Arc<AtomicU32>) {
        let asked = Arc::new(AtomicU32::new(0));
        let its = Arc::clone(&asked);
        let interrupt = Interrupt::polled_by(move || {
            let now = its.fetch_add(1, Ordering::SeqCst) + 1;
            (now == ends_at).then(|| "enough".into())
        });
        (interrupt, asked)
    }

    #[test]
    fn a_short_wait_asks_nobody() {
        let (interrupt, asked) = counting(1);
        for limit in [None, Some(Duration::ZERO), Some(Duration::from_secs(9))] {
            let result = wait_asking(&interrupt, limit, || false, |_| Some(7));
            assert_eq!(result, Some(7));
        }
        assert_eq!(asked.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_long_wait_asks_after_every_slice_until_it_is_ended() {
        let (interrupt, asked) = counting(3);
        let slices = Cell::new(0);
        let result = wait_asking(
            &interrupt,
            None,
            || false,
            |slice| {
                assert!(slice.is_some_and(|slice| slice <= Interrupt::POLL_EVERY));
                slices.set(slices.get() + 1);
                interrupt.reason()
            },
        );
        assert_eq!(result.as_deref(), Some("enough"));
        assert_eq!((slices.get(), asked.load(Ordering::SeqCst)), (4, 3));
    }

    #[test]
    fn a_limit_holds_and_the_end_of_all_ends_the_wait() {
        let (interrupt, _) = counting(0);
        let limit = Duration::from_millis(250);
        let nothing = wait_asking(
            &interrupt,
            Some(limit),
            || false,
            |slice| {
                let slice = slice?;
                let (lock, never) = (Mutex::new(()), Condvar::new());
                drop(never.wait_timeout(lock.lock().ok()?, slice));
                None::<()>
            },
        );
        assert_eq!(nothing, None);
        assert_eq!(wait_asking(&interrupt, None, || true, |_| None::<()>), None);
    }
}
