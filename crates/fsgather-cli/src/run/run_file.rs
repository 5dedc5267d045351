//! A file that only `run` and its ranks can open: [`RunFile`].

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Write},
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::FileExt,
    },
};

use rustix::fs::{MemfdFlags, OFlags, fcntl_setfl, memfd_create};

use super::variables::Variable;

/// A file in memory without a name in a directory. It ends with this process, however that ends.
#[derive(Debug)]
pub(super) struct RunFile(File);

impl RunFile {
    /// Creates a file. Returns `None` if the system has no such files; a run works without.
    pub(super) fn create(name: &str) -> Option<Self> {
        let create = || {
            let file = memfd_create(name, MemfdFlags::CLOEXEC)?;
            fcntl_setfl(file.as_fd(), OFlags::APPEND)?;
            io::Result::Ok(Self(file.into()))
        };
        create()
            .inspect_err(|error| tracing::debug!("{name} cannot be made in memory: {error}"))
            .ok()
    }

    /// The variable with the path of a file. Without a file it is removed: it may name the file of another run.
    pub(super) fn variable(file: Option<&Self>, name: &'static str) -> Variable {
        let path =
            file.map(|file| format!("/proc/{}/fd/{}", std::process::id(), file.0.as_raw_fd()));
        (name, path.map(OsString::from))
    }

    /// Reads the file from its beginning, up to a maximum length.
    pub(super) fn read(&self, max_bytes: usize) -> Vec<u8> {
        let length = self.0.metadata().map_or(0, |found| found.len());
        let length = usize::try_from(length).map_or(max_bytes, |length| length.min(max_bytes));
        let mut bytes = vec![0; length];
        match self.0.read_exact_at(&mut bytes, 0) {
            Ok(()) => bytes,
            Err(_) => Vec::new(),
        }
    }

    /// Appends bytes in one piece.
    pub(super) fn append(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.0).write_all(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_run_append_through_the_variable() {
        let file = RunFile::create("fsgather-test").unwrap();
        let (name, path) = RunFile::variable(Some(&file), "X");
        assert_eq!(name, "X");
        let mut rank = File::options().append(true).open(path.unwrap()).unwrap();
        rank.write_all(b"rank ").unwrap();
        file.append(b"run ").unwrap();
        rank.write_all(b"rank").unwrap();
        assert_eq!(file.read(100), b"rank run rank");
        assert_eq!(file.read(4), b"rank");
        assert_eq!(RunFile::variable(None, "X"), ("X", None));
    }
}
