//! The names of other users' files, so that any number of them is examined only once in a while: [`ForeignNames`].

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Time for which the known owner of a file counts.
pub(super) const KNOWN_OWNER_TIME: Duration = Duration::from_secs(10);

/// The names of other users' files in each directory.
#[derive(Debug, Default)]
pub(super) struct ForeignNames {
    pub(super) names: BTreeMap<PathBuf, HashSet<String>>,
    pub(super) since: Option<Instant>,
}

impl ForeignNames {
    /// Takes out the known names of one directory; none after a while: a server may have shown a wrong owner temporarily.
    pub(super) fn take(&mut self, directory: &Path, now: Instant) -> HashSet<String> {
        if self
            .since
            .is_none_or(|since| now.saturating_duration_since(since) >= KNOWN_OWNER_TIME)
        {
            self.names.clear();
            self.since = Some(now);
        }
        self.names.remove(directory).unwrap_or_default()
    }

    /// Stores the known names of a directory.
    pub(super) fn put(&mut self, directory: PathBuf, names: HashSet<String>) {
        self.names.insert(directory, names);
    }
}
