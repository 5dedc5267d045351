//! Ranks in different calls, which are asked where in the program they are before all learn of it: [`Disagreement`].

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use fsgather_core::{Call, Error, Rank};

use crate::coordinator::roster::Roster;

/// Time in which ranks that are on their way to a call may arrive, so that the error has their calls as well.
const ARRIVAL_GRACE: Duration = Duration::from_millis(200);

/// The error of ranks in different calls, before it is complete.
#[derive(Clone, Debug)]
pub(super) struct Disagreement {
    /// The error, still without stacks.
    pub(super) cause: Error,
    /// Ranks that are asked.
    asked: Vec<Rank>,
    /// The calls of ranks that are in none of the rounds.
    pub(super) calls: BTreeMap<Rank, Call>,
    pub(super) since: Instant,
    /// True if all members have arrived, or had [`ARRIVAL_GRACE`] for it.
    pub(super) is_complete: bool,
    /// The time at which all learn of it, even if ranks have not answered.
    until: Instant,
}

impl Disagreement {
    /// A disagreement that has just appeared, and waits for the answers of these ranks for at most `lead`.
    pub(super) fn new(cause: Error, mut asked: Vec<Rank>, lead: Duration, now: Instant) -> Self {
        asked.sort_unstable();
        asked.dedup();
        Self {
            cause,
            asked,
            calls: BTreeMap::new(),
            since: now,
            is_complete: false,
            until: now + lead,
        }
    }

    /// Ranks that are asked, in order.
    pub(super) fn asked(&self) -> &[Rank] {
        &self.asked
    }

    /// Adds a rank that has to be asked, and returns true if it is new.
    pub(super) fn add(&mut self, rank: Rank) -> bool {
        let place = self.asked.binary_search(&rank);
        if let Err(place) = place {
            self.asked.insert(place, rank);
        }
        place.is_err()
    }

    /// Time at which something has to happen next.
    pub(super) fn due(&self) -> Instant {
        if self.is_complete {
            return self.until;
        }
        self.until.min(self.since + ARRIVAL_GRACE)
    }

    /// Returns true if no answer of the ranks that are asked is outstanding.
    pub(super) fn is_answered(&self, roster: &Roster) -> bool {
        let mut asked = self.asked.iter();
        asked.all(|rank| roster.has_answered(*rank, self.since))
    }

    /// Returns true if all members that take part have arrived in some call, or had time for it.
    pub(super) fn has_all(
        &self,
        mut members: impl Iterator<Item = Rank>,
        roster: &Roster,
        now: Instant,
    ) -> bool {
        self.is_complete
            || now >= self.since + ARRIVAL_GRACE
            || members.all(|rank| !roster.is_present(rank) || self.asked.contains(&rank))
    }

    /// Returns true if the time for answers is over.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.until <= now
    }
}
