//! Counts of the entries of one process: [`WriterProgress`]. Pure.

use std::path::PathBuf;

use fsgather_core::{Error, StorageCause};

/// Progress of a writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterProgress {
    /// Results and failures that were added.
    pub added: u64,
    /// Results among them.
    pub results: u64,
    /// Results and failures that are on disk.
    pub synced: u64,
}

impl WriterProgress {
    /// Returns the error of results that cannot be written, with the number of those that are.
    pub(crate) fn unwritten(self, path: PathBuf, mut cause: StorageCause) -> Error {
        cause.message = format!(
            "{}; {} of the {} results of this process are on disk",
            cause.message, self.synced, self.added
        );
        Error::storage("write samples to", path, cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_how_many_results_are_on_disk() {
        let progress = WriterProgress {
            added: 7,
            results: 6,
            synced: 5,
        };
        let error = progress.unwritten("/x".into(), StorageCause::described("no room"));
        let text = error.to_string();
        assert!(text.contains("5 of the 7 results"), "{text}");
    }
}
