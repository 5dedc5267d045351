//! The times of warnings about waiting, and their texts about the end of the wait.

use std::{fmt, time::Duration};

use crate::duration_text;

/// Time without any progress until the first warning names the ranks that are waited for.
pub const FIRST_WARNING: Duration = Duration::from_secs(30);

/// Maximum time between two warnings.
const LONGEST_GAP: Duration = Duration::from_secs(1800);

/// Returns the time of the next warning after a warning at the time `idle`, both counted from the last progress: at 30
/// s, 1 min, 2 min, and so on, up to 30 minutes apart.
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

/// The end of a wait, for the end of a warning about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// It times out after this time.
    After(Duration),
    /// It times out after this time, unless something moves.
    UnlessMoved(Duration),
    /// It times out after this time, unless all ranks that are waited for show signs of work.
    UnlessWork(Duration),
    /// All ranks that are waited for show signs of work, and are not late as long as they do.
    Working,
    /// It fails if a missing rank shows no sign of work for `limit`, and at the latest after `left`.
    OnceIdle {
        /// Time without a sign of work.
        limit: Duration,
        /// The time that is left at most.
        left: Duration,
    },
}

impl WaitEnd {
    /// Returns the end of a meeting that ends early, if a rank shows no sign of work for the time `idle_limit`, if there is one.
    #[must_use]
    pub fn of_meeting(left: Duration, idle_limit: Option<Duration>) -> Self {
        match idle_limit {
            Some(limit) if limit < left => Self::OnceIdle { limit, left },
            _ => Self::After(left),
        }
    }
}

impl fmt::Display for WaitEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After(left) => write!(f, "times out in {}", duration_text(*left)),
            Self::UnlessMoved(left) => {
                let left = duration_text(*left);
                write!(f, "times out in {left} unless something moves")
            }
            Self::UnlessWork(left) => {
                let left = duration_text(*left);
                write!(f, "times out in {left} unless there are signs of work")
            }
            Self::Working => f.write_str("does not time out while there are signs of work"),
            Self::OnceIdle { limit, left } => {
                let (limit, left) = (duration_text(*limit), duration_text(*left));
                write!(
                    f,
                    "fails once a missing rank shows no sign of work for {limit}, and times out in {left}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meetings_of_watched_ranks_end_once_one_is_idle() {
        let limit = Duration::from_secs(1800);
        let end = |left| WaitEnd::of_meeting(left, Some(limit)).to_string();
        let expected =
            "fails once a missing rank shows no sign of work for 30 min, and times out in 1 d";
        assert_eq!(end(Duration::from_secs(24 * 3600)), expected);
        assert_eq!(end(Duration::from_secs(60)), "times out in 1 min");
        let unwatched = WaitEnd::of_meeting(limit, None);
        assert_eq!(unwatched, WaitEnd::After(limit));
    }

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
