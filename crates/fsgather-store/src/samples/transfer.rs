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
    layout::SampleFileName,
    os::{file, remove},
    samples::{
        entry::{EntryKind, encode_entry},
        file_header::SampleFileHeader,
        part_file::FILE_MODE,
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
    nonce: u64,
    results: impl IntoIterator<Item = (&'a SampleId, &'a [u8])>,
) -> Result<Vec<u8>, Error> {
    let mut contents = header.to_bytes()?;
    for ((id, value), sequence) in results.into_iter().zip(0..) {
        let kind = EntryKind::Result;
        encode_entry(&mut contents, nonce, sequence, kind, id, &[value])?;
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

/// Stores a file of samples that another host has sent under its own name, unless the bytes end early.
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
    let temporary = directory.join(format!("{name}-{:016x}", random::fresh::<u64>()));
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
        file::sync(&file)?;
        Ok(files::rename(&temporary, &path)?)
    };
    receive().map_err(|error: io::Error| {
        let _ = remove::unlink(&temporary);
        failed(&error)
    })
}
