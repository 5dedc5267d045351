//! Removal of a gather directory: [`GatherDir::remove`]; entries that could not be removed are in [`Removal`].

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

/// Entries that [`GatherDir::remove`] could not remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Removal {
    left: Vec<(PathBuf, String)>,
}

impl Removal {
    /// Returns true if everything was removed.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.left.is_empty()
    }

    /// Paths of the remaining entries, with the reasons.
    #[must_use]
    pub fn left(&self) -> &[(PathBuf, String)] {
        &self.left
    }

    /// The remaining entries and the reasons, as text.
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

/// Pauses between attempts to remove a directory that is in use: the names of removed files that are still open disappear when
/// the files are closed.
const PAUSES_MS: [u64; 5] = [100, 200, 500, 1000, 2000];

/// Number of attempts before files that a FUSE client has hidden are removed as well. Files that are still open by then are
/// hidden again.
const PATIENT_TRIES: u32 = 2;

impl GatherDir {
    /// Removes the directory if no rank needs it any more, and returns true if it is gone. For the ranks that remain when rank
    /// `owner`, which should remove the directory, is gone.
    ///
    /// While a rank writes a payload or has one to read, that payload is there and nothing is removed; the last rank to leave
    /// finds no payload. Payloads that the owner was writing do not count: they were never announced.
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

    /// Waits until a payload that was closed `ago` can be [removed](Self::reclaim).
    pub(crate) fn wait_until_closed(&self, ago: Duration) {
        remove::wait_until_closed(self.file_system(), ago);
    }

    /// Removes a payload that no rank needs any more. It is no error if the payload is already gone.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if the payload cannot be removed.
    pub fn reclaim(&self, name: PayloadName) -> Result<(), Error> {
        let path = self.path().join(layout::PAYLOADS).join(name.to_string());
        remove::unlink(&path).map_err(|error| Error::storage("remove", path, &error))
    }

    /// Removes the payload of a rank in one call, of any attempt, when its owner has gone. It is no error if the payload
    /// is already gone.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if the payload cannot be removed, or the directory cannot be listed.
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

    /// Removes the payloads of calls for which `is_undecided` returns true: those calls failed, and no rank will read the
    /// payloads. The owner does this when it leaves before the others.
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

    /// Removes the directory and all entries that the store writes, deepest first.
    ///
    /// Follows no links, and removes no entry of an unknown name, of another kind or of another user. Entries that are already
    /// gone count as removed. Marks and the owner record go last, so that an interrupted removal leaves a directory that still
    /// names its owner. If the directory is in use, tries again for up to 4 seconds; then files that a FUSE client has hidden
    /// instead of removing them are removed too.
    pub fn remove(&self) -> Removal {
        remove_gather_directory(self.path(), self.own(), true)
    }
}

/// Removes the gather directory at `path`, like [`GatherDir::remove`]; if not `patient`, an entry in use is not tried again.
pub(crate) fn remove_gather_directory(path: &Path, own: OwnUid, patient: bool) -> Removal {
    let pauses: &[u64] = if patient { &PAUSES_MS } else { &[] };
    remove_all(path, own, inventory::gather_directory, pauses, None)
}

/// Removes a gather directory that no process uses any more: files that a client has hidden instead of removing them are
/// treated as leftovers. Stops between two files when `is_enough` returns true.
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

/// Removes another directory, whose entries are in `table`.
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
    /// Set if no process can have a file open any more: returns true when the rest must be left to other processes.
    abandoned: Option<&'a dyn Fn() -> bool>,
    removal: Removal,
}

impl Remover<'_> {
    /// Removes the directory `name` in `parent` with all entries that are in `table`, and returns true if it is gone. Messages
    /// call it `path`.
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
            // The pause has no interrupt, so it cannot fail.
            let _ = retry_budget::sleep(Duration::from_millis(pause), nobody);
        }
    }

    /// Opens a directory of this user, or returns `None` if it is gone.
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

    /// Removes our entries in a directory. Files about the directory itself stay while any other entry does.
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

    /// Returns true if a name is a regular file of this user, or no longer exists.
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

/// Calls `open`, and returns `None` if the directory is gone. Only the server's answer counts for that: otherwise the marks of
/// the directory above would be removed next, and this directory's contents would have no owner.
fn if_there<D>(mut open: impl FnMut() -> io::Result<D>) -> io::Result<Option<D>> {
    let opened = match open() {
        // The client's cached answer was outdated.
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
    /// An entry is not ours.
    Stranger(String),
    /// A subdirectory stays, as already recorded.
    Below,
    /// A file of ours cannot be removed now.
    File(String, io::Error),
    /// The removal was stopped.
    Rest,
}

/// Removes a file, if it is still a regular file of this user.
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
    fn a_directory_with_a_stale_handle_is_not_taken_for_gone() {
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
