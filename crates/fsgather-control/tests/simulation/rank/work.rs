//! The work that a rank is in the middle of: [`Current`], [`Work`], [`Doing`].

use std::time::Duration;

use fsgather_core::{Error, Leaves, Round, Step, Ticket, Verdict};

use super::Clock;
use crate::script::What;

/// A call under way.
#[derive(Clone, Debug)]
pub(super) struct Current {
    pub(super) ticket: Ticket,
    pub(super) round: u32,
    /// As this rank needs them at first, then as all have decided.
    pub(super) further_rounds: u32,
    pub(super) leaves: Leaves,
    pub(super) sends: bool,
    pub(super) what: Option<What>,
    pub(super) acknowledge: bool,
}

impl Current {
    pub(super) fn step(&self) -> Step {
        self.ticket.step(Round::new(self.round))
    }

    pub(super) fn go_on(&mut self, verdict: &Verdict) {
        if self.round == 0 {
            self.further_rounds = verdict.further_rounds;
            let table = verdict.table.as_ref();
            self.acknowledge = table.is_some_and(|table| table.acknowledge);
        }
    }
}

/// Work that takes time.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) until: Duration,
    pub(super) next_report: Duration,
    pub(super) moving: bool,
    pub(super) reports: u32,
}

impl Work {
    pub(super) fn new(seconds: u8, moving: bool, clock: Clock) -> Self {
        Self {
            until: clock.now + Duration::from_secs(seconds.into()),
            next_report: clock.now,
            moving,
            reports: 0,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Doing {
    Idle,
    Computing {
        until: Duration,
    },
    Publishing(Current, Work),
    Waiting(Current),
    Reading(Current, Work),
    Failing {
        current: Current,
        decided: bool,
        cause: Error,
        until: Duration,
    },
    Closing,
    /// Makes no more calls, and stays until its payloads have been read.
    Staying {
        failed: bool,
    },
    /// Rank 0 waits for the others to leave.
    Departing {
        until: Duration,
    },
    Ended,
}
