//! Warnings during a search that rank 0 is looked for, since no other process can warn: [`SearchWarnings`].

use std::time::{Duration, Instant};

use fsgather_core::{FIRST_WARNING, duration_text, sys::clock, warning_after};

use crate::waiting::AwakeDeadline;

/// Duration from which a look is worth a message of its own.
const SLOW_LOOK: Duration = Duration::from_secs(5);

/// The time of the next warning; times in which this process is stopped do not count.
#[derive(Debug)]
pub(super) struct SearchWarnings {
    next: Duration,
    due: AwakeDeadline,
}

impl SearchWarnings {
    /// The warnings of a search that begins now.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            next: FIRST_WARNING,
            due: AwakeDeadline::after(now, FIRST_WARNING),
        }
    }

    /// Waits until it is time to warn, and returns the duration of the search by then. May be dropped and called again.
    pub(super) async fn due(&mut self) -> Duration {
        self.due.passed().await;
        let waited = self.next;
        self.next = warning_after(waited);
        self.due.postpone(self.next.saturating_sub(waited));
        waited
    }
}

/// Time for which a look has been under way, if that is worth a message.
pub(super) fn slow_since(began: Instant) -> Option<Duration> {
    Some(clock::since(began)).filter(|lasts| *lasts >= SLOW_LOOK)
}

/// Text about a look that does not return.
pub(super) fn unanswered_text(place: &str, is_address: bool, lasts: Duration) -> String {
    let lasts = duration_text(lasts);
    if is_address {
        format!("the name in {place} has been looked up for {lasts}")
    } else {
        format!("the file system of {place} has not answered for {lasts}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_look_that_takes_long_is_worth_a_word() {
        assert_eq!(slow_since(clock::now()), None);
        let long_ago = clock::now().checked_sub(SLOW_LOOK).unwrap();
        assert!(slow_since(long_ago).unwrap() >= SLOW_LOOK);
    }

    #[test]
    fn it_is_said_what_does_not_answer() {
        let text = |is_address| unanswered_text("tcp://head:1", is_address, SLOW_LOOK);
        assert_eq!(
            text(true),
            "the name in tcp://head:1 has been looked up for 5 s"
        );
        assert_eq!(
            text(false),
            "the file system of tcp://head:1 has not answered for 5 s"
        );
    }

    #[test]
    fn search_warnings_grow_apart_even_if_polled_repeatedly() {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().unwrap();
        runtime.block_on(async {
            let mut warnings = SearchWarnings {
                next: Duration::from_millis(40),
                due: AwakeDeadline::after(clock::now(), Duration::from_millis(40)),
            };
            let (began, mut lasts) = (clock::now(), Vec::new());
            while lasts.len() < 3 {
                let due = tokio::time::timeout(Duration::from_millis(10), warnings.due()).await;
                lasts.extend(due);
            }
            assert_eq!(lasts, [40, 80, 160].map(Duration::from_millis));
            assert!(clock::since(began) >= Duration::from_millis(160));
        });
    }
}
