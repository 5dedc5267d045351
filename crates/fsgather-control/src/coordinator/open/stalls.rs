//! Payloads that go from rank to rank and make no progress: [`Stalls`].
//!
//! Such a call is decided already, so that rank 0 itself waits for nothing. Its members report between which ranks nothing
//! moves. A rank that waits is not the cause: the rank that blocks the others is blamed by them and does not wait, or is
//! not there at all. So rank 0 asks the other ranks whether they are there.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use fsgather_core::{Epoch, FIRST_WARNING, Rank, warning_after};

use crate::message::StallReport;

/// Time within which a rank must answer; otherwise it counts as not there.
const ANSWER: Duration = Duration::from_secs(9);

/// Time without movement after which the others are asked, so that they have answered when it is time to warn.
const ASK_AT: Duration = Duration::from_secs(20);

/// Time for which a member's report is valid; the next one arrives before.
const FRESH: Duration = Duration::from_secs(45);

/// Reports about one call.
#[derive(Clone, Debug)]
pub(super) struct Stall {
    /// The reports of members, and the times of their arrival.
    pub(super) waits: BTreeMap<Rank, (StallReport, Instant)>,
    next_warning: Duration,
    /// Time at which the others were last asked whether they are there.
    pub(super) asked: Option<Instant>,
}

/// Reports about the calls of one communicator.
#[derive(Clone, Debug, Default)]
pub(super) struct Stalls {
    pub(super) calls: BTreeMap<Epoch, Stall>,
}

impl Stalls {
    /// Stores a member's report about a call.
    pub(super) fn record(
        &mut self,
        from: Rank,
        epoch: Epoch,
        wait: StallReport,
        now: Instant,
    ) -> &mut Stall {
        let is_fresh = |heard: Instant| now.saturating_duration_since(heard) < FRESH;
        self.calls.retain(|_, stall| {
            stall.waits.retain(|_, (_, heard)| is_fresh(*heard));
            !stall.waits.is_empty()
        });
        let stall = self.calls.entry(epoch).or_insert_with(|| Stall {
            waits: BTreeMap::new(),
            next_warning: FIRST_WARNING,
            asked: None,
        });
        let idle = wait.idle;
        let before = stall.waits.insert(from, (wait, now));
        if before.is_some_and(|(before, _)| before.idle > idle) {
            // It has moved on since.
            stall.next_warning = FIRST_WARNING;
        }
        stall
    }
}

impl Stall {
    /// Returns true, once, if it is time to warn.
    pub(super) fn is_to_warn(&mut self, idle: Duration) -> bool {
        let is_due = idle >= self.next_warning;
        while self.next_warning <= idle {
            self.next_warning = warning_after(self.next_warning);
        }
        is_due
    }

    /// Returns true, once, if it is time to ask the others.
    pub(super) fn is_to_ask(&mut self, idle: Duration, now: Instant) -> bool {
        let is_old = |asked: Instant| now.saturating_duration_since(asked) >= ANSWER;
        let is_due = idle >= ASK_AT && self.asked.is_none_or(is_old);
        if is_due {
            self.asked = Some(now);
        }
        is_due
    }

    /// Ranks that are waited for and do not wait.
    pub(super) fn blamed(&self) -> BTreeSet<Rank> {
        let waited_for = self.waits.values().flat_map(|(wait, _)| &wait.waits_for);
        waited_for
            .filter(|rank| !self.waits.contains_key(rank))
            .copied()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stall() -> Stall {
        Stall {
            waits: BTreeMap::new(),
            next_warning: FIRST_WARNING,
            asked: None,
        }
    }

    fn just_before(time: Duration) -> Duration {
        time.saturating_sub(Duration::from_millis(1))
    }

    #[test]
    fn stalled_ranks_are_asked_and_again_if_no_answer_comes() {
        let (mut stall, start) = (stall(), Instant::now());
        assert!(!stall.is_to_ask(just_before(ASK_AT), start));
        assert!(stall.is_to_ask(ASK_AT, start));
        assert!(!stall.is_to_ask(ASK_AT * 2, start + just_before(ANSWER)));
        assert!(!stall.is_to_ask(just_before(ASK_AT), start + ANSWER));
        assert!(stall.is_to_ask(ASK_AT * 2, start + ANSWER));
    }

    #[test]
    fn each_warning_comes_once_also_where_several_are_due() {
        let mut stall = stall();
        assert!(!stall.is_to_warn(just_before(FIRST_WARNING)));
        let third = warning_after(warning_after(FIRST_WARNING));
        assert!(stall.is_to_warn(third) && !stall.is_to_warn(third));
        assert!(stall.is_to_warn(warning_after(third)));
    }
}
