//! The time for which nothing has moved in a transfer: [`Idle`]. Pure.

use std::time::{Duration, Instant};

use fsgather_core::AwakeClock;

/// Counts the time since the last movement, without the time in which this process was stopped.
#[derive(Debug)]
pub(super) struct Idle {
    clock: AwakeClock,
    moved: Instant,
}

impl Idle {
    /// A transfer with movement `now`.
    pub(super) const fn since(now: Instant) -> Self {
        Self {
            clock: AwakeClock::new(now),
            moved: now,
        }
    }

    /// Notes the number of bytes that have moved since the last call, several times a second, and returns the time for
    /// which none has. Just after a stop that is not known, and counts as zero: received bytes may still be unread.
    pub(super) fn record(&mut self, bytes: u64, now: Instant) -> Duration {
        let now = self.clock.look(now);
        if bytes > 0 {
            self.moved = now;
        }
        if self.clock.is_hearing() {
            return Duration::ZERO;
        }
        now.saturating_duration_since(self.moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_no_silence_of_others() {
        let start = Instant::now();
        let at = |tenths: u32| start + Duration::from_millis(100) * tenths;
        let mut idle = Idle::since(start);
        assert_eq!(idle.record(7, at(1)), Duration::ZERO);
        assert_eq!(idle.record(0, at(11)), Duration::from_secs(1));
        // Stopped for a quarter of an hour.
        assert_eq!(idle.record(0, at(9000)), Duration::ZERO);
        assert_eq!(idle.record(0, at(9005)), Duration::from_millis(3500));
        assert_eq!(idle.record(1, at(9006)), Duration::ZERO);
    }
}
