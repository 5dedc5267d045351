//! Weighs what members say of others: [`Hearsay`].
//!
//! When a rank dies or fails, its neighbours in a ring see a link that ends, and so do theirs once these give up.
//! Whose word is heard first is chance. So a member's word about another one that is connected is kept for a
//! while:
//!
//! - what that one says of itself, or the end of its connection, is more to the point and comes first;
//! - a rank that has itself failed because of another one is not where the trouble is;
//! - if nothing else comes, the reporter is believed. What it says then is true, if not all that could be known:
//!   that the link between the two was lost.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use fsgather_core::{ChannelId, Error, Missing, PeerFailure, Rank};

use super::{Coordinator, roster::Standing};

/// How long a rank that others have lost may take to speak for itself, or its connection to end.
///
/// When a host vanishes, the kernel finds out for each connection by itself, some seconds apart.
const OWN_WORD: Duration = Duration::from_secs(8);

/// The same for one that others have waited for in vain: whoever waits longest comes last, and all others are asked
/// whether they are there.
const OTHERS_WORD: Duration = Duration::from_secs(4);

/// Who looks so late was stopped itself, and has not read yet what came meanwhile.
const LATE: Duration = Duration::from_millis(250);

/// One member's word about others.
#[derive(Clone, Debug)]
struct Word {
    from: Rank,
    about: Vec<Rank>,
    cause: Error,
}

/// What has been said of others on one communicator.
#[derive(Clone, Debug)]
pub(super) struct Hearsay {
    /// In the order in which it was heard.
    words: Vec<Word>,
    since: Instant,
    until: Instant,
    was_late: bool,
}

impl Hearsay {
    /// When it is to be believed.
    pub(super) const fn due(&self) -> Instant {
        self.until
    }

    /// Whether it is to be believed now.
    fn is_over(&mut self, now: Instant) -> bool {
        let is_late = now > self.until + LATE;
        if is_late && !self.was_late {
            self.was_late = true;
            self.until = now + LATE;
        }
        now >= self.until
    }

    fn is_about(&self, rank: Rank) -> bool {
        self.words.iter().any(|word| word.about.contains(&rank))
    }

    /// Of whom this rank has said that it waits for them in vain.
    pub(super) fn of(&self, rank: Rank) -> impl Iterator<Item = Rank> + '_ {
        let words = self.words.iter().filter(move |word| word.from == rank);
        words.flat_map(|word| &word.about).copied()
    }

    /// Those that are blamed and have blamed nobody themselves.
    fn culprits(&self) -> BTreeSet<Rank> {
        let reporters: BTreeSet<Rank> = self.words.iter().map(|word| word.from).collect();
        let blamed = self.words.iter().flat_map(|word| &word.about).copied();
        blamed.filter(|rank| !reporters.contains(rank)).collect()
    }

    /// All that it is about, reporters included.
    fn concerned(&self) -> BTreeSet<Rank> {
        let ranks = self.words.iter();
        ranks
            .flat_map(|word| word.about.iter().chain([&word.from]))
            .copied()
            .collect()
    }

    /// The word that is nearest to the trouble.
    fn best(&self) -> Option<&Word> {
        let culprits = self.culprits();
        let blames_one = |word: &&Word| word.about.iter().any(|rank| culprits.contains(rank));
        // A link that has ended says more than one on which nothing moves.
        let order = |word: &&Word| (!blames_one(word), is_timeout(&word.cause));
        self.words.iter().min_by_key(order)
    }
}

const fn is_timeout(cause: &Error) -> bool {
    matches!(cause, Error::Timeout { .. })
}

impl Coordinator {
    /// Handles a member's word that it cannot go on.
    pub(super) fn word(&mut self, from: Rank, id: ChannelId, cause: Error, now: Instant) {
        let mut about = cause.blamed_by(from);
        about.retain(|rank| self.roster.get(*rank).is_some());
        let gone = about
            .iter()
            .find(|rank| !self.roster.is_connected(**rank))
            .and_then(|rank| self.departure(*rank));
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        if channel.failure.is_some() {
            return;
        }
        if about.is_empty() || gone.is_some() {
            self.fail_after_answers(id, &gone.unwrap_or(cause));
            return;
        }
        let wait = if is_timeout(&cause) {
            OTHERS_WORD
        } else {
            OWN_WORD
        };
        let is_first_late = is_timeout(&cause) && channel.hearsay.is_none();
        let hearsay = channel.hearsay.get_or_insert_with(|| Hearsay {
            words: Vec::new(),
            since: now,
            until: now + wait,
            was_late: false,
        });
        if hearsay.words.iter().all(|word| word.from != from) {
            hearsay.words.push(Word { from, about, cause });
        }
        if is_first_late {
            self.ask_all(id);
        }
    }

    /// Believes what has been said of a rank that is gone now.
    pub(super) fn confirm_hearsay(&mut self, rank: Rank, id: ChannelId) {
        let hearsay = self
            .channels
            .get(&id)
            .and_then(|channel| channel.hearsay.as_ref());
        if hearsay.is_some_and(|hearsay| hearsay.is_about(rank))
            && let Some(cause) = self.departure(rank)
        {
            self.fail_after_answers(id, &cause);
        }
    }

    /// Believes what nobody has spoken against for long enough.
    pub(super) fn tick_hearsay(&mut self, now: Instant) {
        let due = self.channels.values_mut().filter_map(|channel| {
            let is_over = channel.hearsay.as_mut()?.is_over(now);
            is_over.then_some(channel.id)
        });
        let due: Vec<ChannelId> = due.collect();
        for id in due {
            let channel = self.channels.get_mut(&id);
            let hearsay = channel.and_then(|channel| channel.hearsay.take());
            if let Some(cause) = hearsay.and_then(|hearsay| self.belief(id, &hearsay, now)) {
                self.fail_after_answers(id, &cause);
            }
        }
    }

    /// What hearsay comes to.
    fn belief(&self, id: ChannelId, hearsay: &Hearsay, now: Instant) -> Option<Error> {
        let mut cause = hearsay.best()?.cause.clone();
        if let Error::Timeout { missing, .. } = &mut cause {
            // Each has waited for its neighbours, which may well have waited in turn.
            let mut named = hearsay.culprits();
            named.extend(self.silent_since(id, Some(hearsay.since)));
            if named.is_empty() {
                named = hearsay.concerned();
            }
            let named = named.into_iter().map(|rank| self.roster.missing(rank, now));
            *missing = named.collect::<Vec<Missing>>();
        }
        Some(cause)
    }

    /// What to say of a rank that is gone.
    fn departure(&self, rank: Rank) -> Option<Error> {
        let member = self.roster.get(rank)?;
        let failure = match &member.standing {
            Standing::Present => return None,
            Standing::Closed(_) => PeerFailure::DEPARTED,
            // It had left, and was to stay for who says this.
            Standing::Gone(failure) if failure.is_departure() && member.lost.is_some() => {
                member.lost.clone()?
            }
            Standing::Staying(failure) | Standing::Gone(failure) => failure.clone(),
        };
        Some(Error::peer_failed(
            self.roster.peer(rank),
            member.activity.clone(),
            failure,
        ))
    }
}
