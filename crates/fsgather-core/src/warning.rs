//! Decides when users are told that something is waited for.

use std::time::Duration;

/// How long nothing moves before the first warning says what is waited for.
pub const FIRST_WARNING: Duration = Duration::from_secs(30);

/// Warnings are at most so far apart.
const LONGEST_GAP: Duration = Duration::from_secs(1800);

/// When the next warning is due after one that came when nothing had moved for so long: at 30 s, 1 min, 2 min, and so
/// on, up to 30 minutes apart.
///
/// ```
/// use fsgather_core::{FIRST_WARNING, warning_after};
///
/// assert_eq!(warning_after(FIRST_WARNING).as_secs(), 60);
/// assert_eq!(warning_after(FIRST_WARNING * 120).as_secs(), 90 * 60);
/// ```
#[must_use]
pub fn warning_after(idle: Duration) -> Duration {
    (idle * 2).min(idle + LONGEST_GAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_double_their_distance_up_to_half_an_hour() {
        let mut due = FIRST_WARNING;
        let mut seconds = Vec::new();
        for _ in 0..9 {
            seconds.push(due.as_secs());
            due = warning_after(due);
        }
        assert_eq!(seconds, [30, 60, 120, 240, 480, 960, 1920, 3720, 5520]);
    }
}
