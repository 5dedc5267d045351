//! Decides which failures of file calls are retried: [`RetryWindow`]. Pure.

use std::time::{Duration, Instant};

use fsgather_core::{AwakeClock, Error};

/// Time for which file calls may fail before this rank gives up.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Reasons that do not pass by themselves, as Linux numbers them: not permitted (1, 13), gone (2), not a
/// directory (20), read-only (30), a name too long (36), no such call (38), too many links (40).
const FOR_GOOD: [i32; 8] = [1, 2, 13, 20, 30, 36, 38, 40];

/// Returns true if a failure may pass by itself: a server that is short of space or overloaded, a stale handle.
pub(super) fn may_pass(error: &Error) -> bool {
    match error {
        Error::Storage { cause, .. } => cause
            .os_code
            .is_some_and(|os_code| !FOR_GOOD.contains(&os_code)),
        _ => false,
    }
}

/// Counts for how long a kind of call has been failing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RetryWindow {
    /// The time of the first failure, and the clock since then.
    failing: Option<(Instant, AwakeClock)>,
}

impl RetryWindow {
    /// Notes a call that has succeeded.
    pub(super) const fn well(&mut self) {
        self.failing = None;
    }

    /// Notes a call that has failed, and returns true if it may be retried for now.
    pub(super) fn tolerates(&mut self, error: &Error, now: Instant) -> bool {
        let (since, clock) = self.failing.get_or_insert((now, AwakeClock::new(now)));
        let now = clock.look(now);
        may_pass(error) && now.saturating_duration_since(*since) < TIME_LIMIT
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn failure(os_code: i32) -> Error {
        Error::storage("list", "/shared", &io::Error::from_raw_os_error(os_code))
    }

    #[test]
    fn a_server_out_of_breath_is_waited_for_and_not_for_ever() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let io_error = failure(5);
        let mut window = RetryWindow::default();
        for second in 0..10 {
            assert!(window.tolerates(&io_error, at(second)), "{second}");
        }
        assert!(!window.tolerates(&io_error, at(10)));
        window.well();
        assert!(window.tolerates(&io_error, at(11)));
        // The time in which this process was stopped does not count.
        assert!(window.tolerates(&io_error, at(111)));
    }

    #[test]
    fn what_does_not_pass_by_itself_is_told_at_once() {
        for os_code in FOR_GOOD {
            assert!(!RetryWindow::default().tolerates(&failure(os_code), Instant::now()));
        }
        let described = Error::config("a directory that is gone");
        assert!(!may_pass(&described));
    }
}
