//! Collects the errors that ranks report: [`Errors`].

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::{fd::AsRawFd, unix::fs::FileExt},
    time::Instant,
};

use fsgather::Rank;
use fsgather_config::environment;
use fsgather_core::last_error::{self, LastError};
use rustix::fs::{MemfdFlags, memfd_create};

use super::variables::Variable;

/// How much is read at most.
const MAX_READ_BYTES: usize = 8 << 20;

/// The last error that a rank has reported, and when.
#[derive(Clone, Debug)]
pub(super) struct ReportedError {
    pub(super) error: LastError,
    pub(super) at: Instant,
}

impl ReportedError {
    /// Whether it blames a rank.
    pub(super) fn blames(&self, rank: Rank) -> bool {
        self.error.blames.contains(&rank.get())
    }
}

/// The unnamed file to which ranks append their errors. It ends with this process, however that ends.
#[derive(Debug)]
pub(super) struct Errors(File);

impl Errors {
    pub(super) fn create() -> io::Result<Self> {
        let file = memfd_create(last_error::FILE_NAME, MemfdFlags::CLOEXEC)?;
        Ok(Self(file.into()))
    }

    /// The variable with its path. A rank that cannot see this process reports nothing.
    pub(super) fn variable(&self) -> Variable {
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd());
        (environment::ERROR_FILE, Some(OsString::from(path)))
    }

    /// The last error of each rank, in the order in which they were reported.
    pub(super) fn read(&self) -> Vec<ReportedError> {
        let length = self.0.metadata().map_or(0, |found| found.len());
        let length = usize::try_from(length).unwrap_or(MAX_READ_BYTES);
        let mut bytes = vec![0; length.min(MAX_READ_BYTES)];
        if self.0.read_exact_at(&mut bytes, 0).is_err() {
            return Vec::new();
        }
        let now = Instant::now();
        let errors = LastError::read(&String::from_utf8_lossy(&bytes)).into_iter();
        errors
            .map(|error| ReportedError {
                at: now.checked_sub(error.age()).unwrap_or(now),
                error,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn errors_are_read_that_ranks_append() {
        let errors = Errors::create().unwrap();
        let (_, path) = errors.variable();
        for line in ["1\t\t1\tno room\n", "0\t1\t2\trank 1 failed\n"] {
            let mut file = File::options()
                .append(true)
                .open(path.clone().unwrap())
                .unwrap();
            file.write_all(line.as_bytes()).unwrap();
        }
        let read = errors.read();
        assert_eq!(read[0].error.rank, 1);
        assert!(read[1].blames(Rank::new(1)) && !read[0].blames(Rank::ZERO));
    }
}
