//! Weighs the reports of members about others: [`Hearsay`].
//!
//! When a rank dies or fails, its neighbours in a ring see a link that ends, and so do theirs once these give up. Which
//! report arrives first is chance. So a member's report about another one that is connected is kept for a while:
//!
//! - a report of that rank about itself, or the end of its connection, is more to the point and takes precedence;
//! - a rank that has itself failed because of another one is not where the trouble is;
//! - if nothing else arrives, the reporter is believed. Its report is true then, though not the whole story: the link
//!   between the two was lost.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use fsgather_core::{Error, Rank};

/// Maximum time that a rank that others have lost may take to speak for itself, or its connection to end.
///
/// When a host vanishes, the kernel finds out for each connection by itself, some seconds apart.
const OWN_REPORT_TIME: Duration = Duration::from_secs(8);

/// The same for a rank that others have waited for in vain: the rank that waits longest reports last, and all others are
/// asked whether they are there.
const OTHER_REPORTS_TIME: Duration = Duration::from_secs(4);

/// Delay of a check from which this process counts as stopped meanwhile: it gets this time to read messages that have arrived.
const STOPPED_AFTER: Duration = Duration::from_millis(250);

/// One member's report about others.
#[derive(Clone, Debug)]
struct Word {
    from: Rank,
    about: Vec<Rank>,
    cause: Error,
}

/// Reports about others on one communicator.
#[derive(Clone, Debug)]
pub(super) struct Hearsay {
    /// Reports in the order of their arrival.
    words: Vec<Word>,
    since: Instant,
    until: Instant,
    was_late: bool,
}

impl Hearsay {
    /// No reports yet; those that arrive because of `cause` are believed after a while.
    pub(super) fn new(cause: &Error, now: Instant) -> Self {
        let wait = if is_timeout(cause) {
            OTHER_REPORTS_TIME
        } else {
            OWN_REPORT_TIME
        };
        Self {
            words: Vec::new(),
            since: now,
            until: now + wait,
            was_late: false,
        }
    }

    /// Keeps the first report of each member.
    pub(super) fn add(&mut self, from: Rank, about: Vec<Rank>, cause: Error) {
        if self.words.iter().all(|word| word.from != from) {
            self.words.push(Word { from, about, cause });
        }
    }

    /// Time of the first report.
    pub(super) const fn since(&self) -> Instant {
        self.since
    }

    /// The cause that is nearest to the trouble.
    pub(super) fn best_cause(&self) -> Option<&Error> {
        self.best().map(|word| &word.cause)
    }

    /// Time at which the reports are believed.
    pub(super) const fn due(&self) -> Instant {
        self.until
    }

    /// Returns true if the reports are believed now.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        let is_late = now > self.until + STOPPED_AFTER;
        if is_late && !self.was_late {
            self.was_late = true;
            self.until = now + STOPPED_AFTER;
        }
        now >= self.until
    }

    pub(super) fn is_about(&self, rank: Rank) -> bool {
        self.words.iter().any(|word| word.about.contains(&rank))
    }

    /// Ranks that this rank reports to wait for in vain.
    pub(super) fn of(&self, rank: Rank) -> impl Iterator<Item = Rank> + '_ {
        let words = self.words.iter().filter(move |word| word.from == rank);
        words.flat_map(|word| &word.about).copied()
    }

    /// Ranks that are blamed and have not blamed others themselves.
    pub(super) fn culprits(&self) -> BTreeSet<Rank> {
        let reporters: BTreeSet<Rank> = self.words.iter().map(|word| word.from).collect();
        let blamed = self.words.iter().flat_map(|word| &word.about).copied();
        blamed.filter(|rank| !reporters.contains(rank)).collect()
    }

    /// All ranks in the reports, reporters included.
    pub(super) fn concerned(&self) -> BTreeSet<Rank> {
        let ranks = self.words.iter();
        ranks
            .flat_map(|word| word.about.iter().chain([&word.from]))
            .copied()
            .collect()
    }

    /// The report that is nearest to the trouble.
    fn best(&self) -> Option<&Word> {
        let culprits = self.culprits();
        let blames_one = |word: &&Word| word.about.iter().any(|rank| culprits.contains(rank));
        // A link that has ended is a better hint than one on which nothing moves.
        let order = |word: &&Word| (!blames_one(word), is_timeout(&word.cause));
        self.words.iter().min_by_key(order)
    }
}

pub(super) const fn is_timeout(cause: &Error) -> bool {
    matches!(cause, Error::Timeout { .. })
}
