//! A model that replaces the real system, for one thread: [`run_on`].

use std::{
    cell::Cell,
    convert::Infallible,
    ffi::CStr,
    fs::File,
    io::IoSlice,
    os::fd::{BorrowedFd, OwnedFd},
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use rand::rand_core::TryRng;
use rustix::{
    fs::{AtFlags, OFlags},
    io::Result,
};

use crate::sys::status::{Room, Status};

thread_local! {
    static MODEL: Cell<Option<&'static dyn System>> = const { Cell::new(None) };
}

/// Returns the model of this thread.
pub(crate) fn current() -> Option<&'static dyn System> {
    MODEL.get()
}

/// Runs `work` with a model that answers its system calls; those of other threads stay real.
pub fn run_on<R>(model: &'static dyn System, work: impl FnOnce() -> R) -> R {
    /// Restores the previous model, even after a panic.
    struct Back(Option<&'static dyn System>);

    impl Drop for Back {
        fn drop(&mut self) {
            MODEL.set(self.0);
        }
    }

    let _back = Back(MODEL.replace(Some(model)));
    work()
}

/// The calls of this crate, as a model answers them. The callers document their meaning.
///
/// A call may let time pass and other threads of the model act before it returns.
#[expect(missing_docs, reason = "each is the call of the same name")]
pub trait System: Files {
    fn now(&self) -> Instant;
    fn wall(&self) -> SystemTime;
    /// Waits until a call of `wake` for the place `on`; there is none for 0.
    fn wait(&self, on: usize, limit: Option<Duration>);
    fn wake(&self, on: usize, all: bool);
    /// May let others act before a lock is taken; must do so if another thread has the lock (`is_taken`).
    fn before_lock(&self, is_taken: bool);
    fn start(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> u64;
    fn join(&self, thread: u64);
    fn draw(&self) -> u64;
    fn process(&self, pid: u32) -> Option<u64>;
}

/// The calls of [`files`](crate::sys::files). Descriptors are real ones, of any file that the model chooses. The model
/// may not learn that one of them is closed, except by [`close`](Self::close).
#[expect(
    missing_docs,
    clippy::missing_errors_doc,
    reason = "each is the call of the same name"
)]
pub trait Files {
    fn open(
        &self,
        directory: BorrowedFd<'_>,
        path: &Path,
        flags: OFlags,
        mode: u32,
    ) -> Result<OwnedFd>;
    fn read_at(&self, file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> Result<usize>;
    fn write(&self, file: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> Result<usize>;
    fn set_len(&self, file: BorrowedFd<'_>, len: u64) -> Result<()>;
    fn sync(&self, file: BorrowedFd<'_>) -> Result<()>;
    fn close(&self, file: File) -> Result<()>;
    fn duplicate(&self, file: BorrowedFd<'_>) -> Result<OwnedFd>;
    fn look(&self, directory: BorrowedFd<'_>, path: &Path, flags: AtFlags) -> Result<Status>;
    fn list(&self, directory: BorrowedFd<'_>, show: &mut dyn FnMut(&CStr)) -> Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    fn link(&self, from: &Path, to: &Path) -> Result<()>;
    fn unlink(&self, directory: BorrowedFd<'_>, name: &Path, flags: AtFlags) -> Result<()>;
    fn make_directory(&self, path: &Path, mode: u32) -> Result<()>;
    fn set_mode(&self, opened: BorrowedFd<'_>, mode: u32) -> Result<()>;
    fn set_group(&self, opened: BorrowedFd<'_>, group: u32) -> Result<()>;
    fn touch(&self, opened: BorrowedFd<'_>) -> Result<()>;
    fn kind(&self, path: &Path) -> Result<u32>;
    fn kind_of(&self, opened: BorrowedFd<'_>) -> Result<u32>;
    fn room(&self, path: &Path) -> Result<Room>;
}

/// The random numbers of a model.
pub(crate) struct Drawing(pub(crate) &'static dyn System);

impl TryRng for Drawing {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> std::result::Result<u32, Infallible> {
        self.try_next_u64().map(|drawn| (drawn >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> std::result::Result<u64, Infallible> {
        Ok(self.0.draw())
    }

    fn try_fill_bytes(&mut self, into: &mut [u8]) -> std::result::Result<(), Infallible> {
        for bytes in into.chunks_mut(8) {
            bytes.copy_from_slice(&self.0.draw().to_le_bytes()[..bytes.len()]);
        }
        Ok(())
    }
}
