//! Brings a copy of the last calls up to date: [`Copying`].

use std::{fs::File, os::unix::fs::FileExt as _, path::PathBuf};

use fsgather_core::Error;
use fsgather_store::{
    calls::{self, CallsHeader, HEADER_LEN},
    make_rendezvous,
};
use fsgather_trace::recorder::{self, Recorder};

/// The copy of one rank's calls on a file server.
pub(super) struct Copying {
    pub(super) place: PathBuf,
    pub(super) header: CallsHeader,
    pub(super) made: Option<(File, PathBuf)>,
    pub(super) copied: Vec<u8>,
    pub(super) changes: u64,
}

impl Copying {
    /// Brings the copy up to date.
    pub(super) fn run(&mut self, recorder: &Recorder, file: &File) -> Result<(), Error> {
        let changes = recorder.changes();
        if self.made.is_some() && changes == self.changes {
            return Ok(());
        }
        let told = |error: std::io::Error| Error::storage("copy to", &self.place, &error);
        // All that have begun by now are read after this.
        let count = recorder.count();
        let mut records = vec![0; self.copied.len()];
        file.read_exact_at(&mut records, HEADER_LEN as u64)
            .map_err(told)?;
        let (copy, _) = if let Some(made) = &self.made {
            made
        } else {
            // Where ranks have no other use for it nobody has made it.
            if let Some(parent) = self.place.parent() {
                make_rendezvous(parent)?;
            }
            let made = calls::create(&self.place, &self.header, recorder::LEN)?;
            self.made.insert(made)
        };
        let is_changed = |range: &std::ops::Range<usize>| {
            records.get(range.clone()) != self.copied.get(range.clone())
        };
        let ranges = (0..records.len()).step_by(PART);
        for range in ranges.map(|at| at..(at + PART).min(records.len())) {
            if is_changed(&range)
                && let Some(part) = records.get(range.clone())
            {
                let at = (HEADER_LEN + range.start) as u64;
                copy.write_all_at(part, at).map_err(told)?;
            }
        }
        calls::write_count(copy, count).map_err(told)?;
        calls::sync(copy).map_err(told)?;
        (self.copied, self.changes) = (records, changes);
        Ok(())
    }
}

/// What is compared, and written, at a time.
const PART: usize = 4096;
