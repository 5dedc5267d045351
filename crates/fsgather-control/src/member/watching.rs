//! A look at the process of a rank 0 that says nothing, by a rank of its host: [`Watching`]. Pure.
//!
//! What others are doing rank 0 asks them. When it is stopped nobody asks, so that a neighbour looks itself, shortly before it
//! warns or gives rank 0 up.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fsgather_core::{Neighbour, Rank, RankNames, RollCall, ThreadState, Whereabouts};

/// How long before something is told of it rank 0 is looked at.
const LEAD: Duration = Duration::from_secs(2);

/// Tells these looks from those that rank 0 orders.
pub(super) const OWN_LOOK: u64 = u64::MAX;

/// What is known of rank 0's process.
#[derive(Clone, Debug, Default)]
pub(super) struct Watching {
    /// Where it can be seen.
    root: Option<Neighbour>,
    looked: Option<Instant>,
    seen: Option<ThreadState>,
    /// What messages call ranks.
    names: RankNames,
}

impl Watching {
    /// Of this process.
    pub(super) fn of(root: Neighbour) -> Self {
        Self {
            root: Some(root),
            ..Self::default()
        }
    }

    /// Says what messages call ranks.
    pub(super) fn name_ranks(&mut self, names: &RankNames) {
        self.names = names.clone();
    }

    /// What messages call ranks.
    pub(super) const fn names(&self) -> &RankNames {
        &self.names
    }

    /// Whether rank 0, last heard of then, has been silent for so long that something may be told of it soon.
    pub(super) fn is_worth_a_look(&self, heard: Instant, now: Instant) -> bool {
        self.root.is_some() && now.saturating_duration_since(heard) >= LEAD
    }

    /// When to look, if something is told then.
    pub(super) fn due(&self, told: Instant) -> Option<Instant> {
        self.root?;
        let due = told.checked_sub(LEAD)?;
        self.looked.is_none_or(|at| at < due).then_some(due)
    }

    /// At whom to look now, which is so once.
    pub(super) fn take_look(&mut self, told: Instant, now: Instant) -> Option<Neighbour> {
        self.due(told).filter(|due| *due <= now)?;
        self.looked = Some(now);
        self.seen = None;
        self.root
    }

    /// Takes what was seen.
    pub(super) fn see(&mut self, whereabouts: Option<Whereabouts>) {
        self.seen = whereabouts.and_then(|its| its.state);
    }

    /// What is to be told of rank 0.
    pub(super) fn roll_call(&self) -> RollCall {
        let seen = self.seen.clone();
        let seen = seen.map(|state| Arc::new(Whereabouts::silent(Some(state))));
        RollCall::of(seen.map(|seen| (Rank::ZERO, seen)))
    }
}
