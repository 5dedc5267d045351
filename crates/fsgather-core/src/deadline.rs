//! Waiting with a bound: [`Deadline`] and [`Backoff`]. Callers pass the time; neither reads a clock.

use std::time::{Duration, Instant};

/// A point in monotonic time after which a wait has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline {
    at: Instant,
}

/// Maximum time-out: a longer one would overflow the clock, or soon would. A century is for ever.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl Deadline {
    /// Returns the deadline `timeout` after `now`; durations longer than a century mean a century. User-supplied
    /// durations meet the clock here: adding them directly would panic for the longest ones.
    #[must_use]
    pub fn after(now: Instant, timeout: Duration) -> Self {
        Self {
            at: now + timeout.min(FOR_EVER),
        }
    }

    /// Returns the time at which the deadline passes.
    #[must_use]
    pub const fn at(self) -> Instant {
        self.at
    }

    /// Returns true if the deadline has passed.
    #[must_use]
    pub fn has_passed(self, now: Instant) -> bool {
        now >= self.at
    }

    /// Returns the remaining time; zero once the deadline has passed.
    #[must_use]
    pub fn remaining(self, now: Instant) -> Duration {
        self.at.saturating_duration_since(now)
    }
}

/// Growing pauses between tries: each is twice as long as the one before, up to a longest one.
///
/// ```
/// use fsgather_core::Backoff;
/// use std::time::Duration;
///
/// let mut pauses = Backoff::new(Duration::from_millis(20), Duration::from_millis(50));
/// assert_eq!(pauses.next_pause(), Duration::from_millis(20));
/// assert_eq!(pauses.next_pause(), Duration::from_millis(40));
/// assert_eq!(pauses.next_pause(), Duration::from_millis(50));
/// ```
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    next: Duration,
    longest: Duration,
}

impl Backoff {
    /// Starts at `first` and doubles up to `longest`.
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            next: first,
            longest,
        }
    }

    /// The pause to make now.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next.min(self.longest);
        self.next = pause.saturating_mul(2).min(self.longest);
        pause
    }

    /// The pause to make now, spread over half to all of its length by `fraction` (0 to 1, random), so
    /// that many ranks do not try again at the same moment.
    pub fn next_jittered(&mut self, fraction: f64) -> Duration {
        self.next_pause()
            .mul_f64(0.5 + fraction.clamp(0.0, 1.0) / 2.0)
    }

    /// Starts over with the first pause, after something has moved.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_passes_exactly_when_due() {
        let now = Instant::now();
        let deadline = Deadline::after(now, Duration::from_secs(3));
        assert!(!deadline.has_passed(now + Duration::from_millis(2999)));
        assert!(deadline.has_passed(now + Duration::from_secs(3)));
        assert_eq!(
            deadline.remaining(now + Duration::from_secs(1)),
            Duration::from_secs(2)
        );
        assert_eq!(
            deadline.remaining(now + Duration::from_secs(9)),
            Duration::ZERO
        );
    }

    #[test]
    fn endless_timeout_does_not_overflow() {
        let now = Instant::now();
        let endless = Deadline::after(now, Duration::MAX);
        assert!(!endless.has_passed(now));
        let years = endless.remaining(now).as_secs() / (365 * 86_400);
        assert_eq!(years, 100);
    }

    #[test]
    fn jitter_stays_between_half_and_all() {
        let pause = Duration::from_millis(100);
        for (fraction, millis) in [(0.0, 50), (0.5, 75), (1.0, 100), (7.0, 100)] {
            let jittered = Backoff::new(pause, pause).next_jittered(fraction);
            assert_eq!(jittered, Duration::from_millis(millis));
        }
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut pauses = Backoff::new(Duration::from_millis(20), Duration::from_millis(50));
        let millis = [(); 4].map(|()| pauses.next_pause().as_millis());
        assert_eq!(millis, [20, 40, 50, 50]);
    }

    #[test]
    fn reset_starts_over() {
        let mut pauses = Backoff::new(Duration::from_millis(1), Duration::from_secs(1));
        for _ in 0..5 {
            pauses.next_pause();
        }
        pauses.reset();
        assert_eq!(pauses.next_pause(), Duration::from_millis(1));
    }
}
