//! The update of a copy of the last calls: [`Copying`].

use std::{fs::File, os::unix::fs::FileExt as _, path::PathBuf};

use fsgather_core::Error;
use fsgather_store::{
    calls::{self, CallsHeader, HEADER_LEN},
    make_rendezvous,
};

use crate::trace::{record_file::LEN, recorder::Recorder};

/// The copy of one rank's calls on a file server.
pub(super) struct Copying {
    pub(super) place: PathBuf,
    pub(super) header: CallsHeader,
    pub(super) made: Option<(File, PathBuf)>,
    pub(super) copied: Vec<u8>,
    pub(super) changes: u64,
}

impl Copying {
    /// Updates the copy.
    pub(super) fn run(&mut self, recorder: &Recorder, file: &File) -> Result<(), Error> {
        let changes = recorder.changes();
        if self.made.is_some() && changes == self.changes {
            return Ok(());
        }
        let told = |error: std::io::Error| Error::storage("copy to", &self.place, &error);
        // All calls that have begun by now are read after this.
        let count = recorder.count();
        let mut records = vec![0; self.copied.len()];
        file.read_exact_at(&mut records, HEADER_LEN as u64)
            .map_err(told)?;
        let (copy, _) = if let Some(made) = &self.made {
            made
        } else {
            // Ranks make the directory only if they have another use for it.
            if let Some(parent) = self.place.parent() {
                make_rendezvous(parent)?;
            }
            let made = calls::create(&self.place, &self.header, LEN)?;
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

/// Number of bytes that are compared and written at a time.
const PART: usize = 4096;

#[cfg(test)]
mod tests {
    use fsgather_core::{
        Call, CallEvent, ChannelId, Epoch, Operation, Rank, RankNames, Site, Ticket,
    };
    use fsgather_store::calls::{AllowedOwner, CallsFile};

    use super::*;
    use crate::trace::record_file::{LEN_OF_RECORDS, used_len_of_records};

    const BEGUN: CallEvent<'static> = CallEvent::Begun {
        ranks: 3,
        waits: false,
    };

    fn recorder(file: &File, path: &std::path::Path) -> Recorder {
        let recorder = Recorder::new(Rank::new(2), &RankNames::default(), &[]);
        recorder.write_to(file, path).unwrap();
        recorder
    }

    fn ticket(epoch: u64) -> Ticket {
        Ticket {
            channel: ChannelId::WORLD,
            epoch: Epoch::new(epoch),
            call: Call::new(Operation::Barrier, Site::of(std::panic::Location::caller())).into(),
        }
    }

    #[test]
    fn sealed_recording_uses_as_much_as_its_calls() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("calls");
        let file = File::create_new(&path).unwrap();
        let recorder = recorder(&file, &path);
        recorder.observe(&ticket(1), BEGUN);
        recorder.observe(&ticket(2), BEGUN);
        let used = recorder.seal();
        let records = used_len_of_records(2);
        assert_eq!(used, (HEADER_LEN + records) as u64);
        // Calls of other threads no longer change it, so that it can be cut.
        file.set_len(used).unwrap();
        recorder.observe(&ticket(3), BEGUN);
        recorder.observe(&ticket(1), CallEvent::Done);
        assert_eq!((recorder.seal(), recorder.count()), (used, 2));
        assert_eq!(used_len_of_records(5000), LEN_OF_RECORDS);
    }

    #[test]
    fn a_copy_holds_what_has_been_recorded_by_then() {
        let (own, afar) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let header = CallsHeader {
            process: fsgather_core::ProcessId::default(),
            communicator: uuid::Uuid::from_u128(7),
            rank: Rank::new(2),
            called: Rank::new(2),
            world_size: 3,
            began: 5,
            job: None,
            directory: None,
        };
        let (file, path) = calls::create(own.path(), &header, LEN).unwrap();
        let recorder = recorder(&file, &path);
        // The directory does not exist yet.
        let place = fsgather_store::layout::rendezvous_path(afar.path());
        let mut copying = Copying {
            place: place.clone(),
            header: header.clone(),
            made: None,
            copied: vec![0; LEN_OF_RECORDS],
            changes: 0,
        };
        let copied = |copying: &mut Copying| -> CallsFile {
            copying.run(&recorder, &file).unwrap();
            calls::read(&place.join(header.name()), AllowedOwner::ThisUser).unwrap()
        };
        // As many as one part of the file does not hold.
        for count in [0, 1, 2, 2, 150] {
            while recorder.count() < count {
                recorder.observe(&ticket(recorder.count() + 1), BEGUN);
            }
            let (copy, whole) = (
                copied(&mut copying),
                calls::read(&path, AllowedOwner::ThisUser).unwrap(),
            );
            assert_eq!((copy.count, &copy.header.rank), (count, &header.rank));
            // Unused records are not copied.
            let (same, rest) = whole.records.split_at(copy.records.len());
            assert!(
                copy.records == same && rest.iter().all(|byte| *byte == 0),
                "{count}"
            );
            assert_eq!(copying.changes, recorder.changes());
        }
        // Nothing is written where nothing has changed.
        let untouched = std::fs::metadata(place.join(header.name()))
            .unwrap()
            .modified()
            .unwrap();
        copying.run(&recorder, &file).unwrap();
        let now = std::fs::metadata(place.join(header.name()))
            .unwrap()
            .modified()
            .unwrap();
        assert_eq!(now, untouched);
    }
}
