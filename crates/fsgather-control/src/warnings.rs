//! When users are told that something is waited for. Pure.

use std::time::Duration;

/// Warnings come at 30 s, 1 min, 2 min, ... up to this far apart.
const LONGEST_WARNING_GAP: Duration = Duration::from_mins(30);

/// How long nothing moves before the first warning names whom we wait for.
pub(crate) const FIRST_WARNING: Duration = Duration::from_secs(30);

/// When the next warning is due after one that came at `idle`.
pub(crate) fn warning_after(idle: Duration) -> Duration {
    (idle * 2).min(idle + LONGEST_WARNING_GAP)
}
