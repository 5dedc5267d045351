//! Durations on the command line.

use std::time::Duration;

/// Reads a duration with its unit, `30s`, `5m` or `1h 30m`; `0s` is one, a bare number is not.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    const RIGHT: &str = "write a number and its unit, such as 30s, 5m or 2h";
    if text.trim().bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(RIGHT.to_owned());
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; {RIGHT}"))
}

/// Reads a duration like [`duration`], but not one of length zero.
pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be more than 0s".to_owned()),
        duration => Ok(duration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h 30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        for wrong in ["90", "0", "", "s", "-5s", "5 parsecs"] {
            let message = duration(wrong).unwrap_err();
            assert!(message.contains("such as 30s"), "{wrong}: {message}");
        }
    }

    #[test]
    fn time_outs_cannot_be_zero() {
        assert!(positive_duration("0ms").is_err());
        assert_eq!(positive_duration("1ms"), Ok(Duration::from_millis(1)));
    }
}
