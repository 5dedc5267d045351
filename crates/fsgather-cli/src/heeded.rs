//! Selects the signals that a command handles: those that it does not ignore, and that are no echo.

use std::{
    fs,
    time::{Duration, Instant},
};

/// The same signal again within this time is an echo: `timeout`, for example, signals both a process and its group, and some
/// launchers pass on a signal that the whole group has received already. A user takes longer to press a key twice.
pub(crate) const ECHO: Duration = Duration::from_millis(100);

/// Returns true if a signal only repeats the earlier one.
pub(crate) fn is_echo(signal: i32, (earlier, at): (i32, Instant), now: Instant) -> bool {
    signal == earlier && now.saturating_duration_since(at) < ECHO
}

/// Returns those of `signals` that are not ignored: `nohup`, and shells for background processes, ignore some on purpose.
pub(crate) fn heeded(signals: &[i32]) -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let all = signals.iter().copied();
    all.filter(|signal| !is_ignored(&status, *signal)).collect()
}

/// Returns true if the `/proc` status of a process says that it ignores a signal.
fn is_ignored(status: &str, signal: i32) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status = "Name:\tx\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, SIGHUP));
        assert!(is_ignored(status, 13));
        assert!(!is_ignored(status, SIGINT));
        assert!(!is_ignored("", SIGHUP));
    }

    #[test]
    fn a_repeated_signal_is_an_echo_for_a_moment() {
        let first = (SIGTERM, Instant::now());
        let later = |after| first.1 + after;
        assert!(is_echo(SIGTERM, first, later(ECHO / 2)));
        assert!(!is_echo(SIGTERM, first, later(ECHO)));
        assert!(!is_echo(SIGINT, first, later(Duration::ZERO)));
    }
}
