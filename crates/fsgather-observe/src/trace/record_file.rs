//! The file with the last calls of a rank, and its measures.

use std::{
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use fsgather_arena::Words;
use fsgather_store::{FileSystem, calls};

use crate::trace::record::CallRecord;

/// Number of calls that are kept.
pub const KEPT_RECORDS: u64 = 1000;
#[expect(clippy::cast_possible_truncation, reason = "it is a thousand")]
const KEPT_LEN: usize = KEPT_RECORDS as usize;

/// Length of the part of a file that holds records, in bytes.
pub const LEN_OF_RECORDS: usize = KEPT_LEN * CallRecord::SIZE;
/// Length of the file, in bytes.
pub const LEN: u64 = (calls::HEADER_LEN + LEN_OF_RECORDS) as u64;
/// Number of words of the file.
const WORDS: usize = (calls::HEADER_LEN + LEN_OF_RECORDS) / size_of::<u64>();

/// A file that survives its process, no matter how that ends.
///
/// If the file can be mapped, a call costs a few hundred nanoseconds and no system call.
#[derive(Debug)]
pub(crate) struct RecordFile {
    storage: RecordStorage,
    pub(crate) path: PathBuf,
}

/// The storage of the records.
#[derive(Debug)]
enum RecordStorage {
    /// Memory that the kernel writes to the file.
    Mapped(Words),
    /// The file, if mapped memory could end the process: see [`FileSystem::is_written_in_place`].
    File(File),
}

impl RecordFile {
    /// Takes a file that [`calls::create`] has made at `path`; fails if there is no space for it, or it cannot be mapped.
    pub(crate) fn new(file: &File, path: &Path) -> io::Result<Self> {
        let storage = if FileSystem::of(path).is_ok_and(|of| of.is_written_in_place()) {
            RecordStorage::Mapped(Words::in_file(file, WORDS)?)
        } else {
            file.set_len(LEN)?;
            RecordStorage::File(file.try_clone()?)
        };
        Ok(Self {
            storage,
            path: path.to_owned(),
        })
    }

    /// Writes the number of calls that have begun, unless that takes a system call; then readers look at all records.
    pub(crate) fn write_count(&self, count: u64) {
        if let RecordStorage::Mapped(all) = &self.storage {
            let _ = all.store(calls::COUNT_AT / size_of::<u64>(), &[count]);
        }
    }

    /// Writes the record of the call with this number, from 1.
    pub(crate) fn write(&self, number: u64, words: &[u64; CallRecord::WORDS]) {
        let place = usize::try_from(number.saturating_sub(1) % KEPT_RECORDS).unwrap_or_default();
        let first = calls::HEADER_LEN / size_of::<u64>() + place * CallRecord::WORDS;
        match &self.storage {
            // Readers verify the checksum.
            RecordStorage::Mapped(all) => drop(all.store(first, words)),
            // Without space an older record stays, or a torn one, which has a wrong checksum.
            RecordStorage::File(file) => {
                let at = (first * size_of::<u64>()) as u64;
                drop(file.write_all_at(bytemuck::cast_slice(words), at));
            }
        }
    }
}

/// Returns the places of the last `most` of `count` calls in the part of a file that holds records. Pure.
#[must_use]
pub fn places_of_last(count: u64, most: u64) -> Vec<Range<usize>> {
    let most = most.min(KEPT_RECORDS).min(count);
    let end = (count - most) % KEPT_RECORDS + most;
    let range = |from: u64, to: u64| {
        let at = |place: u64| usize::try_from(place).unwrap_or_default() * CallRecord::SIZE;
        at(from)..at(to)
    };
    match end.checked_sub(KEPT_RECORDS) {
        None | Some(0) => vec![range(end - most, end)],
        Some(around) => vec![range(end - most, KEPT_RECORDS), range(0, around)],
    }
}

/// Returns the length of the records that `count` calls have used, in bytes.
#[must_use]
pub fn used_len_of_records(count: u64) -> usize {
    usize::try_from(count.min(KEPT_RECORDS)).unwrap_or(KEPT_LEN) * CallRecord::SIZE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_calls_are_read_where_they_were_written() {
        let written =
            |count: u64| usize::try_from((count - 1) % KEPT_RECORDS).unwrap() * CallRecord::SIZE;
        for count in [
            0, 1, 5, 127, 128, 999, 1000, 1001, 1050, 1127, 1128, 2000, 5003,
        ] {
            let ranges = places_of_last(count, 128);
            let places: Vec<usize> = ranges
                .into_iter()
                .flat_map(|range| range.step_by(CallRecord::SIZE))
                .collect();
            let first = count.saturating_sub(128) + 1;
            let expected: Vec<usize> = (first..=count).map(written).collect();
            assert_eq!(places, expected, "{count}");
        }
    }
}
