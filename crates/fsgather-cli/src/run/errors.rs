//! Collects the errors that ranks report themselves: [`Errors`], the place where they leave them.

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::{fd::AsRawFd, unix::fs::FileExt},
};

use fsgather_report::last_error::{self, LastError};
use rustix::fs::{MemfdFlags, memfd_create};

use super::variables::Variable;

/// The most that is read, in bytes.
const MOST: usize = 8 << 20;

/// A file without a name, which goes with this process whatever ends it.
#[derive(Debug)]
pub(super) struct Errors(File);

impl Errors {
    pub(super) fn place() -> io::Result<Self> {
        let file = memfd_create(last_error::FILE_NAME, MemfdFlags::CLOEXEC)?;
        Ok(Self(file.into()))
    }

    /// What tells ranks where it is. A rank that cannot see this process leaves nothing.
    pub(super) fn variable(&self) -> Variable {
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd());
        ("FSGATHER_ERROR_FILE", Some(OsString::from(path)))
    }

    /// What has been left so far.
    pub(super) fn read(&self) -> Vec<LastError> {
        let len = self.0.metadata().map_or(0, |found| found.len());
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(MOST).min(MOST)];
        match self.0.read_exact_at(&mut bytes, 0) {
            Ok(()) => LastError::read(&String::from_utf8_lossy(&bytes)),
            Err(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_is_left_by_way_of_the_variable_is_read() {
        let errors = Errors::place().unwrap();
        let (_, path) = errors.variable();
        for line in ["1\t\t1\tno room\n", "0\t1\t2\trank 1 failed\n"] {
            let mut file = File::options()
                .append(true)
                .open(path.clone().unwrap())
                .unwrap();
            file.write_all(line.as_bytes()).unwrap();
        }
        let read = errors.read();
        assert_eq!((read[0].rank, read[1].blames.as_slice()), (1, &[1][..]));
    }
}
