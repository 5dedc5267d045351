//! All files of a directory of samples together: [`SampleDirectory`].

use std::{
    collections::HashMap,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use fsgather_core::{Error, StorageCause, hash::Hash64, lock, room_for};
use rustix::fs::FileType;

use crate::{
    directory::gather_dir::is_not_seen,
    layout::SampleFileName,
    os::{
        directory, file,
        filesystem::{Class, FileSystem},
        listing,
    },
    payload::parallel,
    samples::{
        entry::{EntryHead, EntryKind},
        file_copy::SampleFileCopy,
        file_scan::{ScannedFile, Source},
        sample_index::{SampleIndex, ValuePlace},
    },
    slow_place,
};

/// Files that are read at the same time: on network file systems each waits for a few replies.
const READING_THREADS: usize = 8;
/// Open files that values are read from.
const MAX_OPEN_FILES: usize = 64;
/// Permission of all users to write into a directory.
const OTHERS_WRITE: u32 = 0o002;

/// Files that are left out, with their owners.
type ForeignFiles = Vec<(PathBuf, u32)>;

/// All samples in a directory, as they were when it was read.
///
/// Values stay on disk until they are asked for.
#[derive(Debug)]
pub struct SampleDirectory {
    path: PathBuf,
    files: Vec<ScannedFile>,
    foreign: Vec<(PathBuf, u32)>,
    lost: u64,
    index: SampleIndex,
    open: Mutex<HashMap<u32, Arc<File>>>,
}

impl SampleDirectory {
    /// Makes a directory for samples, with all above it, where there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if it cannot be made, or something else has its name.
    pub fn make(path: &Path) -> Result<(), Error> {
        std::fs::create_dir_all(path)
            .map_err(|error| Error::storage("make directory", path, &error))
    }

    /// Follows a link that has the name of a directory, which is never read through one.
    #[must_use]
    pub fn resolve(path: PathBuf) -> PathBuf {
        match listing::examine_path(&path) {
            Ok(found) if found.kind == FileType::Symlink => {
                std::fs::canonicalize(&path).unwrap_or(path)
            }
            _ => path,
        }
    }

    /// Lists the files of samples in a directory, in the order in which their results count.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if it cannot be listed.
    pub fn names(path: &Path) -> Result<Vec<SampleFileName>, Error> {
        let names = listing::names_if(path, &|name| name.starts_with("samples-"))
            .map_err(|error| Error::storage("list samples in", path, &error))?;
        let mut names: Vec<_> = names
            .iter()
            .filter_map(|name| SampleFileName::parse(name))
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Returns the highest number of an attempt, or 0. Files whose headers cannot be read do not count: their names prove nothing.
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read).
    pub fn last_attempt(path: &Path) -> Result<u32, Error> {
        let (wanted, _) = trusted_files(path)?;
        for (file, name) in wanted.iter().rev() {
            match ScannedFile::has_header(file, *name) {
                Ok(true) => return Ok(name.attempt),
                Ok(false) => {}
                Err(Error::Storage { cause, .. }) if is_gone(&cause) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(0)
    }

    /// Lists the files of a directory that can be read, with the entries that each has.
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read).
    pub fn copies(path: &Path) -> Result<Vec<SampleFileCopy>, Error> {
        let (files, _) = scan(path)?;
        Ok(files.iter().filter_map(ScannedFile::copy).collect())
    }

    /// Whether its file system is one of this host alone, where a file is seen at once or never.
    #[must_use]
    pub fn is_local(path: &Path) -> bool {
        FileSystem::of(path).is_ok_and(|found| found.class() == Class::Local)
    }

    /// Whether a file of samples is in a directory, as the server says now.
    #[must_use]
    pub fn sees(path: &Path, name: SampleFileName) -> bool {
        listing::refresh(path);
        listing::examine_path(&path.join(name.to_string())).is_ok()
    }

    /// Reads all files of a directory. A file that is removed meanwhile counts as one that was never there.
    ///
    /// In a directory into which all users may write, files of other users than this one and the directory's owner are left out.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if the directory or a file cannot be read, and [`Error::Incompatible`] if another version
    /// of fsgather wrote one.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let (files, foreign) = scan(path)?;
        Ok(Self::of(path, files, foreign))
    }

    /// Takes files together that came in memory.
    ///
    /// # Errors
    ///
    /// [`Error::Incompatible`] if another version of fsgather made one.
    pub fn from_memory(contents: Vec<(SampleFileName, Bytes)>) -> Result<Self, Error> {
        let mut files = contents
            .into_iter()
            .map(|(name, contents)| ScannedFile::from_memory(contents, name))
            .collect::<Result<Vec<_>, _>>()?;
        files.sort_unstable_by_key(|file| file.name);
        Ok(Self::of(Path::new("memory"), files, Vec::new()))
    }

    fn of(path: &Path, mut files: Vec<ScannedFile>, foreign: Vec<(PathBuf, u32)>) -> Self {
        let mut index = SampleIndex::default();
        let mut lost = 0;
        let mut entries = Vec::new();
        for (at, number) in (0..files.len()).zip(0..) {
            let is_continued = files
                .get(at + 1)
                .is_some_and(|next| next.name.nonce == files[at].name.nonce);
            let file = &mut files[at];
            file.is_continued = is_continued;
            if let Some(place) = &mut file.expectation {
                place.file = number;
                index.expect(*place);
            }
            let own = std::mem::take(&mut file.entries).into_iter();
            entries.extend(own.map(|(head, place)| {
                let file = number;
                (head, ValuePlace { file, ..place })
            }));
            if !is_continued {
                let distinct = distinct(std::mem::take(&mut entries));
                for (head, place) in &distinct {
                    let file = &mut files[place.file as usize];
                    match head.kind {
                        EntryKind::Result => file.results += 1,
                        EntryKind::Failure => file.failures += 1,
                    }
                }
                lost += index.add_process(distinct);
            }
        }
        Self {
            path: path.to_owned(),
            files,
            foreign,
            lost,
            index,
            open: Mutex::default(),
        }
    }

    /// Path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files that were read, in the order in which their results count.
    #[must_use]
    pub fn files(&self) -> &[ScannedFile] {
        &self.files
    }

    /// Files of other users that were left out, with their owners.
    #[must_use]
    pub fn foreign(&self) -> &[(PathBuf, u32)] {
        &self.foreign
    }

    /// Entries that cannot be read although a later one of their process can.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// The samples that the last of `files` expects that states some.
    #[must_use]
    pub fn expectation_of<'a>(
        &self,
        files: impl DoubleEndedIterator<Item = &'a ScannedFile>,
    ) -> Option<Vec<u8>> {
        let place = files.rev().find_map(|file| file.expectation)?;
        self.value(place).ok()
    }

    /// The samples in these files.
    #[must_use]
    pub fn index(&self) -> &SampleIndex {
        &self.index
    }

    /// Takes the samples out, and leaves the files, so that values can be read.
    #[must_use]
    pub fn take_index(&mut self) -> SampleIndex {
        std::mem::take(&mut self.index)
    }

    /// Reads a value and checks it.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if its file cannot be read any more, [`Error::Corrupt`] if it has changed since.
    pub fn value(&self, place: ValuePlace) -> Result<Vec<u8>, Error> {
        let file = self
            .files
            .get(place.file as usize)
            .ok_or_else(|| Error::config("this place is one of other files of samples"))?;
        let failed = |error: &io::Error| Error::storage("read samples from", &file.path, error);
        let no_memory = || failed(&io::ErrorKind::OutOfMemory.into());
        let mut value = room_for(place.len).ok_or_else(no_memory)?;
        value.resize(usize::try_from(place.len).map_err(|_| no_memory())?, 0);
        let read = match &file.memory {
            Some(memory) => Source::Memory(memory).read_exact_at(&mut value, place.offset),
            None => self
                .open(place.file, &file.path)
                .and_then(|open| Source::File(&open).read_exact_at(&mut value, place.offset)),
        };
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                let text = "it was cut since it was read, and a result that was in it is lost";
                Error::storage(
                    "read samples from",
                    &file.path,
                    StorageCause::described(text),
                )
            }
            _ => failed(&error),
        })?;
        if Hash64::of(&value) != place.hash {
            return Err(Error::corrupt(
                file.path.clone(),
                "a result has changed since it was found",
                None,
                None,
            ));
        }
        Ok(value)
    }

    fn open(&self, number: u32, path: &Path) -> io::Result<Arc<File>> {
        if let Some(file) = lock(&self.open).get(&number) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(file::open(path)?);
        let mut open = lock(&self.open);
        if open.len() >= MAX_OPEN_FILES {
            open.clear();
        }
        open.insert(number, Arc::clone(&file));
        Ok(file)
    }
}

/// The entries of a process in the order in which they were added. Those that were written to two files are there once.
fn distinct(mut entries: Vec<(EntryHead, ValuePlace)>) -> Vec<(EntryHead, ValuePlace)> {
    entries.sort_by_key(|(head, _)| head.sequence);
    entries.dedup_by_key(|(head, _)| head.sequence);
    entries
}

/// Reads all files of a directory, and lists those of other users.
fn scan(path: &Path) -> Result<(Vec<ScannedFile>, ForeignFiles), Error> {
    let shown = path.display().to_string();
    let text = move |lasts: &str| {
        format!(
            "still reading samples in {shown}, for {lasts} now; its file system is slow or does not answer"
        )
    };
    slow_place::watched(text, || {
        let (wanted, foreign) = trusted_files(path)?;
        Ok((read_files(wanted)?, foreign))
    })
}

/// Lists the files of a directory that count, in order, and those that do not, because other users may have put them there.
fn trusted_files(path: &Path) -> Result<(Vec<(PathBuf, SampleFileName)>, ForeignFiles), Error> {
    let failed = |error: &io::Error| Error::storage("list samples in", path, error);
    let found = directory::look_through(path).map_err(|error| failed(&error))?;
    let trusted =
        (found.mode & OTHERS_WRITE != 0).then(|| [found.uid, rustix::process::geteuid().as_raw()]);
    let mut foreign = Vec::new();
    let mut wanted = Vec::new();
    for name in SampleDirectory::names(path)? {
        let file = path.join(name.to_string());
        if let Some(trusted) = trusted {
            match listing::glance(&file) {
                Ok(facts) if !trusted.contains(&facts.uid) => {
                    foreign.push((file, facts.uid));
                    continue;
                }
                // Reading says more.
                _ => {}
            }
        }
        wanted.push((file, name));
    }
    Ok((wanted, foreign))
}

/// Reads files, without those that are gone by now.
fn read_files(wanted: Vec<(PathBuf, SampleFileName)>) -> Result<Vec<ScannedFile>, Error> {
    let mut files = Vec::with_capacity(wanted.len());
    parallel::share(
        READING_THREADS,
        wanted.into_iter(),
        |(path, name)| match ScannedFile::read(&path, name) {
            Err(Error::Storage { cause, .. }) if is_gone(&cause) => Ok(None),
            read => read.map(Some),
        },
        |file| {
            files.extend(file);
            Ok(())
        },
    )?;
    files.sort_unstable_by_key(|file| file.name);
    Ok(files)
}

pub(crate) fn is_gone(cause: &StorageCause) -> bool {
    let error = cause.os_code.map(io::Error::from_raw_os_error);
    error.is_some_and(|error| is_not_seen(&error))
}
