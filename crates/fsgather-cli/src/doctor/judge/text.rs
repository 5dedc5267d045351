//! Writes quantities for messages.

use std::time::Duration;

use fsgather_core::duration_text;

/// Writes a time with about two digits: `0.4 ms`, `35 ms`, `1.2 s`, `3 min`.
pub(super) fn seconds(seconds: f64) -> String {
    let millis = seconds * 1000.0;
    if millis < 10.0 {
        format!("{millis:.1} ms")
    } else if seconds < 1.0 {
        format!("{millis:.0} ms")
    } else if seconds < 120.0 {
        format!("{seconds:.1} s")
    } else {
        let whole = Duration::try_from_secs_f64(seconds.round());
        duration_text(whole.unwrap_or(Duration::MAX))
    }
}

/// Writes a number of things: `1 rank`, `3 ranks`.
pub(crate) fn counted(count: usize, one: &str) -> String {
    if count == 1 {
        format!("1 {one}")
    } else {
        format!("{count} {one}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_units_and_plurals() {
        for (value, text) in [
            (0.0004, "0.4 ms"),
            (0.035, "35 ms"),
            (1.25, "1.2 s"),
            (119.3, "119.3 s"),
            (180.4, "3 min"),
        ] {
            assert_eq!(seconds(value), text);
        }
        assert_eq!(
            (counted(1, "rank"), counted(0, "host")),
            ("1 rank".into(), "0 hosts".into())
        );
    }
}
