//! Bounded waiting for data that is not there yet: [`RetryBudget`], the one owner of sleeping.

use std::time::{Duration, Instant};

use fsgather_core::{AwakeClock, Backoff, Deadline, Error, Progress, sys::clock};

/// Longest sleep between two calls of the progress hook: the delay with which a wait is interrupted.
const SLICE: Duration = Duration::from_millis(100);

/// Remaining time for retries, and the pauses between them. Time in which this process is stopped does not count.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    started: Instant,
    clock: AwakeClock,
    deadline: Deadline,
    pauses: Backoff,
}

impl RetryBudget {
    /// Pauses of 20 ms doubling to 1 s, until `budget` is used up.
    pub(crate) fn new(budget: Duration) -> Self {
        let started = clock::now();
        Self {
            started,
            clock: AwakeClock::new(started),
            deadline: Deadline::after(started, budget),
            pauses: Backoff::new(Duration::from_millis(20), Duration::from_secs(1)),
        }
    }

    /// Time since the budget was created.
    pub(crate) fn spent(&self) -> Duration {
        clock::since(self.started)
    }

    /// Pauses before the next attempt; returns `false`, without a pause, if the budget is used up.
    pub(crate) fn pause(&mut self, progress: &mut Progress<'_>) -> Result<bool, Error> {
        let now = self.clock.look(clock::now());
        if self.deadline.has_passed(now) {
            return Ok(false);
        }
        let pause = self.pauses.next_pause().min(self.deadline.remaining(now));
        sleep(pause, progress)?;
        Ok(true)
    }
}

/// Sleeps, and calls the progress hook often enough that an error of the hook can interrupt the sleep.
pub(crate) fn sleep(duration: Duration, progress: &mut Progress<'_>) -> Result<(), Error> {
    let deadline = Deadline::after(clock::now(), duration);
    loop {
        progress(0)?;
        let left = deadline.remaining(clock::now());
        if left.is_zero() {
            return Ok(());
        }
        // No file system notifies about changes of other hosts.
        clock::sleep(left.min(SLICE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_end_with_their_budget() {
        let mut retries = RetryBudget::new(Duration::from_millis(50));
        let mut pauses = 0;
        while retries.pause(&mut |_| Ok(())).unwrap() {
            pauses += 1;
        }
        assert!((1..=4).contains(&pauses), "{pauses}");
        assert!(retries.spent() >= Duration::from_millis(50));
    }

    #[test]
    fn no_budget_means_no_pause() {
        assert!(
            !RetryBudget::new(Duration::ZERO)
                .pause(&mut |_| Ok(()))
                .unwrap()
        );
    }

    #[test]
    fn a_wait_is_cut_short_by_the_progress_hook() {
        let mut calls = 0;
        let result = sleep(Duration::from_secs(3600), &mut |_| {
            calls += 1;
            if calls == 2 {
                Err(Error::config("interrupted"))
            } else {
                Ok(())
            }
        });
        assert_eq!(result, Err(Error::config("interrupted")));
    }
}
