//! Real descriptors that stand for files of the model: [`fresh`].
#![expect(unsafe_code, reason = "the argument stands beside each")]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::{fs::MemfdFlags, io::Result};

/// A new descriptor of an empty file, and a value that distinguishes it from a later one with the same number.
pub(crate) fn fresh() -> Result<(OwnedFd, u64)> {
    let nothing = rustix::fs::memfd_create("nothing", MemfdFlags::CLOEXEC)?;
    let identity = rustix::fs::fstat(&nothing)?.st_ino;
    Ok((nothing, identity))
}

/// Returns true if a descriptor has not been closed.
pub(crate) fn is_open(file: RawFd, identity: u64) -> bool {
    if file < 0 {
        return false;
    }
    // SAFETY: it is used for a call that is harmless for any descriptor of that number.
    let borrowed = unsafe { BorrowedFd::borrow_raw(file) };
    rustix::fs::fstat(borrowed).is_ok_and(|found| found.st_ino == identity)
}

/// Closes a descriptor whose owner was ended without running any more code.
pub(crate) fn close_leaked(file: RawFd, identity: u64) {
    if is_open(file, identity) {
        // SAFETY: it was made by `fresh`, and its owner is leaked with a stack: no other code will ever close or use it.
        drop(unsafe { OwnedFd::from_raw_fd(file) });
    }
}

/// The number of a descriptor.
pub(crate) fn number(file: BorrowedFd<'_>) -> RawFd {
    file.as_raw_fd()
}
