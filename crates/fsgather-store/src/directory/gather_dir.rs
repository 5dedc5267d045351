//! One communicator's directory: [`GatherDir`], made by its first rank, used by all, removed at the end.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use fsgather_core::{
    ANY_MODE, Error, GatherId, Progress, Rank, StorageCause, WorldSize, duration_text, sys::clock,
};
use rustix::{fs::FileType, io::Errno};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    directory::{owner::OwnerRecord, owner_file::read_owner, rendezvous_directory},
    layout::{self, GatherEntry, RendezvousEntry},
    os::{
        directory::{self, OwnUid},
        file,
        filesystem::{Class, FileSystem},
        listing::{self, Identity},
        remove,
        retry_budget::RetryBudget,
        reveal::{self, PublishMode},
    },
};

/// Description of a gather directory, which its owner sends to the other ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatherFacts {
    /// The id in the directory's name.
    pub id: GatherId,
    /// The communicator's identity, which is repeated in every payload file.
    pub communicator: Uuid,
    /// Number of ranks of the world. Names of payloads contain ranks of the world.
    pub world_size: WorldSize,
    /// The permissions of directories in it: 0700, or wider if sharing was requested, or [`ANY_MODE`].
    pub mode: u32,
    /// The way in which files are published in it.
    pub publish: PublishMode,
}

/// Returns the cause of an error for a directory in use that is gone. The message calls it `what`.
pub(crate) fn is_gone(what: &str, error: &io::Error) -> StorageCause {
    StorageCause {
        os_code: error.raw_os_error(),
        message: format!("{what} is gone: somebody has removed it while the job was running"),
    }
}

/// Returns the cause of an error for a gather directory that was replaced by another directory.
fn replaced(by: u32, own: OwnUid) -> StorageCause {
    let whose = if by == own.0 {
        "another directory".to_owned()
    } else {
        format!("a directory of uid {by}")
    };
    StorageCause::described(format!(
        "{whose} is in its place: somebody has moved it away; name a directory with FSGATHER_DIR in which only this \
         user can rename, or a sticky one (chmod +t)"
    ))
}

/// A gather directory as this rank sees it.
///
/// ```
/// # use fsgather_core::{ChannelId, CompressionSetting, Epoch, GatherId, ProcessId, Rank, Salt, WorldSize};
/// # use fsgather_store::OwnerRecord;
/// use fsgather_store::{
///     CollectPolicy, Encoding, GatherDir, PayloadId, check_writable, make_rendezvous,
/// };
/// use std::io::Write;
/// # let place = tempfile::tempdir()?;
/// # let gather = GatherId::new(std::time::SystemTime::now(), Salt::from_random(7));
/// # let owner = OwnerRecord {
/// #     process: ProcessId::default(), uid: 0, user: String::new(), job: None,
/// #     world_size: WorldSize::ONE, gather, communicator: uuid::Uuid::nil(),
/// #     created: gather.time(), ranks: Vec::new(),
/// # };
///
/// // Rank 0 makes the directory.
/// let rendezvous = make_rendezvous(place.path())?;
/// let own = check_writable(&rendezvous)?;
/// let directory = GatherDir::create(&rendezvous, 0o700, &owner, own)?;
///
/// // Every rank publishes its payload, and hands the locator to the others.
/// let id = PayloadId { channel: ChannelId::WORLD, epoch: Epoch::FIRST, rank: Rank::ZERO };
/// let mut writer = directory.create_payload(id, Encoding(0), CompressionSetting::None, |_bytes| Ok(()))?;
/// writer.write_all(b"boxes and masks")?;
/// let locator = writer.publish()?;
///
/// // Recipients collect it.
/// let payload = directory.collect(&locator, &CollectPolicy::default(), &mut |_bytes| Ok(()))?;
/// assert_eq!(&*payload, b"boxes and masks");
///
/// // At the end rank 0 removes the directory and all that is in it.
/// drop(payload);
/// assert!(directory.remove().is_complete());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct GatherDir {
    path: PathBuf,
    facts: GatherFacts,
    file_system: FileSystem,
    own: OwnUid,
    identity: Identity,
}

impl GatherDir {
    /// Makes the gather directory `owner.gather` and everything that belongs in it. The first of its ranks does this: rank 0
    /// for the world.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if an entry cannot be made, if a directory of this id already exists, or if the file system gives
    /// more users access than `mode` allows, unless that is [`ANY_MODE`]. On an error, the entries made so far are removed.
    pub fn create(
        rendezvous: &Path,
        mode: u32,
        owner: &OwnerRecord,
        own: OwnUid,
    ) -> Result<Self, Error> {
        Self::create_with(rendezvous, mode, owner, own, Self::furnish)
    }

    pub(crate) fn create_with(
        rendezvous: &Path,
        mode: u32,
        owner: &OwnerRecord,
        own: OwnUid,
        furnish: impl FnOnce(&Self) -> Result<PublishMode, Error>,
    ) -> Result<Self, Error> {
        let path = rendezvous.join(RendezvousEntry::Gather(owner.gather).to_string());
        let failed = |error: io::Error| {
            Error::storage(
                "make directory",
                &path,
                directory::explain(rendezvous, &error),
            )
        };
        let since = clock::wall();
        let is_new = rendezvous_directory::in_rendezvous(rendezvous, || {
            directory::make(&path, mode & 0o700)
        });
        if !is_new.map_err(failed)? && !is_empty_and_own(&path, own) {
            return Err(failed(Errno::EXIST.into()));
        }
        // Removes it only if it is empty, and so not used by another process.
        let give_back = || remove::rmdir_or_leave(&path);
        let opened = directory::open(&path)
            .inspect_err(|_| give_back())
            .map_err(failed)?;
        let examined = listing::examine_open(&opened).map_err(failed);
        let found = examined.inspect_err(|_| give_back())?;
        let examined = FileSystem::of_open(&opened).map_err(failed);
        let file_system = examined.inspect_err(|_| give_back())?;
        // Before a private directory is opened to others, it must be proved to be the one that was just made.
        let others_may = |mode: u32| mode & 0o077 != 0;
        let is_opened = others_may(mode) && !others_may(found.mode);
        let is_ours = found.uid == own.0
            && (!is_opened
                || rendezvous_directory::is_just_made(&opened, since).map_err(failed)?);
        if !is_ours {
            return Err(Error::storage("use", &path, replaced(found.uid, own)));
        }
        let mut gather_dir = Self {
            file_system,
            identity: found.identity,
            path: path.clone(),
            facts: GatherFacts {
                id: owner.gather,
                communicator: owner.communicator,
                world_size: owner.world_size,
                mode,
                publish: PublishMode::Direct,
            },
            own,
        };
        // Exclusive creation of the owner record claims the directory.
        let record = gather_dir.path.join(layout::OWNER);
        file::write_new(
            &record,
            gather_dir.file_mode(),
            owner.to_text().as_bytes(),
            gather_dir.must_sync(),
        )
        .map_err(|error| {
            give_back();
            Error::storage("write", &record, directory::explain(rendezvous, &error))
        })?;
        match furnish(&gather_dir) {
            Ok(publish) => {
                gather_dir.facts.publish = publish;
                tracing::debug!(
                    path = %gather_dir.path.display(), file_system = gather_dir.file_system.name(), ?publish,
                    "made gather directory"
                );
                Ok(gather_dir)
            }
            Err(error) => {
                let removal = gather_dir.remove();
                if !removal.is_complete() {
                    fsgather_core::warn!("{removal}");
                }
                Err(error)
            }
        }
    }

    fn furnish(&self) -> Result<PublishMode, Error> {
        self.make_private(&self.path)?;
        for name in [layout::STAGING, layout::PAYLOADS] {
            let path = self.path.join(name);
            self.make_directory(&path)?;
        }
        reveal::detect(
            &self.staging(),
            &self.payloads(),
            fsgather_core::sys::random::fresh(),
        )
    }

    /// Returns true if hard links can be made here. Makes one and removes it again to find out.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if that cannot be tried.
    pub fn has_links(&self) -> Result<bool, Error> {
        let only = [PublishMode::Link];
        let possible = reveal::first_possible(
            &only,
            &self.staging(),
            &self.payloads(),
            fsgather_core::sys::random::fresh(),
        )?;
        Ok(possible.is_some())
    }

    /// Makes a directory inside. It is no error if it exists.
    pub(crate) fn make_directory(&self, path: &Path) -> Result<(), Error> {
        let made = directory::make(path, 0o700)
            .map_err(|error| Error::storage("make directory", path, self.explain(&error)))?;
        if made {
            self.make_private(path)
        } else {
            Ok(())
        }
    }

    /// Adds an explanation or advice to an error of making an entry inside.
    pub(crate) fn explain(&self, error: &io::Error) -> StorageCause {
        if error.kind() == io::ErrorKind::NotFound {
            return is_gone("its directory", error);
        }
        directory::explain(&self.path, error)
    }

    /// Sets the requested mode, and checks that the file system has applied it.
    ///
    /// If a group shares the directory, it gets exactly the intended [group](Self::sharing_group), which everything below
    /// inherits.
    pub(crate) fn make_private(&self, path: &Path) -> Result<(), Error> {
        let failed = |error: io::Error| Error::storage("set the mode of", path, &error);
        let wanted = self.facts.mode & 0o777;
        let directory = directory::open(path).map_err(failed)?;
        let mut mode = wanted;
        if mode & 0o070 != 0 {
            let group = self.sharing_group(path).map_err(failed)?;
            if !directory::give_group(&directory, group).map_err(failed)? {
                return Err(self.not_for_the_group(path, group));
            }
            mode |= 0o2000;
        }
        let given = directory::give_mode(&directory, mode);
        let found = listing::examine_open(&directory).map_err(failed)?;
        if found.mode & 0o077 & !wanted != 0 && self.facts.mode & ANY_MODE != ANY_MODE {
            return Err(Error::storage(
                "keep private",
                path,
                StorageCause::described(format!(
                    "its mode stays {:o} on this file system ({}); name another directory with \
                     FSGATHER_DIR, or let whoever can read it join and read with FSGATHER_DIR_MODE=any",
                    found.mode,
                    self.file_system.name(),
                )),
            ));
        }
        if let Err(error) = given {
            tracing::debug!(path = %path.display(), %error, "mode not set, but narrow enough");
        }
        Ok(())
    }

    /// Returns the group to share a directory at `path` with: that of its parent directory. The group of the rendezvous
    /// directory counts only if this user or root owns it; otherwise another user has chosen it, and the intended group is that
    /// of the directory above, which this user has named.
    fn sharing_group(&self, path: &Path) -> io::Result<u32> {
        let above = path.parent().unwrap_or(path);
        let found = directory::look(above)?;
        let is_trusted = path != self.path || found.uid == self.own.0 || found.uid == 0;
        match above.parent() {
            Some(named) if !is_trusted => Ok(directory::look_through(named)?.gid),
            _ => Ok(found.gid),
        }
    }

    fn not_for_the_group(&self, path: &Path, group: u32) -> Error {
        let problem = format!(
            "FSGATHER_DIR_MODE={:04o} is to share it with group {group}, which this user cannot give it; leave \
             FSGATHER_DIR_MODE out, or name a directory of a group of this user with FSGATHER_DIR",
            self.facts.mode & 0o777
        );
        Error::storage("share", path, StorageCause::described(problem))
    }

    /// Opens a gather directory that rank `owner` has announced. All ranks except the owner do this.
    ///
    /// If the directory is not visible yet, looks for it again until `visibility` is used up; meanwhile calls `progress`, which
    /// can end the wait.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if it is not there, is not a directory, or belongs to another user.
    pub fn open(
        rendezvous: &Path,
        facts: GatherFacts,
        owner: Rank,
        own: OwnUid,
        visibility: Duration,
        progress: &mut Progress<'_>,
    ) -> Result<Self, Error> {
        let path = rendezvous.join(RendezvousEntry::Gather(facts.id).to_string());
        let mut retries = RetryBudget::new(visibility);
        let found = loop {
            match listing::glance(&path) {
                Ok(found) => break found,
                Err(error) if is_not_seen(&error) => {
                    if !retries.pause(progress)? {
                        return Err(Error::storage(
                            "open",
                            &path,
                            StorageCause {
                                os_code: error.raw_os_error(),
                                message: format!(
                                    "rank {owner} has made this directory, but it is not seen{}; is {} the \
                                     same directory on all hosts",
                                    if visibility.is_zero() {
                                        String::new()
                                    } else {
                                        format!(" after {}", duration_text(retries.spent()))
                                    },
                                    rendezvous.display()
                                ),
                            },
                        ));
                    }
                    ask_again(rendezvous);
                }
                Err(error) => return Err(Error::storage("open", &path, &error)),
            }
        };
        let problem = if found.kind != FileType::Directory {
            "it is not a directory".to_owned()
        } else if found.uid != own.0 {
            format!(
                "it belongs to uid {}, but files of this process belong to uid {}",
                found.uid, own.0
            )
        } else {
            return Ok(Self {
                file_system: FileSystem::of(&path)?,
                identity: found.identity,
                path,
                facts,
                own,
            });
        };
        Err(Error::storage(
            "open",
            path,
            StorageCause::described(problem),
        ))
    }

    /// Returns an error if another directory has replaced the one that was made or opened: any user who may write in the
    /// directory above can do that. A missing directory is no error here.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if another directory is there.
    pub(crate) fn check_place(&self) -> Result<(), Error> {
        let Ok(found) = listing::glance(&self.path) else {
            return Ok(());
        };
        let is_ours = found.uid == self.own.0
            && (found.identity == self.identity
                // If inode numbers are not stable, the owner record identifies the directory: no other user can have put it
                // there.
                || self.owner().is_ok_and(|record| {
                    record.gather == self.facts.id
                        && record.communicator == self.facts.communicator
                }));
        if is_ours {
            return Ok(());
        }
        Err(Error::storage(
            "use",
            &self.path,
            replaced(found.uid, self.own),
        ))
    }

    /// Path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The description that other ranks need to open the directory.
    #[must_use]
    pub const fn facts(&self) -> &GatherFacts {
        &self.facts
    }

    /// The file system of the directory, as seen from this host.
    #[must_use]
    pub const fn file_system(&self) -> &FileSystem {
        &self.file_system
    }

    /// The uid that must own files in it.
    pub(crate) const fn own(&self) -> OwnUid {
        self.own
    }

    /// The mode of files in it. Others may not write: a file that they can change must not be mapped, nor trusted once it is
    /// verified.
    pub(crate) const fn file_mode(&self) -> u32 {
        0o600 | (self.facts.mode & 0o044)
    }

    /// Returns true if data must be synced before it is announced.
    pub(crate) fn must_sync(&self) -> bool {
        self.file_system.class() != Class::Local
    }

    pub(crate) fn staging(&self) -> PathBuf {
        self.path.join(layout::STAGING)
    }

    pub(crate) fn payloads(&self) -> PathBuf {
        self.path.join(layout::PAYLOADS)
    }

    pub(crate) fn probes(&self) -> PathBuf {
        self.path.join(layout::PROBES)
    }

    /// Marks the directory as one that its owner has finished with, for the others or `clean` to remove. The owner does this
    /// when its time for removing the directory is over.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if the mark cannot be written.
    pub fn mark_finished(&self) -> Result<(), Error> {
        self.mark(GatherEntry::Finished, "")
    }

    /// Returns true if its owner has [marked it as finished](Self::mark_finished).
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let path = self.path.join(GatherEntry::Finished.to_string());
        listing::examine_path(&path).is_ok()
    }

    /// Leaves a tombstone: the owner was seen to go, for this `reason`. A survivor does this.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if it cannot be written.
    pub fn mark_aborted(&self, reason: &str) -> Result<(), Error> {
        self.mark(GatherEntry::Aborted, reason)
    }

    fn mark(&self, entry: GatherEntry, text: &str) -> Result<(), Error> {
        self.check_place()?;
        let path = self.path.join(entry.to_string());
        match file::write_new(&path, self.file_mode(), text.as_bytes(), self.must_sync()) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(Error::storage("write", path, &error))
            }
            _ => Ok(()),
        }
    }

    /// Reads the owner record.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if it cannot be read, [`Error::Corrupt`] or [`Error::Incompatible`] if it cannot be parsed.
    pub fn owner(&self) -> Result<OwnerRecord, Error> {
        read_owner(&self.path, self.own)
    }
}

#[cfg(test)]
impl GatherDir {
    /// The same directory, as if it were on another file system.
    pub(crate) fn on(mut self, file_system: FileSystem) -> Self {
        self.file_system = file_system;
        self
    }

    /// The same directory, with other facts from rank 0.
    pub(crate) fn with_facts(mut self, facts: GatherFacts) -> Self {
        self.facts = facts;
        self
    }

    /// The same directory, as if it belonged to another user.
    pub(crate) fn owned_by(mut self, uid: u32) -> Self {
        self.own = OwnUid(uid);
        self
    }
}

/// Returns true if the error says that a file is missing. A stale cache may cause that too.
pub(crate) fn is_not_seen(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::NOENT | Errno::STALE)
    )
}

/// Makes the client ask the server again about a directory and its entries.
pub(crate) fn ask_again(directory: &Path) {
    if let Err(error) = listing::names(directory) {
        tracing::debug!(path = %directory.display(), %error, "cannot list");
    }
}

/// Returns true if the directory is empty and our own. Then an "exists" error is the answer to a request that was sent twice
/// because the first reply was lost.
fn is_empty_and_own(path: &Path, own: OwnUid) -> bool {
    directory::look(path).is_ok_and(|found| found.is_directory && found.uid == own.0)
        && listing::names(path).is_ok_and(|names| names.is_empty())
}

#[cfg(test)]
#[path = "gather_dir_tests.rs"]
mod tests;
