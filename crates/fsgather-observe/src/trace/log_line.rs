//! A call in one line of the log: [`log_line`]. Pure.

use std::time::Duration;

use fsgather_core::{Rank, bytes_text, duration_text};

use crate::trace::record::CallRecord;

/// The rank that came last in a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LastRank<'a> {
    Unknown,
    /// The rank itself.
    Own,
    /// Its name in the job, and its host.
    Other(Rank, Option<&'a str>),
}

/// Describes a call that has ended, such as `all_gather #2 eval.py:42  4 ranks  48.0 MiB  1.83 s (waited 1.71 s for rank 2 on n7,
/// moved for 0.12 s)`.
///
/// `received` is the number of bytes that this rank has received, if it is a recipient; `last` is the rank that came
/// last.
pub(crate) fn log_line(record: &CallRecord, received: Option<u64>, last: LastRank<'_>) -> String {
    let ended = record.ended.unwrap_or(record.begun);
    let took = Duration::from_nanos(ended.saturating_sub(record.begun));
    let waited = Duration::from_nanos(record.waited().unwrap_or_default());
    let whom = match last {
        LastRank::Unknown => String::new(),
        LastRank::Own => ", came last".into(),
        LastRank::Other(rank, Some(host)) => format!(" for rank {rank} on {host}"),
        LastRank::Other(rank, None) => format!(" for rank {rank}"),
    };
    let bytes = match (received, record.moved) {
        (Some(received), _) => format!("  {}", bytes_text(received)),
        (None, 0) => String::new(),
        (None, moved) => format!("  {} handed in", bytes_text(moved)),
    };
    format!(
        "{} {}  {} rank{}{bytes}  {} (waited {}{whom}, moved for {})",
        record.name(),
        record.site,
        record.ranks,
        if record.ranks == 1 { "" } else { "s" },
        seconds_text(took),
        seconds_text(waited),
        seconds_text(took.saturating_sub(waited)),
    )
}

/// Formats a time that is compared with others: in seconds, as long as that reads well.
fn seconds_text(time: Duration) -> String {
    if time < Duration::from_secs(600) {
        format!("{:.2} s", time.as_secs_f64())
    } else {
        duration_text(Duration::from_secs(time.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::record::Outcome;

    #[test]
    fn a_call_is_one_line_with_who_came_last() {
        let millis = |millis: u64| millis * 1_000_000;
        let record = CallRecord {
            number: 2,
            ranks: 4,
            outcome: Outcome::Done,
            begun: millis(10),
            handed_in: Some(millis(60)),
            decided: Some(millis(1770)),
            ended: Some(millis(1840)),
            operation: "all_gather".into(),
            site: "eval.py:42".into(),
            ..CallRecord::default()
        };
        let line = |record: &CallRecord, received, host| {
            log_line(record, received, LastRank::Other(Rank::new(2), host))
        };
        assert_eq!(
            line(&record, Some(48 << 20), Some("n7")),
            "all_gather #2 eval.py:42  4 ranks  48.0 MiB  1.83 s (waited 1.71 s for rank 2 on n7, moved for 0.12 s)"
        );
        let own = log_line(&record, Some(48 << 20), LastRank::Own);
        assert!(
            own.ends_with("1.83 s (waited 1.71 s, came last, moved for 0.12 s)"),
            "{own}"
        );
        let text = line(&record, None, None);
        assert!(
            text.contains("  4 ranks  1.83 s (waited 1.71 s for rank 2, moved"),
            "{text}"
        );
        let moved = CallRecord {
            moved: 12 << 20,
            ..record
        };
        let text = line(&moved, None, None);
        assert!(
            text.contains("  4 ranks  12.0 MiB handed in  1.83 s "),
            "{text}"
        );
    }
}
