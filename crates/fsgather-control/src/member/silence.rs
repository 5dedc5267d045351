//! A rank 0 that says nothing while others wait for its word: [`Silence`]. Pure.
//!
//! Rank 0 warns of ranks that keep the others waiting. Nobody does when it is rank 0 that is stopped, so a member
//! that waits and has heard nothing for long asks it whether it is there.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fsgather_core::{CallName, ChannelId, Deadline, FIRST_WARNING, warning_after};

/// When rank 0 has said nothing for so long it is asked, so that it has answered when it is time to warn.
const ASK_AT: Duration = Duration::from_secs(20);

/// So long after it was last noted that nothing moves, something may.
const STILL: Duration = Duration::from_secs(2);

/// A call whose payloads go from rank to rank, and in which nothing moves.
#[derive(Clone, Debug)]
pub(super) struct StalledCall {
    channel: ChannelId,
    call: Arc<CallName>,
    since: Instant,
    timeout: Duration,
    noted: Instant,
}

impl StalledCall {
    /// One in which nothing has moved for so long `now`, and which times out when nothing has moved for its time-out.
    pub(super) fn new(
        channel: ChannelId,
        call: Arc<CallName>,
        (idle, timeout): (Duration, Duration),
        now: Instant,
    ) -> Self {
        Self {
            channel,
            call,
            since: now.checked_sub(idle).unwrap_or(now),
            timeout,
            noted: now,
        }
    }

    /// The communicator that it is a call of.
    pub(super) const fn channel(&self) -> ChannelId {
        self.channel
    }

    pub(super) const fn call(&self) -> &Arc<CallName> {
        &self.call
    }

    /// Since when nothing has moved, if that is so still.
    pub(super) fn since(&self, now: Instant) -> Option<Instant> {
        let is_fresh = now.saturating_duration_since(self.noted) < STILL;
        is_fresh.then_some(self.since)
    }

    /// When it times out, if nothing has moved still.
    pub(super) fn times_out_at(&self, now: Instant) -> Option<Instant> {
        Some(Deadline::after(self.since(now)?, self.timeout).at())
    }
}

/// What is to be done about rank 0's silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Ask it whether it is there.
    Ask,
    /// Tell the user that it has said nothing for so long.
    Warning(Duration),
}

/// What has been done about rank 0's silence.
#[derive(Clone, Debug)]
pub(crate) struct Silence {
    /// When rank 0 last said something.
    heard: Instant,
    is_asked: bool,
    next_warning: Duration,
}

impl Silence {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            heard: now,
            is_asked: false,
            next_warning: FIRST_WARNING,
        }
    }

    /// What is due now, once, for who has waited `since` then and last `heard` from rank 0 then.
    pub(crate) fn look(&mut self, since: Instant, heard: Instant, now: Instant) -> Option<Due> {
        if heard > self.heard {
            *self = Self::new(heard);
        }
        let silent = now.saturating_duration_since(since.max(self.heard));
        if silent < ASK_AT {
            return None;
        }
        if !self.is_asked {
            self.is_asked = true;
            return Some(Due::Ask);
        }
        if silent < self.next_warning {
            return None;
        }
        while self.next_warning <= silent {
            self.next_warning = warning_after(self.next_warning);
        }
        Some(Due::Warning(silent))
    }

    /// When the next warning will be due, once rank 0 has not answered.
    pub(super) fn warns(&self, since: Instant, heard: Instant) -> Option<Instant> {
        let is_silent = self.is_asked && heard <= self.heard;
        is_silent.then(|| since.max(self.heard) + self.next_warning)
    }

    /// When something will be due, for who has waited `since` then.
    pub(super) fn due(&self, since: Instant) -> Instant {
        let pause = if self.is_asked {
            self.next_warning
        } else {
            ASK_AT
        };
        since.max(self.heard) + pause
    }
}
