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

/// What the owner tells the others of a gather directory it has made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatherFacts {
    /// The id in the directory's name.
    pub id: GatherId,
    /// The communicator's identity, found again in every payload file.
    pub communicator: Uuid,
    /// How many ranks the world has, by whose numbers payloads are named.
    pub world_size: WorldSize,
    /// The permissions of directories in it: 0700, or wider where sharing was asked for, or [`ANY_MODE`].
    pub mode: u32,
    /// How files are published in it.
    pub publish: PublishMode,
}

/// That a directory in use is gone, which is called `what`.
pub(crate) fn is_gone(what: &str, error: &io::Error) -> StorageCause {
    StorageCause {
        os_code: error.raw_os_error(),
        message: format!("{what} is gone: somebody has removed it while the job was running"),
    }
}

/// That another directory has been put in the place of a gather directory.
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
    /// Makes the gather directory `owner.gather` with all that belongs in it. The first rank of those that use it
    /// does this: rank 0 for the world.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] when something cannot be made, when a directory of this id exists already, or
    /// when the file system makes it accessible to more people than `mode` says, unless that is [`ANY_MODE`]. What was
    /// made before is removed again.
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
        // Only if it is empty, and so nobody else's.
        let give_back = || remove::rmdir_or_leave(&path);
        let opened = directory::open(&path)
            .inspect_err(|_| give_back())
            .map_err(failed)?;
        let examined = listing::examine_open(&opened).map_err(failed);
        let found = examined.inspect_err(|_| give_back())?;
        let examined = FileSystem::of_open(&opened).map_err(failed);
        let file_system = examined.inspect_err(|_| give_back())?;
        // What is private already and is to be shared: it had better be nothing but what was made.
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
        // Exclusive creation of the owner record is what claims the directory.
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

    /// Whether hard links can be made here, found out by making one and removing it again.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] when that cannot be tried.
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

    /// Makes a directory inside; that it exists is success.
    pub(crate) fn make_directory(&self, path: &Path) -> Result<(), Error> {
        let made = directory::make(path, 0o700)
            .map_err(|error| Error::storage("make directory", path, self.explain(&error)))?;
        if made {
            self.make_private(path)
        } else {
            Ok(())
        }
    }

    /// Adds to an error of making something inside what it means, or what can be done about it.
    pub(crate) fn explain(&self, error: &io::Error) -> StorageCause {
        if error.kind() == io::ErrorKind::NotFound {
            return is_gone("its directory", error);
        }
        directory::explain(&self.path, error)
    }

    /// Sets the mode asked for, and checks that the file system has taken it.
    ///
    /// Where a group shares in it, that is the [group](Self::sharing_group) that this is for, and no other: all that is made below gets
    /// it as well.
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

    /// The group that what is made at `path` is shared with: that of the directory above. Of the rendezvous directory that counts only
    /// if it is this user's or root's; else it has the group that somebody has given it, and the one that was meant is that of
    /// the directory that it is in, which this user has named.
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

    /// Opens a gather directory that rank `owner` has announced. The other ranks do this.
    ///
    /// A directory that is not seen yet is looked for again until `visibility` is used up; `progress` is
    /// called meanwhile and can end the wait.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] when it is not there, is no directory, or belongs to somebody else.
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

    /// Whether the directory at its path is still the one that was made or opened: whoever may write in the directory above
    /// can put another one in its place. That it is gone is for others to say.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] when another one is there.
    pub(crate) fn check_place(&self) -> Result<(), Error> {
        let Ok(found) = listing::glance(&self.path) else {
            return Ok(());
        };
        let is_ours = found.uid == self.own.0
            && (found.identity == self.identity
                // Where numbers of files do not last it is known by what no other user can have put there.
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

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the other ranks have to know in order to open it.
    #[must_use]
    pub const fn facts(&self) -> &GatherFacts {
        &self.facts
    }

    /// The file system that it lies on, as seen from this host.
    #[must_use]
    pub const fn file_system(&self) -> &FileSystem {
        &self.file_system
    }

    /// The uid that files in it must belong to.
    pub(crate) const fn own(&self) -> OwnUid {
        self.own
    }

    /// The mode of files in it: what others may change must not be mapped, nor believed once it has been verified.
    pub(crate) const fn file_mode(&self) -> u32 {
        0o600 | (self.facts.mode & 0o044)
    }

    /// Whether data must be synced before it is announced.
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

    /// Marks the directory as one that its owner has done with, for the others or `clean` to remove. The owner
    /// does this when its time for removing it is over.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] when the mark cannot be written.
    pub fn mark_finished(&self) -> Result<(), Error> {
        self.mark(GatherEntry::Finished, "")
    }

    /// Whether its owner has [marked it as finished](Self::mark_finished).
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let path = self.path.join(GatherEntry::Finished.to_string());
        listing::examine_path(&path).is_ok()
    }

    /// Leaves a tombstone: the owner was seen to go, in the way that `reason` says. A survivor does this.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] when it cannot be written.
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
    /// [`Error::Storage`] when it cannot be read, [`Error::Corrupt`] or [`Error::Incompatible`] when it
    /// cannot be understood.
    pub fn owner(&self) -> Result<OwnerRecord, Error> {
        read_owner(&self.path, self.own)
    }
}

#[cfg(test)]
impl GatherDir {
    /// The same directory, as if it lay on another file system.
    pub(crate) fn on(mut self, file_system: FileSystem) -> Self {
        self.file_system = file_system;
        self
    }

    /// The same directory, as if rank 0 had said something else.
    pub(crate) fn with_facts(mut self, facts: GatherFacts) -> Self {
        self.facts = facts;
        self
    }

    /// The same directory, as if it belonged to somebody else.
    pub(crate) fn owned_by(mut self, uid: u32) -> Self {
        self.own = OwnUid(uid);
        self
    }
}

/// Whether an error says that something is not there, which may be a cache telling old news.
pub(crate) fn is_not_seen(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::NOENT | Errno::STALE)
    )
}

/// Has the client ask the server about a directory and what is in it.
pub(crate) fn ask_again(directory: &Path) {
    if let Err(error) = listing::names(directory) {
        tracing::debug!(path = %directory.display(), %error, "cannot list");
    }
}

/// "Exists" may be the answer to a request that was sent twice because the first reply was lost; then
/// the directory is empty and our own.
fn is_empty_and_own(path: &Path, own: OwnUid) -> bool {
    directory::look(path).is_ok_and(|found| found.is_directory && found.uid == own.0)
        && listing::names(path).is_ok_and(|names| names.is_empty())
}

#[cfg(test)]
#[path = "gather_dir_tests.rs"]
mod tests;
