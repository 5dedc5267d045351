//! How quantities read in messages.

use std::time::Duration;

/// A duration as people say it: `850ms`, `3s`, `2m 5s`. Finer units than are of use are dropped.
#[must_use]
pub fn duration_text(duration: Duration) -> String {
    let rounded = if duration < Duration::from_secs(10) {
        Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    } else {
        Duration::from_secs(duration.as_secs())
    };
    humantime::format_duration(rounded).to_string()
}

/// A number of bytes as people say it: `17 bytes`, `64.0 MiB`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_as_people_say_them() {
        assert_eq!(duration_text(Duration::from_micros(850_400)), "850ms");
        assert_eq!(duration_text(Duration::from_millis(125_700)), "2m 5s");
        assert_eq!(bytes_text(17), "17 bytes");
        assert_eq!(bytes_text(64 << 20), "64.0 MiB");
        assert_eq!(bytes_text(u64::MAX), "16384.0 PiB");
    }
}
