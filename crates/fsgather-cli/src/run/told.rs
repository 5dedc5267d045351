//! An error that a rank has met with, and what became of it: [`Told`]. Pure.

use std::time::{Duration, Instant};

use fsgather::Rank;
use fsgather_report::last_error::LastError;

/// A rank that ends within this after an error may have ended by it.
pub(super) const SOON: Duration = Duration::from_secs(30);

/// A failure and what other ranks tell of it are no further apart, where its process does not outlive it by more.
pub(super) const BEFORE: Duration = Duration::from_secs(1);

/// The last error that a rank has told of.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// The error.
    pub(super) error: LastError,
    /// When that was.
    pub(super) at: Instant,
    /// Whether the rank has said something else since, so that this is not what it ended by.
    pub(super) went_on: bool,
}

impl Told {
    /// Whether it blames a rank.
    pub(super) fn blames(&self, rank: Rank) -> bool {
        self.error.blames.contains(&rank.get())
    }

    /// How long before that it was.
    pub(super) fn before(&self, then: Instant) -> Duration {
        then.saturating_duration_since(self.at)
    }
}
