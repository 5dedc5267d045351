//! The file that a process appends its entries to: [`PartFile`].

use std::{
    fs::File,
    io::{self, IoSlice},
    path::{Path, PathBuf},
};

use fsgather_core::{Error, StorageCause};

use crate::{
    layout::SampleFileName,
    os::{directory, file, listing, remove},
    samples::file_header::SampleFileHeader,
};

/// Permissions of files of samples, of which the umask takes some away: teams may share a directory.
pub(crate) const FILE_MODE: u32 = 0o666;

/// The file that is being written.
pub(crate) struct PartFile {
    pub(crate) directory: PathBuf,
    pub(crate) name: SampleFileName,
    header: Vec<u8>,
    open: Option<File>,
    /// Entries that may not be on disk.
    pub(crate) unsynced: Vec<u8>,
    /// Bytes of them that this file has.
    written: usize,
    /// Length of the file.
    pub(crate) len: u64,
    /// Whether entries in it have been synced: only then it must stay.
    has_synced: bool,
}

impl PartFile {
    /// Creates the first file of a process.
    pub(crate) fn create(
        directory: &Path,
        name: SampleFileName,
        header: &SampleFileHeader,
    ) -> Result<Self, Error> {
        let mut file = Self {
            directory: directory.to_owned(),
            name,
            header: header.to_bytes()?,
            open: None,
            unsynced: Vec::new(),
            written: 0,
            len: 0,
            has_synced: false,
        };
        match file.open() {
            Ok(()) => Ok(file),
            Err(error) => Err(file.failed("write samples to", &error)),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join(self.name.to_string())
    }

    pub(crate) fn failed(&self, operation: &str, error: &io::Error) -> Error {
        Error::storage(operation, self.path(), error)
    }

    /// Checks that the synced file is still where its name says: a file that was removed or replaced keeps nothing.
    pub(crate) fn check_place(&self, synced: u64) -> Result<(), Error> {
        let path = self.path();
        let is_there = || listing::examine_path(&path).is_ok_and(|found| found.len == self.len);
        if self.open.is_none() || is_there() {
            return Ok(());
        }
        listing::refresh(&self.directory);
        if is_there() {
            return Ok(());
        }
        let cause = StorageCause::described(format!(
            "it was removed or replaced while this process added to it, and the {synced} results that were in it are lost"
        ));
        Err(Error::storage("keep samples in", path, cause))
    }

    /// Creates the file. Its directory is synced too: a file that has no name after a crash is lost.
    fn open(&mut self) -> io::Result<()> {
        let path = self.path();
        let created = file::create_masked(&path, FILE_MODE)?;
        let begun = file::write_all(&created, &mut [IoSlice::new(&self.header)])
            .and_then(|()| file::sync(&created));
        if let Err(error) = begun {
            let _ = remove::unlink(&path);
            return Err(error);
        }
        if let Err(error) = directory::open(&self.directory)
            .and_then(|directory| file::sync(&File::from(directory)))
        {
            tracing::debug!(path = %self.directory.display(), %error, "a directory cannot be synced");
        }
        self.open = Some(created);
        self.written = 0;
        self.len = self.header.len() as u64;
        self.has_synced = false;
        Ok(())
    }

    pub(crate) fn begin_next_part(&mut self) -> io::Result<()> {
        if let Some(file) = self.open.take() {
            // Everything in it that is not on disk is written again. A file without anything else only takes up room.
            let _ = file::close(file);
            if !self.has_synced {
                remove::or_leave(&self.path());
            }
            self.name.part = (self.name.part + 1).min(SampleFileName::MAX_PART);
        }
        self.open()
    }

    /// Writes all entries that the file does not have yet, and brings them to disk if asked to.
    pub(crate) fn store(&mut self, syncs: bool) -> io::Result<()> {
        let Some(file) = &self.open else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let more = &self.unsynced[self.written..];
        file::write_all(file, &mut [IoSlice::new(more)])?;
        self.len += more.len() as u64;
        self.written = self.unsynced.len();
        if syncs {
            file::sync(file)?;
            self.has_synced |= !self.unsynced.is_empty();
            self.unsynced.clear();
            self.written = 0;
        }
        Ok(())
    }

    pub(crate) fn close(&mut self, is_unused: bool) {
        if is_unused {
            remove::or_leave(&self.path());
        }
        if let Some(file) = self.open.take()
            && let Err(error) = file::close(file)
        {
            tracing::debug!(path = %self.path().display(), %error, "closing a synced file failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use fsgather_core::{ProcessId, Rank};

    use super::*;
    use crate::samples::{EntryKind, SampleDirectory, SampleId, entry::encode_entry};

    fn append(file: &mut PartFile, sequence: u64) {
        let id = SampleId::from(sequence);
        let unsynced = &mut file.unsynced;
        encode_entry(unsynced, 5, sequence, EntryKind::Result, &id, &[b"value"]).unwrap();
    }

    #[test]
    fn after_an_error_unsynced_entries_go_to_a_new_file() {
        let place = tempfile::tempdir().unwrap();
        let header = SampleFileHeader {
            encoding: "bytes".into(),
            config: None,
            world_size: 1,
            process: ProcessId::default(),
            job: None,
            began: 0,
        };
        let name = SampleFileName {
            attempt: 1,
            rank: Rank::ZERO,
            nonce: 5,
            part: 0,
        };
        let mut file = PartFile::create(place.path(), name, &header).unwrap();
        append(&mut file, 0);
        file.store(true).unwrap();
        append(&mut file, 1);
        file.store(false).unwrap();
        append(&mut file, 2);
        // Writing to a file that is open for reading fails.
        file.open = Some(file::open(&file.path()).unwrap());
        file.store(true).unwrap_err();
        file.begin_next_part().unwrap();
        // Neither is this one written, and nothing of it stays.
        file.open = Some(file::open(&file.path()).unwrap());
        file.store(true).unwrap_err();
        file.begin_next_part().unwrap();
        file.store(true).unwrap();
        let read = SampleDirectory::read(place.path()).unwrap();
        assert_eq!((read.files().len(), read.index().len()), (2, 3));
        assert_eq!(read.index().repeats(&1.into()), 0, "it was added once");
    }
}
