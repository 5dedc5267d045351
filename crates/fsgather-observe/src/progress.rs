//! The progress of a rank with its calls: [`Progress`].
//!
//! `fsgather run` on a terminal names a file in `FSGATHER_PROGRESS_FILE`. Each rank overwrites [`Progress::SIZE`] bytes of it,
//! at an offset by its number: when a phase begins, and ten times a second while bytes move. Without the variable nothing is
//! written.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::OnceLock,
};

use fsgather_config::environment::{self, Variables};
use fsgather_core::{hash::Hash64, run_file};

use crate::trace::record::CallRecord;

/// The name of the file that `fsgather run` makes for progress; ranks write to no other file.
pub const FILE_NAME: &str = "fsgather-progress";

/// The progress of a rank with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The call that the rank is in, or was in last.
    pub call: CallRecord,
    /// The number of bytes that have moved in the current phase of the call.
    pub done: u64,
    /// The number of bytes that move in this phase, if it is known.
    pub total: Option<u64>,
}

/// The words of a record, then `done`, `total` and a checksum.
const WORDS: usize = CallRecord::WORDS + 3;
const DONE_AT: usize = CallRecord::WORDS;
const TOTAL_AT: usize = CallRecord::WORDS + 1;
const CHECKSUM_AT: usize = CallRecord::WORDS + 2;

/// The total that is not known.
const UNKNOWN: u64 = u64::MAX;

impl Progress {
    /// The size of the progress of one rank, in bytes.
    pub const SIZE: usize = WORDS * size_of::<u64>();

    /// Reads the progress of a rank; returns `None` if it was never written, or is being written. Pure.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<{ Self::SIZE }>()?;
        let words: [u64; WORDS] = bytemuck::pod_read_unaligned(bytes);
        if words[CHECKSUM_AT] != checksum(&words) {
            return None;
        }
        Some(Self {
            call: CallRecord::from_words(words.first_chunk()?)?,
            done: words[DONE_AT],
            total: Some(words[TOTAL_AT]).filter(|total| *total != UNKNOWN),
        })
    }
}

/// Returns the bytes of a progress. Pure.
fn to_bytes(
    record: &[u64; CallRecord::WORDS],
    done: u64,
    total: Option<u64>,
) -> [u8; Progress::SIZE] {
    let mut words = [0; WORDS];
    words[..CallRecord::WORDS].copy_from_slice(record);
    words[DONE_AT] = done;
    words[TOTAL_AT] = total.unwrap_or(UNKNOWN);
    words[CHECKSUM_AT] = checksum(&words);
    bytemuck::cast(words)
}

fn checksum(words: &[u64; WORDS]) -> u64 {
    Hash64::of(bytemuck::cast_slice(&words[..CHECKSUM_AT]))
}

/// The place of this rank in the file.
struct ProgressSlot {
    file: File,
    at: u64,
    /// The process of the rank; its forked children do not write.
    process: u32,
}

/// Returns the slot, which is searched only once: variables do not change.
fn slot() -> Option<&'static ProgressSlot> {
    static SLOT: OnceLock<Option<ProgressSlot>> = OnceLock::new();
    let find = || {
        let variables = Variables::of_process();
        let rank: u64 = variables.get(environment::RANK)?.trim().parse().ok()?;
        let path = variables.get(environment::PROGRESS_FILE)?;
        let mut options = OpenOptions::new();
        Some(ProgressSlot {
            file: run_file::open(Path::new(path), FILE_NAME, options.write(true)).ok()?,
            at: rank.checked_mul(Progress::SIZE as u64)?,
            process: std::process::id(),
        })
    };
    let slot = SLOT.get_or_init(find).as_ref();
    slot.filter(|slot| slot.process == std::process::id())
}

/// Returns true if `fsgather run` shows the progress of this rank.
pub(crate) fn is_shown() -> bool {
    slot().is_some()
}

/// Writes the progress of this rank, if `fsgather run` shows it. It never waits, and a failure is ignored.
pub(crate) fn write(record: &[u64; CallRecord::WORDS], done: u64, total: Option<u64>) {
    if let Some(slot) = slot() {
        let _ = slot.file.write_at(&to_bytes(record, done, total), slot.at);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::trace::record::{Field, RecordWords};

    fn record(number: u64) -> RecordWords {
        let mut words = RecordWords::new("gather", "eval.py:3", 2);
        words.set(Field::Count, number);
        words
    }

    #[test]
    fn progress_is_read_as_it_was_written_and_a_torn_one_is_none() {
        let old = to_bytes(record(1).sealed(), 10, Some(40));
        let read = Progress::from_bytes(&old).unwrap();
        assert_eq!((read.done, read.total, read.call.ranks), (10, Some(40), 2));
        let new = to_bytes(record(2).sealed(), 10, None);
        assert_eq!(Progress::from_bytes(&new).unwrap().total, None);
        for cut in 1..Progress::SIZE {
            let torn = [&new[..cut], &old[cut..]].concat();
            let is_whole = torn == new || torn == old;
            assert_eq!(Progress::from_bytes(&torn).is_some(), is_whole, "{cut}");
        }
        assert_eq!(Progress::from_bytes(&old[..12]), None);
        assert_eq!(Progress::from_bytes(&[0; Progress::SIZE]), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_refused_or_read(bytes: Vec<u8>) {
            let _ = Progress::from_bytes(&bytes);
        }
    }
}
