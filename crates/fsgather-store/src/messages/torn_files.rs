//! Messages that could not be left whole: [`TornFiles`].

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
};

use fsgather_core::lock;

use crate::os::remove;

/// Files that a failed try may have left, where removing them may have failed as well. Whoever finds one waits for the rest of it,
/// and gives up in the end, although the message has come under another name.
#[derive(Debug, Default)]
pub(crate) struct TornFiles(Mutex<Vec<PathBuf>>);

impl TornFiles {
    /// Notes a file that may be there.
    pub(crate) fn note(&self, path: &Path) {
        lock(&self.0).push(path.to_owned());
    }

    /// Removes what can be removed by now.
    pub(crate) fn remove(&self) {
        let mut torn = std::mem::take(&mut *lock(&self.0));
        torn.retain(|path| remove::unlink_surely(path).is_err());
        lock(&self.0).extend(torn);
    }
}
