//! Messages that could not be written completely: [`TornFiles`].

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
};

use fsgather_core::lock;

use crate::os::remove;

/// Files of failed attempts that may exist, because their removal may have failed as well. A reader of such a file waits for
/// the rest, and finally gives up, although the message has arrived under another name.
#[derive(Debug, Default)]
pub(crate) struct TornFiles(Mutex<Vec<PathBuf>>);

impl TornFiles {
    /// Records a file that may exist.
    pub(crate) fn note(&self, path: &Path) {
        lock(&self.0).push(path.to_owned());
    }

    /// Removes the files that can be removed by now.
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
        // A directory, which cannot be removed like a file.
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
        // All files are forgotten.
        std::fs::write(&torn, b"x").unwrap();
        files.remove();
        assert!(torn.exists());
    }
}
