//! Removing files and directories: the one owner of `unlink` and `rmdir`.
//!
//! "Already gone" is success: deletion is shared between ranks, and a reply may have been lost.

use std::{io, os::fd::AsFd, path::Path, time::Duration};

use rustix::{
    fs::{AtFlags, CWD},
    io::{Errno, retry_on_intr},
};

use crate::os::retry_budget::RetryBudget;

/// Removes a file.
///
/// A client that closes behind one's back may take a file for open that was closed a moment ago, and refuse where it would
/// have to be renamed and nothing can be (FUSE); so that is tried again for two seconds.
pub(crate) fn unlink(path: &Path) -> io::Result<()> {
    unlink_in(CWD, path)
}

/// The same in a directory that is held.
pub(crate) fn unlink_in(directory: impl AsFd, name: &Path) -> io::Result<()> {
    let directory = directory.as_fd();
    let mut retries = RetryBudget::new(Duration::from_secs(2));
    loop {
        let removed = retry_on_intr(|| rustix::fs::unlinkat(directory, name, AtFlags::empty()));
        if removed != Err(Errno::NOSYS) || !matches!(retries.pause(&mut |_| Ok(())), Ok(true)) {
            return gone(removed);
        }
    }
}

/// Removes a file of which it does not matter much whether it stays.
pub(crate) fn or_leave(path: &Path) {
    if let Err(error) = unlink(path) {
        tracing::debug!(path = %path.display(), %error, "cannot remove");
    }
}

/// Removes an empty directory.
pub(crate) fn rmdir(path: &Path) -> io::Result<()> {
    gone(retry_on_intr(|| {
        rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR)
    }))
}

/// Removes an empty directory in a directory that is open.
pub(crate) fn rmdir_in(directory: impl AsFd, name: &Path) -> io::Result<()> {
    let directory = directory.as_fd();
    gone(retry_on_intr(|| {
        rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR)
    }))
}

/// Whether an error says that a directory still holds, or somebody still uses, something.
pub(crate) fn is_in_use(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::NOTEMPTY | Errno::BUSY | Errno::EXIST)
    )
}

fn gone(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::NOENT | Errno::STALE) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_already_counts_as_removed() {
        let place = tempfile::tempdir().unwrap();
        unlink(&place.path().join("nothing")).unwrap();
        rmdir(&place.path().join("nothing")).unwrap();
    }

    #[test]
    fn a_directory_that_holds_something_is_in_use() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("file"), b"").unwrap();
        assert!(is_in_use(&rmdir(place.path()).unwrap_err()));
        assert!(place.path().join("file").exists());
    }
}
