//! Worlds of this job that were told another world size: [`OtherSizes`]. Messages name them where rank 0 is not found.
//!
//! Ranks look for each other by a key that has the world size in it, so that a rank that was told another one would wait for a
//! rank 0 that does not exist, and the others for that rank, without anybody knowing why. Who has looked for a while therefore asks
//! those rank 0s as well. None takes it in, and none fails by it: one job may have worlds of several sizes at a time.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use fsgather_core::sys::clock;

use crate::join::refusal;

/// Interval at which they are looked for.
const EVERY: Duration = Duration::from_secs(5);

/// What is known of worlds of this job that have another size.
#[derive(Debug)]
pub(super) struct OtherSizes {
    look_at: Instant,
    /// Those that have been found, by name, and whether they have answered.
    found: HashMap<String, bool>,
}

impl OtherSizes {
    /// Such worlds are looked for once meeting takes long.
    pub(super) fn new(join_timeout: Duration) -> Self {
        Self {
            look_at: clock::now() + refusal::looking_back_after(join_timeout),
            found: HashMap::new(),
        }
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.found.contains_key(name)
    }

    /// Returns true if it is time to look for them, which it is not again for a while.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.look_at;
        if is_due {
            self.look_at = now + EVERY;
        }
        is_due
    }

    /// Returns true if such a world has answered; takes note of it if it is new.
    pub(super) fn has_answered(&mut self, name: &str) -> bool {
        *self.found.entry(name.to_owned()).or_default()
    }

    /// Takes note that such a world has answered.
    pub(super) fn heard_of(&mut self, name: &str) {
        if let Some(has_answered) = self.found.get_mut(name) {
            *has_answered = true;
        }
    }
}
