//! Ranks that seem to have ended, and may still send messages: [`Departures`].

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use fsgather_core::Rank;

/// Time in which the last messages of a process that has ended may arrive.
///
/// Its own connection carries them and usually ends by itself; unless a forked child holds it open.
const LAST_MESSAGES_TIME: Duration = Duration::from_millis(500);

/// Maximum time in which a process may ask again after the connection over which it has asked has closed.
///
/// It gives up a try that is not answered within two seconds, and begins another one two seconds later at the latest.
pub(super) const RETURN_LIMIT: Duration = Duration::from_secs(5);

/// Ranks that count as lost soon, unless they send a message before.
#[derive(Clone, Debug, Default)]
pub(super) struct Departures {
    /// Ranks whose process is reported to have ended, and the end of the time for their last messages.
    suspects: BTreeMap<Rank, Instant>,
    /// Ranks whose connection has closed before they knew that they are members, the end of the time in which they may ask
    /// again, and the text of their loss otherwise.
    missed: BTreeMap<Rank, (Instant, String)>,
}

impl Departures {
    /// Notes that the process of a rank is reported to have ended.
    pub(super) fn suspect(&mut self, rank: Rank, now: Instant) {
        self.suspects
            .entry(rank)
            .or_insert(now + LAST_MESSAGES_TIME);
    }

    /// Notes that the connection of a rank has closed, and that the rank may ask again.
    pub(super) fn miss(&mut self, rank: Rank, how: &str, now: Instant) {
        let until = (now + RETURN_LIMIT, how.into());
        self.missed.entry(rank).or_insert(until);
    }

    /// Returns true if a rank may ask again.
    pub(super) fn is_missed(&self, rank: Rank) -> bool {
        self.missed.contains_key(&rank)
    }

    /// Notes that a rank does not ask again, or has; returns the text about the end of its connection.
    pub(super) fn find(&mut self, rank: Rank) -> Option<String> {
        self.missed.remove(&rank).map(|(_, how)| how)
    }

    /// Forgets a rank that is lost.
    pub(super) fn forget(&mut self, rank: Rank) {
        self.suspects.remove(&rank);
        self.missed.remove(&rank);
    }

    /// Returns true if the last messages of a rank are waited for.
    pub(super) fn has_suspects(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// A rank whose time is over, and the text of its loss.
    pub(super) fn first_due(&self, now: Instant) -> Option<(Rank, String)> {
        let ended = "its process has ended".to_owned();
        let suspects = self
            .suspects
            .iter()
            .map(|(rank, until)| (rank, until, &ended));
        let missed = self.missed.iter();
        let missed = missed.map(|(rank, (until, how))| (rank, until, how));
        let mut due = suspects
            .chain(missed)
            .filter(|(_, until, _)| **until <= now);
        due.next().map(|(rank, _, how)| (*rank, how.clone()))
    }

    /// Time at which the first one counts as lost.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let suspects = self.suspects.values().copied();
        let missed = self.missed.values().map(|(until, _)| *until);
        suspects.chain(missed).min()
    }
}
