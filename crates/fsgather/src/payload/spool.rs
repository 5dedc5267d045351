//! A stream that is too long to be held in memory until it is requested: [`Spool`], the owner of temporary files.

use std::{
    fs::File,
    io::{Read, Write},
    os::unix::fs::FileExt,
    path::Path,
    sync::Arc,
};

use fsgather_control::mesh::Source as Offered;
use fsgather_core::{Error, bytes_text};

/// The directory of spooled streams, and of nameless files of the store.
const PLACE: &str = "/tmp";

/// A stream in a nameless local file, which disappears with the process.
pub(crate) struct Spool {
    file: Arc<File>,
    len: u64,
    read: u64,
}

impl Spool {
    /// Returns an empty spool.
    pub(crate) fn new() -> Result<Self, Error> {
        let file = tempfile::tempfile_in(PLACE).map_err(|error| {
            Error::storage("make a temporary file in", Path::new(PLACE), &error)
        })?;
        Ok(Self {
            file: Arc::new(file),
            len: 0,
            read: 0,
        })
    }

    /// Appends bytes to it.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let becomes = self.len + bytes.len() as u64;
        (&*self.file).write_all(bytes).map_err(|error| {
            let what = format!("keep a stream of {} or more in", bytes_text(becomes));
            Error::storage(what, Path::new(PLACE), &error)
        })?;
        self.len = becomes;
        Ok(())
    }

    /// Returns the length in bytes.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Returns the file for other ranks to fetch, without a copy.
    pub(crate) fn offered(&self) -> Offered {
        Offered::File {
            file: Arc::clone(&self.file),
            len: self.len,
        }
    }
}

/// Reads from the beginning, independent of other readers.
impl Read for Spool {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = usize::try_from(self.len - self.read).unwrap_or(usize::MAX);
        let len = buffer.len().min(left);
        let read = self.file.read_at(&mut buffer[..len], self.read)?;
        self.read += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spool_is_read_as_it_grows_and_offered_whole() {
        let mut spool = Spool::new().unwrap();
        assert_eq!(spool.len(), 0);
        let mut buffer = [0; 10];
        assert_eq!(spool.read(&mut buffer).unwrap(), 0);
        spool.append(b"first ").unwrap();
        spool.append(b"").unwrap();
        assert_eq!(spool.read(&mut buffer[..4]).unwrap(), 4);
        assert_eq!(&buffer[..4], b"firs");
        spool.append(b"and second").unwrap();
        assert_eq!(spool.len(), 16);
        let Offered::File { file, len } = spool.offered() else {
            panic!("it is a file")
        };
        let mut whole = vec![0; usize::try_from(len).unwrap()];
        file.read_exact_at(&mut whole, 0).unwrap();
        assert_eq!(whole, b"first and second");
        let mut rest = Vec::new();
        spool.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"t and second");
    }
}
