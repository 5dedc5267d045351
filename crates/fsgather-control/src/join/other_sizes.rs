//! Worlds of this job that were given another world size: [`OtherSizes`]. Messages name them if rank 0 is not found.
//!
//! Ranks look for each other by a key that has the world size in it, so that a rank with another one would wait for a rank
//! 0 that does not exist, and the others for that rank, without an explanation. So a rank that has looked for a while asks
//! those rank 0s as well. None accepts it, and none fails by it: one job may have worlds of several sizes at a time.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use fsgather_core::sys::clock;

use crate::join::refusal;

/// Interval between searches for them.
const EVERY: Duration = Duration::from_secs(5);

/// Known worlds of this job that have another size.
#[derive(Debug)]
pub(super) struct OtherSizes {
    look_at: Instant,
    /// The worlds that have been found, by name, each with true if it has answered.
    found: HashMap<String, bool>,
}

impl OtherSizes {
    /// Looks for such worlds once meeting takes long.
    pub(super) fn new(join_timeout: Duration) -> Self {
        Self {
            look_at: clock::now() + refusal::looking_back_after(join_timeout),
            found: HashMap::new(),
        }
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.found.contains_key(name)
    }

    /// Returns true if it is time to look for them, and then not again for a while.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.look_at;
        if is_due {
            self.look_at = now + EVERY;
        }
        is_due
    }

    /// Returns true if such a world has answered; remembers it if it is new.
    pub(super) fn has_answered(&mut self, name: &str) -> bool {
        *self.found.entry(name.to_owned()).or_default()
    }

    /// Notes that such a world has answered.
    pub(super) fn heard_of(&mut self, name: &str) {
        if let Some(has_answered) = self.found.get_mut(name) {
            *has_answered = true;
        }
    }
}
