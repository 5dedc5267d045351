//! The names that other users have left, so that any number of them is looked at once in a while only: [`ForeignNames`].

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Time for which the owner that a file was seen to have is believed.
pub(super) const KEPT: Duration = Duration::from_secs(10);

/// The names that were found to be of other users in each directory.
#[derive(Debug, Default)]
pub(super) struct ForeignNames {
    pub(super) names: BTreeMap<PathBuf, HashSet<String>>,
    pub(super) since: Option<Instant>,
}

impl ForeignNames {
    /// Takes out what is known of one directory; nothing after a while: a server may have shown a wrong owner for a
    /// moment.
    pub(super) fn take(&mut self, directory: &Path, now: Instant) -> HashSet<String> {
        if self
            .since
            .is_none_or(|since| now.saturating_duration_since(since) >= KEPT)
        {
            self.names.clear();
            self.since = Some(now);
        }
        self.names.remove(directory).unwrap_or_default()
    }

    /// Notes what is known of it now.
    pub(super) fn put(&mut self, directory: PathBuf, names: HashSet<String>) {
        self.names.insert(directory, names);
    }
}
