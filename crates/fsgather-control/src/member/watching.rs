//! A look at the process of a silent rank 0 by a rank of its host: [`Watching`]. Pure.
//!
//! Rank 0 asks other ranks what they are doing. If rank 0 is stopped, no rank asks: a neighbour then looks at its process
//! itself, shortly before it warns or gives rank 0 up.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fsgather_core::{Neighbour, Rank, RankNames, RollCall, ThreadState, Whereabouts};

/// Lead time of a look at rank 0 before its silence is reported.
const LEAD: Duration = Duration::from_secs(2);

/// Number that tells these looks from those that rank 0 orders.
pub(super) const OWN_LOOK: u64 = u64::MAX;

/// State of the look at rank 0's process.
#[derive(Clone, Debug, Default)]
pub(super) struct Watching {
    /// The process to look at, if this one can see it.
    root: Option<Neighbour>,
    looked: Option<Instant>,
    seen: Option<ThreadState>,
    /// Names of ranks in messages.
    names: RankNames,
}

impl Watching {
    /// Watches the process `root`.
    pub(super) fn of(root: Neighbour) -> Self {
        Self {
            root: Some(root),
            ..Self::default()
        }
    }

    /// Sets the names of ranks in messages.
    pub(super) fn name_ranks(&mut self, names: &RankNames) {
        self.names = names.clone();
    }

    /// Names of ranks in messages.
    pub(super) const fn names(&self) -> &RankNames {
        &self.names
    }

    /// Returns true if rank 0, whose last message was at `heard`, has been silent for long enough that its silence may be
    /// reported soon.
    pub(super) fn is_worth_a_look(&self, heard: Instant, now: Instant) -> bool {
        self.root.is_some() && now.saturating_duration_since(heard) >= LEAD
    }

    /// Time of the next look, if the silence is reported at `told`.
    pub(super) fn due(&self, told: Instant) -> Option<Instant> {
        self.root?;
        let due = told.checked_sub(LEAD)?;
        self.looked.is_none_or(|at| at < due).then_some(due)
    }

    /// Returns the process to look at now, once for each report.
    pub(super) fn take_look(&mut self, told: Instant, now: Instant) -> Option<Neighbour> {
        self.due(told).filter(|due| *due <= now)?;
        self.looked = Some(now);
        self.seen = None;
        self.root
    }

    /// Stores the result of a look.
    pub(super) fn see(&mut self, whereabouts: Option<Whereabouts>) {
        self.seen = whereabouts.and_then(|its| its.state);
    }

    /// The state of rank 0 for messages.
    pub(super) fn roll_call(&self) -> RollCall {
        let seen = self.seen.clone();
        let seen = seen.map(|state| Arc::new(Whereabouts::silent(Some(state))));
        RollCall::of(seen.map(|seen| (Rank::ZERO, seen)))
    }
}
