//! A rank 0 that is silent while others wait for its answer: [`Silence`]. Pure.
//!
//! Rank 0 warns of ranks that keep the others waiting. If rank 0 itself is stopped, no rank does, so a member that waits
//! and has heard nothing for long asks it whether it is there.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fsgather_core::{CallName, ChannelId, Deadline, FIRST_WARNING, warning_after};

/// Silence of rank 0 after which it is asked, so that it can answer before it is time to warn.
const ASK_AT: Duration = Duration::from_secs(20);

/// Time after a report that nothing moves for which that counts as still true.
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
    /// A call in which nothing has moved for `idle` at `now`, and which times out once nothing has moved for `timeout`.
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

    /// The communicator of the call.
    pub(super) const fn channel(&self) -> ChannelId {
        self.channel
    }

    pub(super) const fn call(&self) -> &Arc<CallName> {
        &self.call
    }

    /// Time since which nothing has moved, if that is still so.
    pub(super) fn since(&self, now: Instant) -> Option<Instant> {
        let is_fresh = now.saturating_duration_since(self.noted) < STILL;
        is_fresh.then_some(self.since)
    }

    /// Time at which it times out, if still nothing has moved.
    pub(super) fn times_out_at(&self, now: Instant) -> Option<Instant> {
        Some(Deadline::after(self.since(now)?, self.timeout).at())
    }
}

/// An action because of rank 0's silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Ask it whether it is there.
    Ask,
    /// Warn the user of a silence of this length.
    Warning(Duration),
}

/// The steps taken because of rank 0's silence.
#[derive(Clone, Debug)]
pub(crate) struct Silence {
    /// Time of rank 0's last message.
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

    /// Returns the action that is due now, once, for a caller that waits since `since` and had the last message of rank 0 at `heard`.
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

    /// Time of the next warning, once rank 0 has not answered.
    pub(super) fn warns(&self, since: Instant, heard: Instant) -> Option<Instant> {
        let is_silent = self.is_asked && heard <= self.heard;
        is_silent.then(|| since.max(self.heard) + self.next_warning)
    }

    /// Time of the next action, for a caller that waits since `since`.
    pub(super) fn due(&self, since: Instant) -> Instant {
        let pause = if self.is_asked {
            self.next_warning
        } else {
            ASK_AT
        };
        since.max(self.heard) + pause
    }
}
