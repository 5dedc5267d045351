//! Room that a rank sets aside for its messages on a disk that is full: [`ReservedSpace`].

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

/// Room in each file, in bytes, and how many of them there are.
const ROOM: usize = 16 << 10;
const FILES: usize = 3;

/// Files beside a rank's messages that nobody ever opens. Where there is no room for a message, for want
/// of bytes or of inodes, one of them gets its bytes and then its name: so it takes nothing that somebody
/// else might get first.
#[derive(Debug, Default)]
pub(crate) struct ReservedSpace(Mutex<Vec<PathBuf>>);

impl ReservedSpace {
    fn lock(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        lock(&self.0)
    }

    /// Sets aside what is missing, as far as there is room for it.
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

    /// Leaves a file for which there is no room.
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

    /// Hands out what is left, to be removed.
    pub(crate) fn take_all(&self) -> Vec<PathBuf> {
        std::mem::take(&mut *self.lock())
    }
}
