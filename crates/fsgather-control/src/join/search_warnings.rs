//! Says as long as a search goes on that rank 0 is looked for, since nobody else can: [`SearchWarnings`].

use std::time::{Duration, Instant};

use fsgather_core::{FIRST_WARNING, duration_text, sys::clock, warning_after};

use crate::waiting::AwakeDeadline;

/// A look that takes so long is worth a word of its own.
const SLOW_LOOK: Duration = Duration::from_secs(5);

/// When the next warning is due; times in which this process is stopped do not count.
#[derive(Debug)]
pub(super) struct SearchWarnings {
    next: Duration,
    due: AwakeDeadline,
}

impl SearchWarnings {
    /// For a search that begins now.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            next: FIRST_WARNING,
            due: AwakeDeadline::after(now, FIRST_WARNING),
        }
    }

    /// Waits until it is time to warn; for how long the search has gone on by then. May be dropped and asked again.
    pub(super) async fn due(&mut self) -> Duration {
        self.due.passed().await;
        let waited = self.next;
        self.next = warning_after(waited);
        self.due.postpone(self.next.saturating_sub(waited));
        waited
    }
}

/// For how long a look has been under way, where that is worth a word.
pub(super) fn slow_since(began: Instant) -> Option<Duration> {
    Some(clock::since(began)).filter(|lasts| *lasts >= SLOW_LOOK)
}

/// What is said of a look that does not come back.
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
    fn warnings_are_due_at_growing_distances_whoever_asks_again_and_again() {
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
