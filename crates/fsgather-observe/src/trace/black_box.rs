//! The calls that one rank has left: [`BlackBox`].

use std::path::{Path, PathBuf};

use fsgather_core::{ProcessId, Rank};
use fsgather_store::{
    Liveness,
    calls::{self, AllowedOwner, CallsFile, CallsHeader},
    liveness,
};

use crate::trace::{
    record::{CallRecord, Outcome},
    record_file::{KEPT_RECORDS, places_of_last},
};

/// Number of calls that are read of each rank if the last ones suffice.
const LAST_CALLS: u64 = 128;

/// The calls of each rank that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All that are kept.
    All,
    /// The last ones, which show the state of the rank.
    Last,
}

impl Extent {
    /// Returns the maximum number of calls.
    const fn max_calls(self) -> u64 {
        match self {
            Self::All => KEPT_RECORDS,
            Self::Last => LAST_CALLS,
        }
    }
}

/// The calls of one rank.
#[derive(Clone, Debug)]
pub struct BlackBox {
    /// The file.
    pub path: PathBuf,
    /// The user whose file it is.
    pub owner: u32,
    /// The rank and its world.
    pub header: CallsHeader,
    /// The calls, oldest first.
    pub records: Vec<CallRecord>,
    /// True if its process runs; `None` if that cannot be seen from here.
    pub is_running: Option<bool>,
    /// The number of calls that had begun, if the file has it; else 0.
    pub(crate) begun: u64,
}

/// The calls that are missing in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// The numbers of missing and of kept calls, in words.
    pub(crate) text: String,
    /// True if the last call is missing, so that an older one would be taken for it.
    pub(crate) has_lost_end: bool,
}

impl BlackBox {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be read, in words.
    pub(crate) fn read(path: &Path, extent: Extent, me: &ProcessId) -> Result<Self, String> {
        let allowed = AllowedOwner::AnyForRoot;
        let last = |count| places_of_last(count, LAST_CALLS);
        let file = match extent {
            Extent::All => calls::read(path, allowed),
            Extent::Last => calls::read_some(path, &last, allowed),
        }?;
        let is_running = match liveness(&file.header.process, me) {
            Liveness::Running => Some(true),
            Liveness::Gone | Liveness::Replaced => Some(false),
            Liveness::Rebooted | Liveness::Unknown => None,
        };
        Ok(Self::new(file, is_running))
    }

    /// Reads the bytes of a file. The state of its process is unknown.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let file = calls::from_bytes(Path::new(""), 0, bytes).ok()?;
        Some(Self::new(file, None))
    }

    fn new(file: CallsFile, is_running: Option<bool>) -> Self {
        Self {
            records: records(&file.records),
            path: file.path,
            owner: file.owner,
            header: file.header,
            is_running,
            begun: file.count,
        }
    }

    /// Returns the calls that are missing, except the one that may just be written.
    pub(crate) fn damage(&self, extent: Extent) -> Option<Damage> {
        let last = self.records.last().map_or(0, |last| last.count);
        let begun = self.begun.max(last);
        let kept = begun.min(extent.max_calls());
        let mut counts = self.records.iter().map(|record| record.count);
        let found = counts
            .by_ref()
            .filter(|count| *count > begun - kept)
            .count();
        let missing = kept.saturating_sub(found as u64);
        let being_written = u64::from(self.may_run());
        let is_all = found == 0 && missing > 0 && self.is_running != Some(true);
        let has_lost_end = begun - last > being_written || is_all;
        // A file that changes while it is read shows several moments.
        let has_gaps = missing > being_written && self.is_running != Some(true);
        (has_lost_end || has_gaps).then(|| Damage {
            text: format!("{missing} of its last {kept} calls are missing or damaged"),
            has_lost_end,
        })
    }

    /// Returns the rank by its name for users.
    #[must_use]
    #[expect(
        clippy::misnamed_getters,
        reason = "its number in its world matters to the file alone"
    )]
    pub const fn rank(&self) -> Rank {
        self.header.called
    }

    /// Returns true if its process may run, as far as can be seen from here.
    #[must_use]
    pub fn may_run(&self) -> bool {
        self.is_running != Some(false)
    }

    /// Returns true if its last call has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        let last = self.records.last();
        last.is_some_and(|last| last.outcome == Outcome::Failed)
    }

    /// Returns the number of bytes that it has handed in and read, in all its calls.
    #[must_use]
    pub fn moved(&self) -> u64 {
        let last = self.records.last();
        last.map_or(0, |last| last.moved_before.saturating_add(last.moved))
    }
}

/// Returns the calls in the part of a file that holds records. Torn records are left out.
fn records(bytes: &[u8]) -> Vec<CallRecord> {
    let (places, _) = bytes.as_chunks::<{ CallRecord::SIZE }>();
    let record = |place: &[u8; CallRecord::SIZE]| {
        let mut words = [0; CallRecord::WORDS];
        for (word, bytes) in words.iter_mut().zip(place.as_chunks().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        CallRecord::from_words(&words)
    };
    let mut records: Vec<CallRecord> = places.iter().filter_map(record).collect();
    records.sort_by_key(|record| record.count);
    records
}
