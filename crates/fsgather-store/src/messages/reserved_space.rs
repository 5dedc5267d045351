//! Space that a rank reserves for its messages on a full disk: [`ReservedSpace`].

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
};

use fsgather_core::{Rank, lock};
use rustix::io::Errno;

use crate::{
    directory::gather_dir::GatherDir,
    messages::names::MarkerName,
    os::{file, remove, reveal},
};

/// Bytes in each file, and number of files.
const ROOM: usize = 16 << 10;
const FILES: usize = 3;

/// Files beside a rank's messages that are never opened by readers. If there is no space for a message, for lack of bytes or
/// inodes, one of them is overwritten and then renamed: that needs no space that another process might take first.
#[derive(Debug, Default)]
pub(crate) struct ReservedSpace(Mutex<Vec<PathBuf>>);

impl ReservedSpace {
    fn lock(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        lock(&self.0)
    }

    /// Reserves the missing files, as far as there is space.
    pub(crate) fn fill(&self, directory: &GatherDir, outbox: &Path, rank: Rank) {
        while self.lock().len() < FILES {
            let name = MarkerName::Reserve {
                from: rank,
                nonce: fsgather_core::sys::random::fresh(),
            };
            let path = outbox.join(name.to_string());
            let mode = directory.file_mode();
            match file::write_new(&path, mode, &[0x66; ROOM], directory.must_sync()) {
                Ok(()) => self.lock().push(path),
                Err(error) => {
                    tracing::debug!(path = %path.display(), %error, "no room to set aside");
                    return;
                }
            }
        }
    }

    /// Writes a file for which there is no space.
    pub(crate) fn write(
        &self,
        directory: &GatherDir,
        path: &Path,
        contents: &[u8],
    ) -> io::Result<()> {
        let Some(reserve) = self.lock().pop() else {
            return Err(Errno::NOSPC.into());
        };
        let synced = directory.must_sync();
        if contents.len() > ROOM {
            remove::unlink(&reserve)?;
            return file::write_new(path, directory.file_mode(), contents, synced);
        }
        let uid = directory.own().0;
        file::write_over(&reserve, uid, contents, synced)
            .and_then(|()| reveal::rename(&reserve, path))
            .inspect_err(|_| remove::or_leave(&reserve))
    }

    /// Returns the remaining files, to be removed.
    pub(crate) fn take_all(&self) -> Vec<PathBuf> {
        std::mem::take(&mut *self.lock())
    }
}
