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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_removed_yet_is_tried_again() {
        let place = tempfile::tempdir().unwrap();
        let (torn, stuck) = (place.path().join("torn"), place.path().join("stuck"));
        std::fs::write(&torn, b"x").unwrap();
        // Nothing that is removed as a file is.
        std::fs::create_dir(&stuck).unwrap();
        let files = TornFiles::default();
        for path in [&torn, &stuck, &place.path().join("never made")] {
            files.note(path);
        }
        files.remove();
        assert!(!torn.exists() && stuck.exists());
        std::fs::remove_dir(&stuck).unwrap();
        std::fs::write(&stuck, b"x").unwrap();
        files.remove();
        assert!(!stuck.exists());
        // It is done with all of them.
        std::fs::write(&torn, b"x").unwrap();
        files.remove();
        assert!(torn.exists());
    }
}
