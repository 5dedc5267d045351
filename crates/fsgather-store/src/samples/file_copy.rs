//! A description of one copy of a file of samples, for other hosts: [`SampleFileCopy`].

use serde::{Deserialize, Serialize};

use crate::layout::SampleFileName;

/// A file of samples as one directory has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleFileCopy {
    /// Name of the file.
    pub name: SampleFileName,
    /// Length of the file.
    pub len: u64,
    /// Sequence numbers of the entries that can be read, as ranges: the first, and the one behind the last.
    entries: Vec<(u64, u64)>,
}

impl SampleFileCopy {
    /// Describes a file with these entries, which are sorted.
    #[must_use]
    pub fn new(name: SampleFileName, len: u64, sequences: impl IntoIterator<Item = u64>) -> Self {
        let mut entries: Vec<(u64, u64)> = Vec::new();
        for sequence in sequences {
            match entries.last_mut() {
                Some((_, end)) if *end == sequence => *end += 1,
                _ => entries.push((sequence, sequence.saturating_add(1))),
            }
        }
        Self { name, len, entries }
    }

    /// Returns true if it has an entry that another copy lacks.
    #[must_use]
    pub fn adds_to(&self, other: &Self) -> bool {
        let has = |(start, end): &(u64, u64)| {
            let mut ranges = other.entries.iter();
            ranges.any(|(from, until)| from <= start && end <= until)
        };
        !self.entries.iter().all(has)
    }
}
