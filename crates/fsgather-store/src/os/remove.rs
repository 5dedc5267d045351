//! Removing files and directories: the one owner of `unlink` and `rmdir`.
//!
//! "Already gone" is success: deletion is shared between ranks, and a reply may have been lost.

use std::{io, os::fd::AsFd, path::Path, time::Duration};

use fsgather_core::sys::files;
use rustix::{
    fs::{AtFlags, CWD},
    io::Errno,
};

use crate::os::{
    filesystem::FileSystem,
    retry_budget::{self, RetryBudget},
};

/// Removes a file.
///
/// A client that closes files asynchronously may think that a file is still open which was closed a moment ago. If it cannot
/// rename the file either, it refuses the removal (FUSE); so this tries again for two seconds.
pub(crate) fn unlink(path: &Path) -> io::Result<()> {
    unlink_in(CWD, path)
}

/// Removes a file in a directory that is held.
pub(crate) fn unlink_in(directory: impl AsFd, name: &Path) -> io::Result<()> {
    let directory = directory.as_fd();
    let mut retries = RetryBudget::new(Duration::from_secs(2));
    loop {
        let removed = files::unlink(directory, name, AtFlags::empty());
        if removed != Err(Errno::NOSYS) || !matches!(retries.pause(&mut |_| Ok(())), Ok(true)) {
            return gone(removed);
        }
    }
}

/// Removes a file that must not stay. A stale handle is an error here: it may be that of a parent directory, and proves
/// nothing.
pub(crate) fn unlink_surely(path: &Path) -> io::Result<()> {
    match files::unlink(CWD, path, AtFlags::empty()) {
        Err(Errno::STALE) => Err(Errno::STALE.into()),
        other => gone(other),
    }
}

/// Time within which a FUSE client learns that a file was closed: the kernel notifies it later than the program that closed the
/// file.
const HEARD_OF_CLOSING: Duration = Duration::from_millis(5);

/// Waits until a file that was closed `ago` can be removed.
///
/// A FUSE client that does not know yet that a file is closed hides it instead of removing it, and may keep it forever.
pub(crate) fn wait_until_closed(file_system: &FileSystem, ago: Duration) {
    if file_system.is_fuse() {
        // The pause has no interrupt, so it cannot fail.
        let _ = retry_budget::sleep(HEARD_OF_CLOSING.saturating_sub(ago), &mut |_| Ok(()));
    }
}

/// Removes a file if possible; an error does not matter much.
pub(crate) fn or_leave(path: &Path) {
    if let Err(error) = unlink(path) {
        tracing::debug!(path = %path.display(), %error, "cannot remove");
    }
}

/// Removes an empty directory.
pub(crate) fn rmdir(path: &Path) -> io::Result<()> {
    rmdir_in(CWD, path)
}

/// Removes a directory if it is empty and that is possible.
pub(crate) fn rmdir_or_leave(path: &Path) {
    if let Err(error) = rmdir(path) {
        tracing::debug!(path = %path.display(), %error, "cannot remove");
    }
}

/// Removes an empty directory in an open directory.
pub(crate) fn rmdir_in(directory: impl AsFd, name: &Path) -> io::Result<()> {
    let directory = directory.as_fd();
    let remove = || files::unlink(directory, name, AtFlags::REMOVEDIR);
    // A stale handle may be from the client's cached path, which it looks up anew in the second attempt.
    gone(match remove() {
        Err(Errno::STALE) => remove(),
        once => once,
    })
}

/// Returns true if an error says that a directory is not empty or in use.
pub(crate) fn is_in_use(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::NOTEMPTY | Errno::BUSY | Errno::EXIST)
    )
}

/// Returns true if an error of removing a directory may be transient: the directory is in use, or the server has a temporary
/// error.
pub(crate) fn may_pass(error: &io::Error) -> bool {
    is_in_use(error) || error.raw_os_error() == Some(Errno::IO.raw_os_error())
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

    #[test]
    fn what_is_refused_for_other_reasons_is_not_in_use() {
        let error = |errno: Errno| io::Error::from(errno);
        for (errno, in_use, passes) in [
            (Errno::NOTEMPTY, true, true),
            (Errno::BUSY, true, true),
            (Errno::EXIST, true, true),
            (Errno::IO, false, true),
            (Errno::ACCESS, false, false),
        ] {
            assert_eq!(is_in_use(&error(errno)), in_use, "{errno}");
            assert_eq!(may_pass(&error(errno)), passes, "{errno}");
        }
    }

    #[test]
    fn an_empty_directory_goes_and_another_stays() {
        let place = tempfile::tempdir().unwrap();
        let (empty, full) = (place.path().join("empty"), place.path().join("full"));
        std::fs::create_dir_all(&empty).unwrap();
        std::fs::create_dir_all(full.join("inside")).unwrap();
        rmdir_or_leave(&empty);
        rmdir_or_leave(&full);
        assert!(!empty.exists() && full.exists());
    }
}
