//! Taking a gather directory away: [`GatherDir::remove`] and what it could not remove, [`Removal`].

use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

use fsgather_core::{ChannelId, Epoch, Error, Rank};
use rustix::fs::{CWD, FileType};

use crate::{
    directory::gather_dir::{GatherDir, is_not_seen},
    layout::{self, PayloadName},
    lifecycle::inventory::{self, KnownEntry, KnownFile, Table},
    os::{directory::OwnUid, listing, remove, retry_budget},
    payload::writer::PayloadId,
};

/// What [`GatherDir::remove`] could not remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Removal {
    left: Vec<(PathBuf, String)>,
}

impl Removal {
    /// Whether nothing is left.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.left.is_empty()
    }

    /// What is left, and why.
    #[must_use]
    pub fn left(&self) -> &[(PathBuf, String)] {
        &self.left
    }

    /// The same as text.
    pub(crate) fn reasons(&self) -> String {
        let left = self.left.iter();
        let left: Vec<String> = left
            .map(|(path, reason)| format!("{}: {reason}", path.display()))
            .collect();
        left.join(", ")
    }
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.left.is_empty() {
            return f.write_str("everything was removed");
        }
        f.write_str("could not remove ")?;
        for (i, (path, reason)) in self.left.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{} ({reason})", path.display())?;
        }
        f.write_str("; it can be removed by hand once the job is over")
    }
}

/// Pauses before trying again to remove a directory that is in use: names of removed files that are
/// still open somewhere go away when they are closed.
const PAUSES_MS: [u64; 5] = [100, 200, 500, 1000, 2000];

/// After so many tries a file that a FUSE client has hidden is removed as well: what is still open by then hides again.
const PATIENT_TRIES: u32 = 2;

impl GatherDir {
    /// Removes the directory if nobody needs it any more; for the ranks that are left when rank `owner`, whose
    /// business it would be, is gone. Whether the directory is gone as well.
    ///
    /// As long as somebody writes or has something to read, a payload is there, and nothing is removed;
    /// the last one to leave finds none. What the owner was writing does not count: nobody can have been
    /// told of it.
    #[must_use = "a directory that stays should be marked"]
    pub fn remove_if_unused(&self, owner: Rank) -> bool {
        let is_free_of = |name: &str, counts: &dyn Fn(PayloadName) -> bool| {
            let names = listing::names(&self.path().join(name));
            match names {
                Ok(names) => !names
                    .iter()
                    .filter_map(|name| PayloadName::parse(name))
                    .any(counts),
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            }
        };
        is_free_of(layout::PAYLOADS, &|_| true)
            && is_free_of(layout::STAGING, &|payload| payload.rank() != owner)
            && self.remove().is_complete()
    }

    /// To be called before a payload is [removed](Self::reclaim) that was closed `ago`.
    pub(crate) fn wait_until_closed(&self, ago: Duration) {
        remove::wait_until_closed(self.file_system(), ago);
    }

    /// Removes one payload that nobody needs any more. That it is gone already is success.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] when it is there and stays there.
    pub fn reclaim(&self, name: PayloadName) -> Result<(), Error> {
        let path = self.path().join(layout::PAYLOADS).join(name.to_string());
        remove::unlink(&path).map_err(|error| Error::storage("remove", path, &error))
    }

    /// Removes a rank's payload of one call, whatever its attempt; for an owner that has gone. That it is
    /// gone already is success.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] when it is there and stays there, or nobody can tell.
    pub fn reclaim_of(&self, id: PayloadId) -> Result<(), Error> {
        let payloads = self.path().join(layout::PAYLOADS);
        let names = match listing::names(&payloads) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|error| Error::storage("list", &payloads, &error))?,
        };
        names
            .iter()
            .filter_map(|name| PayloadName::parse(name))
            .filter(|name| {
                (name.channel(), name.epoch(), name.rank()) == (id.channel, id.epoch, id.rank)
            })
            .try_for_each(|name| self.reclaim(name))
    }

    /// Removes the payloads of the calls that `is_undecided` tells: those that failed, which nobody
    /// will read. The owner does this when it leaves before the others.
    pub fn discard_undecided(&self, is_undecided: impl Fn(ChannelId, Epoch) -> bool) {
        let payloads = self.path().join(layout::PAYLOADS);
        for name in listing::names(&payloads).unwrap_or_default() {
            let is_junk = PayloadName::parse(&name)
                .is_some_and(|payload| is_undecided(payload.channel(), payload.epoch()));
            if is_junk && let Err(error) = remove::unlink(&payloads.join(&name)) {
                tracing::debug!("a payload that nobody reads stays: {error}");
            }
        }
    }

    /// Removes the directory and everything in it that the store writes, deepest first.
    ///
    /// Follows no links, and removes nothing of an unknown name, of another kind or of another user. What
    /// is gone already counts as removed. Marks and owner record go last, so that a removal that is cut
    /// short leaves a directory that still says whose it is. A directory in use is tried again for up to
    /// 4 seconds; what a FUSE client has hidden in it instead of removing it is removed then.
    pub fn remove(&self) -> Removal {
        remove_gather_directory(self.path(), self.own(), true)
    }
}

/// Removes the gather directory at `path`, as [`GatherDir::remove`] does; without a retry, what is in use
/// stays at once.
pub(crate) fn remove_gather_directory(path: &Path, own: OwnUid, patient: bool) -> Removal {
    let pauses: &[u64] = if patient { &PAUSES_MS } else { &[] };
    remove_all(path, own, inventory::gather_directory, pauses, None)
}

/// The same for a directory that nobody uses any more: files that a client has hidden instead of removing
/// them are taken for what they are, left over. It ends between two files when `is_enough` says so.
pub(crate) fn remove_abandoned(
    path: &Path,
    own: OwnUid,
    patient: bool,
    is_enough: &dyn Fn() -> bool,
) -> Removal {
    let pauses: &[u64] = if patient { &PAUSES_MS } else { &[] };
    let table = inventory::gather_directory;
    remove_all(path, own, table, pauses, Some(is_enough))
}

/// Removes another directory of which a table says what is ours.
pub(crate) fn remove_directory(path: &Path, own: OwnUid, table: Table) -> Removal {
    remove_all(path, own, table, &PAUSES_MS, None)
}

fn remove_all(
    path: &Path,
    own: OwnUid,
    table: Table,
    pauses: &'static [u64],
    abandoned: Option<&dyn Fn() -> bool>,
) -> Removal {
    let mut remover = Remover {
        own,
        pauses,
        abandoned,
        removal: Removal::default(),
    };
    remover.remove(CWD, path, path, table);
    remover.removal
}

struct Remover<'a> {
    own: OwnUid,
    pauses: &'static [u64],
    /// Where nobody can have a file open any more: what tells whether to leave the rest to somebody else.
    abandoned: Option<&'a dyn Fn() -> bool>,
    removal: Removal,
}

impl Remover<'_> {
    /// Removes the directory `name` in `parent` with all in it that is in `table`; whether it is gone.
    /// `path` is how messages call it.
    fn remove(&mut self, parent: BorrowedFd<'_>, name: &Path, path: &Path, table: Table) -> bool {
        let mut pauses = self.pauses.iter();
        let mut tries = 0;
        loop {
            let directory = match self.enter(parent, name) {
                Ok(Some(directory)) => directory,
                Ok(None) => return true,
                Err(reason) => return self.leave(path, reason),
            };
            tries += 1;
            let (what, error) = match self.empty(&directory, path, table, tries > PATIENT_TRIES) {
                Err(Left::Below) => return false,
                Err(Left::Rest) => return self.leave(path, "it was left to others".into()),
                Err(Left::Stranger(stranger)) => {
                    return self.leave(path, format!("{stranger:?} is not ours"));
                }
                Err(Left::File(file, error)) => (path.join(file), error),
                Ok(()) => match remove::rmdir_in(parent, name) {
                    Ok(()) => return true,
                    Err(error) if remove::may_pass(&error) => (path.to_owned(), error),
                    Err(error) => return self.leave(path, error.to_string()),
                },
            };
            let Some(&pause) = pauses.next() else {
                return self.leave(&what, error.to_string());
            };
            let nobody = &mut |_| Ok(());
            // Nobody interrupts it, so that it cannot fail.
            let _ = retry_budget::sleep(Duration::from_millis(pause), nobody);
        }
    }

    /// Opens a directory of this user's; none if it is gone.
    fn enter(&self, parent: BorrowedFd<'_>, name: &Path) -> Result<Option<OwnedFd>, String> {
        let opened = if_there(|| listing::open(parent, name)).map_err(|error| error.to_string())?;
        let Some(directory) = opened else {
            return Ok(None);
        };
        let found = listing::examine_open(&directory).map_err(|error| error.to_string())?;
        if found.uid == self.own.0 {
            Ok(Some(directory))
        } else {
            Err(format!("it belongs to uid {}", found.uid))
        }
    }

    /// Removes what is ours in a directory. What says something of the directory stays while anything
    /// else does.
    fn empty(
        &mut self,
        directory: &OwnedFd,
        path: &Path,
        table: Table,
        with_hidden: bool,
    ) -> Result<(), Left> {
        let mut stranger = None;
        let mut left = None;
        let mut last = Vec::new();
        let mut is_empty_below = true;
        for name in listing::names_of(directory).unwrap_or_default() {
            if self.abandoned.is_some_and(|is_enough| is_enough()) {
                return Err(Left::Rest);
            }
            let name = match name {
                Ok(name) => name,
                Err(name) => {
                    stranger = Some(name);
                    continue;
                }
            };
            match table(&name) {
                Some(KnownEntry::Directory(table)) => {
                    let below = path.join(&name);
                    is_empty_below &=
                        self.remove(directory.as_fd(), Path::new(&name), &below, table);
                }
                Some(KnownEntry::File(kind)) if self.is_own_file(directory, &name) => {
                    if kind.is_about_the_directory() {
                        last.push((kind == KnownFile::Owner, name));
                    } else if let Err(error) = remove::unlink_in(directory, Path::new(&name)) {
                        left = Some(Left::File(name, error));
                    }
                }
                None if inventory::is_lingering(&name) => {
                    let is_over = with_hidden && inventory::is_hidden_by_fuse(&name);
                    if (is_over || self.abandoned.is_some())
                        && self.is_own_file(directory, &name)
                        && let Err(error) = remove::unlink_in(directory, Path::new(&name))
                    {
                        tracing::debug!(path = %path.join(name).display(), %error, "cannot remove");
                    }
                }
                _ => stranger = Some(name),
            }
        }
        if let Some(stranger) = stranger {
            return Err(Left::Stranger(stranger));
        }
        if !is_empty_below {
            return Err(Left::Below);
        }
        if let Some(left) = left {
            return Err(left);
        }
        last.sort();
        for (_, name) in last {
            if let Err(error) = remove::unlink_in(directory, Path::new(&name)) {
                return Err(Left::File(name, error));
            }
        }
        Ok(())
    }

    /// Whether a name stands for a regular file of this user's; or for nothing any more.
    fn is_own_file(&self, directory: &OwnedFd, name: &str) -> bool {
        match listing::examine(directory, Path::new(name)) {
            Ok(found) => found.kind == FileType::RegularFile && found.uid == self.own.0,
            Err(error) => is_not_seen(&error),
        }
    }

    fn leave(&mut self, path: &Path, reason: String) -> bool {
        self.removal.left.push((path.to_owned(), reason));
        false
    }
}

/// What was opened; none if it is gone, which it is only if the server says so: else what speaks for the directory above would be
/// removed next, and what is in it would belong to nobody.
fn if_there<D>(mut open: impl FnMut() -> io::Result<D>) -> io::Result<Option<D>> {
    let opened = match open() {
        // What the client knew of it was old.
        Err(error) if is_not_seen(&error) => open(),
        other => other,
    };
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The reason why a directory cannot be removed.
enum Left {
    /// Something in it is not ours.
    Stranger(String),
    /// A directory in it stays, as has been noted.
    Below,
    /// A file of ours cannot be removed now.
    File(String, io::Error),
    /// There is no time for it.
    Rest,
}

/// Removes a file, if it still is one and this user's.
pub(crate) fn remove_file(path: &Path, own: OwnUid) -> Result<(), String> {
    let told = |error: io::Error| error.to_string();
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err("it has no name".into());
    };
    let directory = listing::open(CWD, parent).map_err(told)?;
    let found = match listing::examine(&directory, Path::new(name)) {
        Ok(found) => found,
        Err(error) if is_not_seen(&error) => return Ok(()),
        Err(error) => return Err(told(error)),
    };
    if found.kind != FileType::RegularFile || found.uid != own.0 {
        return Err(format!("it is no file of uid {} any more", own.0));
    }
    remove::unlink_in(&directory, Path::new(name)).map_err(told)
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_directory_of_which_the_client_knew_old_news_is_not_taken_for_gone() {
        let opened = |answers: [Result<(), Errno>; 2]| {
            let mut answers = answers.into_iter();
            if_there(|| Ok(answers.next().unwrap()?)).map_err(|error| error.raw_os_error())
        };
        let stale = Err(Errno::STALE);
        let gone = Err(Errno::NOENT);
        assert_eq!(opened([Ok(()), stale]), Ok(Some(())));
        assert_eq!(opened([stale, Ok(())]), Ok(Some(())));
        assert_eq!(opened([stale, gone]), Ok(None));
        assert_eq!(opened([gone, gone]), Ok(None));
        let unknown = Err(Some(Errno::STALE.raw_os_error()));
        assert_eq!(opened([stale, stale]), unknown);
    }
}
