//! The file that a process appends its entries to: [`PartFile`].

use std::{
    fs::File,
    io::{self, IoSlice},
    path::{Path, PathBuf},
};

use fsgather_core::{Error, StorageCause, sys::limits};

use crate::{
    layout::SampleFileName,
    os::{directory, file, listing, remove},
    samples::{
        entry::EntryHeader,
        entry_queue::{EntryQueue, PIECE_BYTES, QueuePosition},
        file_header::SampleFileHeader,
    },
};

/// Permissions of files of samples, of which the umask takes some away: teams may share a directory.
pub(crate) const FILE_MODE: u32 = 0o666;

/// The file that is being written, and the entries that may not be on disk.
pub(crate) struct PartFile {
    directory: PathBuf,
    name: SampleFileName,
    header: Vec<u8>,
    open: Option<File>,
    /// Length that a file of this process may have (`ulimit -f`).
    size_limit: u64,
    unsynced: EntryQueue,
    /// End of those that this file has,
    written: QueuePosition,
    /// and how many entries these are.
    written_entries: u64,
    /// Bytes that are written at a time. After an error they are fewer, and each piece is synced, so that what there is room
    /// for is kept.
    piece_bytes: usize,
    /// Length of the file.
    len: u64,
    /// Number of entries of this process that are on disk.
    synced: u64,
    /// Files that have them, with the lengths that are on disk.
    files: Vec<(SampleFileName, u64)>,
}

impl PartFile {
    /// Creates the first file of a process.
    pub(crate) fn create(
        directory: &Path,
        name: SampleFileName,
        header: &SampleFileHeader,
        expectation: &[u8],
    ) -> Result<Self, Error> {
        let mut file = Self {
            directory: directory.to_owned(),
            name,
            header: header.to_bytes(name, expectation)?,
            open: None,
            size_limit: limits::file_bytes().unwrap_or(u64::MAX),
            unsynced: EntryQueue::default(),
            written: QueuePosition::default(),
            written_entries: 0,
            piece_bytes: PIECE_BYTES,
            len: 0,
            synced: 0,
            files: Vec::new(),
        };
        match file.open() {
            Ok(()) => Ok(file),
            Err(error) => Err(Error::storage("write samples to", file.path(), &error)),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join(self.name.to_string())
    }

    /// Length of the longest entry that a file can take.
    pub(crate) const fn max_entry_bytes(&self) -> u64 {
        self.size_limit.saturating_sub(self.header.len() as u64)
    }

    /// Number of entries that are on disk.
    pub(crate) const fn synced(&self) -> u64 {
        self.synced
    }

    /// Files that have them, with the lengths that are on disk.
    pub(crate) fn files(&self) -> &[(SampleFileName, u64)] {
        &self.files
    }

    /// Length of the entries that may not be on disk.
    pub(crate) const fn unsynced_bytes(&self) -> usize {
        self.unsynced.len()
    }

    /// Takes entries over.
    pub(crate) fn take(&mut self, entries: &mut EntryQueue) {
        self.unsynced.append(entries);
    }

    /// Checks that the synced file is still where its name says: a file that was removed or replaced keeps nothing.
    pub(crate) fn check_place(&self) -> Result<(), Error> {
        let path = self.path();
        let is_there = || listing::examine_path(&path).is_ok_and(|found| found.len == self.len);
        if self.open.is_none() || is_there() {
            return Ok(());
        }
        listing::refresh(&self.directory);
        if is_there() {
            return Ok(());
        }
        let cause = StorageCause::described(
            "it was removed or replaced, or cut short, while this process added to it, and results that were in it are lost",
        );
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
        (self.written, self.written_entries) = (QueuePosition::default(), 0);
        self.len = self.header.len() as u64;
        Ok(())
    }

    /// Begins another file, which gets all entries that are not on disk.
    pub(crate) fn begin_next_part(&mut self) -> io::Result<()> {
        if self.open.is_some() {
            self.close(false);
            self.name.part = (self.name.part + 1).min(SampleFileName::MAX_PART);
        }
        self.open()
    }

    /// Writes all entries that the file does not have yet, and brings them to disk if asked to.
    ///
    /// A file that may not become longer is followed by another. After an error another one must be begun: what a file
    /// system has of a file whose write or sync failed is not known.
    pub(crate) fn store(&mut self, syncs: bool) -> io::Result<()> {
        let stored = self
            .append_all()
            .and_then(|()| if syncs { self.sync() } else { Ok(()) });
        match stored {
            Ok(()) => self.piece_bytes = PIECE_BYTES,
            Err(_) => self.take_smaller_pieces(),
        }
        stored
    }

    fn append_all(&mut self) -> io::Result<()> {
        let empty = self.header.len() as u64;
        while let Some((len, entries)) = self.next_piece() {
            if self.len > empty && self.len + len as u64 > self.size_limit {
                self.sync()?;
                self.begin_next_part()?;
                continue;
            }
            let file = self.open.as_ref().ok_or(io::ErrorKind::NotFound)?;
            let piece = &self.unsynced.rest_at(self.written)[..len];
            match file::write_all(file, &mut [IoSlice::new(piece)]) {
                Ok(()) => {
                    self.len += len as u64;
                    self.written = self.unsynced.advance(self.written, len);
                    self.written_entries += entries;
                    if self.piece_bytes < PIECE_BYTES {
                        self.sync()?;
                        self.piece_bytes = (self.piece_bytes * 2).min(PIECE_BYTES / 2);
                    }
                }
                // The limit is one of the file system.
                Err(error) if is_too_long(&error) && (self.len > empty || entries > 1) => {
                    self.take_smaller_pieces();
                    self.begin_next_part()?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Length and number of the entries that are written next: as many as fit, or one.
    fn next_piece(&self) -> Option<(usize, u64)> {
        let room = self.size_limit.saturating_sub(self.len);
        let most =
            usize::try_from(room).map_or(self.piece_bytes, |room| room.min(self.piece_bytes));
        let left = self.unsynced.rest_at(self.written);
        let (mut len, mut entries) = (0, 0);
        while let Some(header) = left[len..].first_chunk().and_then(EntryHeader::from_bytes) {
            let end = usize::try_from(header.entry_len()).map_or(left.len(), |next| len + next);
            if entries > 0 && end > most {
                break;
            }
            (len, entries) = (end, entries + 1);
        }
        (entries > 0).then_some((len, entries))
    }

    fn take_smaller_pieces(&mut self) {
        self.piece_bytes = (self.piece_bytes / 2).max(1);
    }

    fn sync(&mut self) -> io::Result<()> {
        let file = self.open.as_ref().ok_or(io::ErrorKind::NotFound)?;
        file::sync(file)?;
        if self.written_entries > 0 {
            self.unsynced.remove_until(self.written);
            self.synced += self.written_entries;
            (self.written, self.written_entries) = (QueuePosition::default(), 0);
            match self.files.last_mut() {
                Some((name, len)) if *name == self.name => *len = self.len,
                _ => self.files.push((self.name, self.len)),
            }
        }
        Ok(())
    }

    /// Closes the file, and removes it if it has no entries, unless it must stay.
    pub(crate) fn close(&mut self, must_stay: bool) {
        if let Some(file) = self.open.take()
            && let Err(error) = file::close(file)
        {
            tracing::debug!(path = %self.path().display(), %error, "closing a file of samples failed");
        }
        let has_synced = self
            .files
            .last()
            .is_some_and(|(name, _)| *name == self.name);
        if !has_synced && !must_stay {
            remove::or_leave(&self.path());
        }
    }
}

/// Whether an error says that a file may not be so long, or a process have so long files.
pub(crate) fn is_too_long(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::FileTooLarge
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::{
        payload::writer::tests::SmallDisk,
        samples::{
            EntryKind, SampleDirectory, SampleId,
            tests::{header, name},
        },
    };

    fn append(file: &mut PartFile, sequences: Range<u64>) {
        for sequence in sequences {
            let (nonce, id) = (file.name.nonce, SampleId::from(sequence));
            let mut entry = EntryQueue::default();
            let pushed = entry.push(nonce, sequence, EntryKind::Result, &id, &[b"value"]);
            pushed.unwrap();
            file.take(&mut entry);
        }
    }

    /// Makes writing fail: the file is one that is open for reading.
    fn break_file(file: &mut PartFile) {
        file.open = Some(file::open(&file.path()).unwrap());
    }

    #[test]
    fn after_an_error_unsynced_entries_go_to_a_new_file() {
        let place = tempfile::tempdir().unwrap();
        let mut file = PartFile::create(place.path(), name(1, 0), &header(), b"").unwrap();
        append(&mut file, 0..1);
        file.store(true).unwrap();
        append(&mut file, 1..2);
        file.store(false).unwrap();
        append(&mut file, 2..3);
        break_file(&mut file);
        file.store(true).unwrap_err();
        file.begin_next_part().unwrap();
        // Neither is this one written, and nothing of it stays.
        break_file(&mut file);
        file.store(true).unwrap_err();
        file.begin_next_part().unwrap();
        file.store(true).unwrap();
        assert_eq!((file.synced(), file.unsynced_bytes()), (3, 0));
        let read = SampleDirectory::read(place.path()).unwrap();
        assert_eq!((read.files().len(), read.index().len()), (2, 3));
        let lengths: Vec<_> = read
            .files()
            .iter()
            .map(|file| (file.name, file.len))
            .collect();
        assert_eq!(file.files().last(), lengths.last(), "only files that stay");
        assert_eq!(read.index().repeats(&1.into()), 0, "it was added once");
    }

    #[test]
    fn files_that_may_not_be_longer_are_followed_by_others() {
        let place = tempfile::tempdir().unwrap();
        let mut file = PartFile::create(place.path(), name(1, 0), &header(), b"").unwrap();
        let empty = file.len;
        append(&mut file, 0..1);
        // A file has room for three entries, and not for the fourth.
        file.size_limit = empty + 4 * file.unsynced.len() as u64 - 1;
        append(&mut file, 1..2);
        file.store(false).unwrap();
        append(&mut file, 2..8);
        file.store(true).unwrap();
        assert_eq!(file.synced(), 8);
        let read = SampleDirectory::read(place.path()).unwrap();
        let results: Vec<u64> = read.files().iter().map(|file| file.results).collect();
        assert_eq!((results, read.index().len()), (vec![3, 3, 2], 8));
        let lengths: Vec<_> = read
            .files()
            .iter()
            .map(|file| (file.name, file.len))
            .collect();
        assert_eq!(file.files(), lengths);
    }

    #[test]
    #[ignore = "needs root to mount a tmpfs: scripts/prove mounts"]
    fn a_full_disk_gets_the_entries_that_it_has_room_for() {
        let disk = SmallDisk::new("size=256k");
        let mut file = PartFile::create(disk.0.path(), name(1, 0), &header(), b"").unwrap();
        append(&mut file, 0..10_000);
        let mut tries = 0;
        while file.store(true).is_err() {
            tries += 1;
            if file.begin_next_part().is_err() {
                break;
            }
        }
        assert!(
            file.synced() > 2000 && tries < 20,
            "{} after {tries} tries",
            file.synced()
        );
        let read = SampleDirectory::read(disk.0.path()).unwrap();
        assert!(read.index().len() as u64 >= file.synced());
        assert!(read.files().iter().all(|file| !file.is_damaged()));
    }
}
