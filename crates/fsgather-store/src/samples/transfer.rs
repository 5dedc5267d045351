//! Files of samples between processes: in memory by [`encode_samples`], between directories by [`SampleFileStream`] and
//! [`receive_sample_file`].

use std::{
    fs::File,
    io::{self, IoSlice, Read},
    path::{Path, PathBuf},
};

use fsgather_core::{
    Error,
    sys::{files, random},
};

use crate::{
    directory::gather_dir::is_not_seen,
    layout::SampleFileName,
    os::{file, listing, remove},
    samples::{
        entry::{EntryKind, encode_entry},
        file_header::SampleFileHeader,
        file_scan::ScannedFile,
        part_file::FILE_MODE,
        sample_directory::is_gone,
        sample_id::SampleId,
    },
};

/// Bytes that are received at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// Makes the contents of a file of samples in memory.
///
/// # Errors
///
/// [`Error::Config`] for a configuration or an id that is too long.
pub fn encode_samples<'a>(
    header: &SampleFileHeader,
    name: SampleFileName,
    results: impl IntoIterator<Item = (&'a SampleId, &'a [u8])>,
) -> Result<Vec<u8>, Error> {
    let mut contents = header.to_bytes(name, b"")?;
    for ((id, value), sequence) in results.into_iter().zip(0..) {
        let kind = EntryKind::Result;
        encode_entry(&mut contents, name.nonce, sequence, kind, id, &[value])?;
    }
    Ok(contents)
}

/// Files of samples one after the other, each up to the length that was announced.
#[derive(Debug)]
pub struct SampleFileStream {
    directory: PathBuf,
    files: std::vec::IntoIter<(SampleFileName, u64)>,
    open: Option<io::Take<File>>,
}

impl SampleFileStream {
    /// Reads these files of a directory.
    #[must_use]
    pub fn new(directory: &Path, files: Vec<(SampleFileName, u64)>) -> Self {
        Self {
            directory: directory.to_owned(),
            files: files.into_iter(),
            open: None,
        }
    }
}

impl Read for SampleFileStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(open) = &mut self.open {
                let read = open.read(buffer)?;
                if read > 0 || buffer.is_empty() {
                    return Ok(read);
                }
                if open.limit() > 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            let Some((name, len)) = self.files.next() else {
                return Ok(0);
            };
            let path = self.directory.join(name.to_string());
            self.open = Some(file::open(&path)?.take(len));
        }
    }
}

/// Stores a file of samples that another host has sent under its own name, if it has entries that the file there lacks.
///
/// No entry is lost: a file with entries that the new one lacks becomes another part of its process.
///
/// # Errors
///
/// [`Error::Storage`] if it cannot be read to the end or written.
pub fn receive_sample_file(
    directory: &Path,
    name: SampleFileName,
    len: u64,
    mut bytes: impl Read,
) -> Result<(), Error> {
    let path = directory.join(name.to_string());
    let temporary = temporary_path(directory, name);
    let failed = |error: &io::Error| Error::storage("receive samples into", &path, error);
    let file = file::create_masked(&temporary, FILE_MODE).map_err(|error| failed(&error))?;
    let mut left = len;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut receive = || {
        while left > 0 {
            let most = buffer
                .len()
                .min(usize::try_from(left).unwrap_or(usize::MAX));
            let read = bytes.read(&mut buffer[..most])?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            file::write_all(&file, &mut [IoSlice::new(&buffer[..read])])?;
            left -= read as u64;
        }
        file::sync(&file)
    };
    let stored = receive()
        .map_err(|error: io::Error| failed(&error))
        .and_then(|()| put_in_place(directory, name, &temporary));
    if stored.is_err() {
        let _ = remove::unlink(&temporary);
    }
    stored
}

/// Path of a file that is no part of the directory.
fn temporary_path(directory: &Path, name: SampleFileName) -> PathBuf {
    directory.join(format!("{name}-{:016x}", random::fresh::<u64>()))
}

/// Gives a received file its name.
fn put_in_place(directory: &Path, name: SampleFileName, received: &Path) -> Result<(), Error> {
    let path = directory.join(name.to_string());
    let there = match ScannedFile::read(&path, name) {
        Ok(there) => Some(there),
        Err(Error::Storage { cause, .. }) if is_gone(&cause) => None,
        Err(error) => return Err(error),
    };
    let new = ScannedFile::read(received, name)?.copy();
    let old = there.as_ref().and_then(ScannedFile::copy);
    let is_needed = match (&new, &old) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(new), Some(old)) => new.adds_to(old),
    };
    let place = || {
        if !is_needed {
            return remove::unlink(received);
        }
        if let (Some(new), Some(old)) = (&new, &old)
            && old.adds_to(new)
        {
            files::rename(&path, &free_part(directory, name)?)?;
        } else if there.is_some_and(|there| !there.is_file()) {
            let aside = temporary_path(directory, name);
            files::rename(&path, &aside)?;
            fsgather_core::warn!(
                "{} is in the place of a file of samples; it is called {} now",
                path.display(),
                aside.display()
            );
        }
        Ok(files::rename(received, &path)?)
    };
    place().map_err(|error: io::Error| Error::storage("receive samples into", &path, &error))
}

/// Returns the path of a part that a process does not have yet.
fn free_part(directory: &Path, name: SampleFileName) -> io::Result<PathBuf> {
    let parts = name.part + 1..=SampleFileName::MAX_PART;
    let mut paths = parts.map(|part| directory.join(SampleFileName { part, ..name }.to_string()));
    let free =
        paths.find(|path| listing::examine_path(path).is_err_and(|error| is_not_seen(&error)));
    free.ok_or_else(|| io::ErrorKind::AlreadyExists.into())
}
