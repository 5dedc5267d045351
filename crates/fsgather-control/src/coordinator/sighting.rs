//! The last answer to a question about the activity of a rank: [`Sighting`].

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fsgather_core::Whereabouts;

/// Time after a question in which the rank is not asked again.
const QUESTION_INTERVAL: Duration = Duration::from_secs(1);

/// Time for which an answer counts as the present activity of a rank.
const FRESH: Duration = Duration::from_secs(20);

/// A rank's own answer.
#[derive(Clone, Debug)]
enum Answer {
    /// It has not arrived.
    None,
    /// The rank reports nothing about itself.
    Silence,
    /// The activity of the rank, and true if that is the call that it is in.
    Word(Arc<Whereabouts>, bool),
}

/// The answer to the last question about the activity of a rank.
#[derive(Clone, Debug)]
pub(super) struct Sighting {
    /// Number of the question.
    pub(super) number: u64,
    asked: Instant,
    own: Answer,
    /// The activity as another process sees it.
    witnessed: Option<Whereabouts>,
}

impl Sighting {
    /// A question without an answer.
    pub(super) const fn asked(number: u64, now: Instant) -> Self {
        Self {
            number,
            asked: now,
            own: Answer::None,
            witnessed: None,
        }
    }

    /// Returns true if the rank may be asked again.
    pub(super) fn is_old(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.asked) >= QUESTION_INTERVAL
    }

    /// Stores the rank's own answer.
    pub(super) fn answer(&mut self, whereabouts: Option<Whereabouts>) {
        self.own = whereabouts.map_or(Answer::Silence, |mut its| {
            // Ranks that do the same are reported together, whether others of their threads are in calls or not.
            let is_only_caller = std::mem::take(&mut its.is_only_caller);
            Answer::Word(Arc::new(its), is_only_caller)
        });
    }

    /// Stores the answer of another process.
    pub(super) fn witness(&mut self, whereabouts: Option<Whereabouts>) {
        self.witnessed = whereabouts;
    }

    /// Returns true if the rank was asked at `since` or later, and has not answered.
    pub(super) fn is_awaited(&self, since: Instant) -> bool {
        self.asked >= since && matches!(self.own, Answer::None)
    }

    /// The functions that made the call that the rank is in, as it has reported them itself since then. If several of its threads
    /// are in calls, it is not known which of them made that one.
    pub(super) fn caller(&self, since: Instant) -> Option<Arc<Whereabouts>> {
        match &self.own {
            Answer::Word(whereabouts, true) if self.asked >= since => Some(Arc::clone(whereabouts)),
            _ => None,
        }
    }

    /// The present activity of the rank, if it is known.
    pub(super) fn activity(&self, now: Instant) -> Option<Arc<Whereabouts>> {
        if now.saturating_duration_since(self.asked) >= FRESH {
            return None;
        }
        match &self.own {
            Answer::Word(whereabouts, _) => Some(Arc::clone(whereabouts)),
            Answer::Silence => None,
            Answer::None => {
                let state = self.witnessed.as_ref().and_then(|seen| seen.state.clone());
                Some(Arc::new(Whereabouts::silent(state)))
            }
        }
    }
}
