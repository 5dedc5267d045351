//! A clock that stands still while its process does: [`AwakeClock`]. Callers pass the time; it reads no clock.

use std::time::{Duration, Instant};

/// Maximum time between two looks at the clock while something is awaited, so that the time in between counts.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Maximum time between two looks that counts. More passes only if the process or the machine was stopped: then it has
/// not listened either.
const COUNTED: Duration = Duration::from_secs(2);

/// Time after such a gap in which nothing is judged: messages that others sent meanwhile are read first.
const HEARING: Duration = Duration::from_millis(500);

/// A clock for waits, by which no time-out passes while this process is stopped or suspended.
///
/// It follows the wall clock, but at most two seconds count of the time between two looks. So a waiting thread must
/// look at the time of [`next_look`](Self::next_look) at the latest, even if nothing is due yet.
///
/// ```
/// use fsgather_core::AwakeClock;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// let mut clock = AwakeClock::new(start);
/// // The process has been stopped for an hour.
/// let now = clock.look(start + Duration::from_secs(3600));
/// assert_eq!(now - start, Duration::from_secs(2));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AwakeClock {
    /// The time of the last look, by the wall clock.
    looked: Instant,
    now: Instant,
    /// The time of the look that found a gap which was too long.
    woke: Option<Instant>,
    has_news: bool,
}

impl AwakeClock {
    /// Returns a clock that agrees with the wall clock `now`.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self {
            looked: now,
            now,
            woke: None,
            has_news: false,
        }
    }

    /// Returns the time of this clock when the wall clock shows `now`.
    pub fn look(&mut self, now: Instant) -> Instant {
        let passed = now.saturating_duration_since(self.looked);
        self.looked = self.looked.max(now);
        if passed > COUNTED {
            self.woke = Some(self.looked);
            self.has_news = true;
        }
        self.now += passed.min(COUNTED);
        self.now
    }

    /// The same if no thread has waited since the last look: all of the time counts, because no look was needed.
    pub fn look_after_rest(&mut self, now: Instant) -> Instant {
        self.now += now.saturating_duration_since(self.looked);
        self.looked = self.looked.max(now);
        self.now
    }

    /// Returns true if this process has only just continued, so that messages which others sent meanwhile may be
    /// unread: anything due then can wait until the next look.
    #[must_use]
    pub fn is_hearing(&self) -> bool {
        self.woke.is_some_and(|woke| self.looked < woke + HEARING)
    }

    /// Returns true if the process has continued after a gap since the last call of this function.
    pub fn take_wake(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Returns the time of the next look on the wall clock, if something is due at `due` by this clock.
    #[must_use]
    pub fn next_look(&self, due: Instant) -> Instant {
        let left = due.saturating_duration_since(self.now).min(LOOK_EVERY);
        let next = self.looked + left;
        match self.woke {
            Some(woke) if self.is_hearing() => next.max(woke + HEARING),
            _ => next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn it_follows_the_wall_as_long_as_somebody_looks() {
        let start = Instant::now();
        let mut clock = AwakeClock::new(start);
        let due = start + seconds(7.3);
        let mut now = start;
        let mut looks = 0;
        while clock.look(now) < due {
            now = clock.next_look(due);
            looks += 1;
        }
        assert_eq!((now, looks), (due, 8));
        assert!(!clock.take_wake());
    }

    #[test]
    fn suspended_time_does_not_count_and_judgement_waits() {
        let start = Instant::now();
        let mut clock = AwakeClock::new(start);
        let due = start + seconds(8.0);
        clock.look(start + seconds(1.0));
        let woken = start + seconds(100.0);
        assert_eq!(clock.look(woken), start + seconds(3.0));
        assert!(clock.take_wake() && !clock.take_wake() && clock.is_hearing());
        assert_eq!(clock.next_look(start), woken + HEARING);
        clock.look(woken + seconds(0.4));
        assert!(clock.is_hearing());
        clock.look(woken + HEARING);
        assert!(!clock.is_hearing());
        assert_eq!(clock.next_look(due), woken + HEARING + LOOK_EVERY);
        // However slow this process is, time goes on.
        let mut wall = woken;
        while clock.look(wall) < due {
            wall += seconds(50.0);
        }
        assert!(wall < woken + seconds(300.0));
    }

    #[test]
    fn while_nobody_waits_nobody_has_to_look() {
        let start = Instant::now();
        let mut clock = AwakeClock::new(start);
        let later = start + seconds(3600.0);
        assert_eq!(clock.look_after_rest(later), later);
        assert!(!clock.take_wake() && !clock.is_hearing());
    }

    #[test]
    fn a_clock_that_goes_back_changes_nothing() {
        let start = Instant::now();
        let mut clock = AwakeClock::new(start + seconds(5.0));
        assert_eq!(clock.look(start), start + seconds(5.0));
    }
}
