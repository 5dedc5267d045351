//! The time at which a refusal was written, relative to the start of a process that finds it: [`Left`]. Pure.

use std::time::{Duration, SystemTime};

/// Time for which a refusal is kept for ranks that arrive late.
pub(super) const REFUSAL_TIME: Duration = Duration::from_secs(600);

/// Minimum difference by which a process must be older than a refusal that is meant for it: the time stamps of servers and of
/// processes count in ticks.
const TICK: Duration = Duration::from_millis(50);

/// The same, if time stamps are whole seconds.
const LONG_TICK: Duration = Duration::from_secs(2);

/// The time at which a refusal was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// While this process ran: the refusal is meant for it.
    SinceStart,
    /// In the minutes before: the refusal is about an earlier attempt, or this process is too late.
    Before,
    /// Too long ago to matter.
    LongAgo,
}

impl Left {
    /// Classifies a refusal that was written at `left`, for a process of this age, by the clock that shows `now`.
    pub(super) fn at(left: SystemTime, now: SystemTime, age: Duration) -> Self {
        let ago = now.duration_since(left).unwrap_or_default();
        if is_younger(left, now, age) {
            Self::SinceStart
        } else if ago < REFUSAL_TIME {
            Self::Before
        } else {
            Self::LongAgo
        }
    }
}

/// Returns true if a file written at `left` is certainly younger than a process of this age.
fn is_younger(left: SystemTime, now: SystemTime, age: Duration) -> bool {
    let is_whole = |time: SystemTime| {
        time.duration_since(SystemTime::UNIX_EPOCH)
            .is_ok_and(|since| since.subsec_nanos() == 0)
    };
    let tick = if is_whole(left) && is_whole(now) {
        LONG_TICK
    } else {
        TICK
    };
    let ago = now.duration_since(left).unwrap_or_default();
    ago.saturating_add(tick) < age
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_believed_only_by_who_is_certainly_older() {
        let second = Duration::from_secs(1);
        let start = SystemTime::UNIX_EPOCH + 1000 * second;
        let fine = Duration::from_millis(1);
        // The file is ten seconds old; it is found by a process of that age, and by older ones.
        let seen = |left, age| is_younger(left, left + 10 * second, age);
        assert!(!seen(start + fine, 10 * second));
        assert!(seen(start + fine, 10 * second + 2 * TICK));
        assert!(!seen(start, 12 * second), "stamps may be two seconds old");
        assert!(seen(start, 13 * second));
    }

    #[test]
    fn what_was_left_before_is_of_interest_for_ten_minutes() {
        let left = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let at = |ago, age| Left::at(left, left + ago, age);
        let young = Duration::from_secs(1);
        assert_eq!(at(REFUSAL_TIME, REFUSAL_TIME * 2), Left::SinceStart);
        assert_eq!(
            at(REFUSAL_TIME.checked_sub(young).unwrap(), young),
            Left::Before
        );
        assert_eq!(at(REFUSAL_TIME, young), Left::LongAgo);
        // After a clock was set back, the file has no age.
        assert_eq!(Left::at(left, left - young, 5 * young), Left::SinceStart);
    }
}
