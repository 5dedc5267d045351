//! The facts of one rank that every set-up needs: [`LocalContext`].

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use fsgather_config::{
    environment::{self, Variables},
    settings::{Origin, Settings},
};
use fsgather_control::InterfaceFilter;
use fsgather_core::{Error, ProcessId, WorldSize};
use fsgather_store::{
    OwnUid, OwnerRecord, check_writing, default_local, draw_id, make_directory, make_rendezvous,
    own_user_text, takes_no_data,
};
use uuid::Uuid;

/// Returns the directory that is used if all ranks run on this host and none was named: `/tmp/fsgather-<uid>`, which is
/// made for this user alone if it does not exist.
///
/// # Errors
///
/// [`Error::Storage`] if it cannot be made, belongs to another user, is a link, or is open to others.
pub fn local_directory() -> Result<PathBuf, Error> {
    default_local(rustix::process::geteuid().as_raw())
}

/// The facts that one rank knows before it meets the others, for each set-up.
#[derive(Clone)]
pub struct LocalContext {
    /// The directory that was named, if one was.
    pub named: Option<PathBuf>,
    /// The argument or variable that has named it.
    pub named_by: Origin,
    /// True if the private directory of this host is used when all ranks see the same mounts and none was named.
    pub has_local_default: bool,
    /// The directory that is used otherwise: the working directory.
    pub shared_default: Option<PathBuf>,
    /// True if a channel of the program's own has introduced the ranks, so that they need no directory to meet.
    pub is_introduced: bool,
    /// Rendezvous directories that have been tried, and the owner that files in them have.
    pub known: Vec<(PathBuf, OwnUid)>,
    /// The reason why this rank cannot use the directory, although it can see it. All ranks get it.
    pub problem: Option<Error>,
    /// True if payloads may not go over a network in plain text.
    pub encrypt: bool,
    /// The mode of gather directories.
    pub mode: u32,
    /// The effective uid of this rank.
    pub uid: u32,
    /// The name of that user, for messages.
    pub user: String,
    /// The id that distinguishes this job from others.
    pub job: Option<String>,
    /// The settings of connections to other ranks; none without a network.
    pub links: Option<LinkSettings>,
}

/// The settings of connections to other ranks.
#[derive(Clone)]
pub struct LinkSettings {
    /// The ports to listen on.
    pub ports: RangeInclusive<u16>,
    /// The filter of addresses to publish.
    pub interfaces: Arc<InterfaceFilter>,
    /// Time-out of a call since anything last moved.
    pub timeout: Duration,
    /// The inode of this process's network namespace; 0 when unknown.
    pub network_namespace: u64,
}

/// Returns the same problem, for a directory that an argument has named.
fn without_variable(mut problem: Error) -> Error {
    if let Error::Storage { cause, .. } = &mut problem {
        cause.message = cause.message.replace(" with FSGATHER_DIR", "");
    }
    problem
}

/// Returns true if a directory with this problem can be replaced by another path: one that no user has named, and any
/// directory that accepts no more data.
#[must_use]
pub(crate) fn is_dispensable(problem: &Error, is_named: bool) -> bool {
    matches!(problem, Error::Storage { .. }) && (!is_named || takes_no_data(problem))
}

impl LocalContext {
    /// Returns the facts of a rank with these settings.
    #[must_use]
    pub fn of(settings: &Settings, uid: u32) -> Self {
        let named = settings.directory.value.clone();
        let is_named = named.is_some();
        Self {
            named,
            named_by: settings.directory.origin,
            has_local_default: settings.detection.is_on_one_host(),
            shared_default: if is_named {
                None
            } else {
                std::env::current_dir().ok()
            },
            is_introduced: false,
            known: Vec::new(),
            problem: None,
            encrypt: settings.encrypt.value,
            mode: settings.dir_mode.value.mode(),
            uid,
            user: own_user_text(uid, Variables::of_process().get("LOGNAME")),
            job: settings.job.value.clone(),
            links: None,
        }
    }

    /// Returns the facts for worlds without a directory.
    #[must_use]
    pub fn nowhere() -> Self {
        Self {
            named: None,
            named_by: Origin::Default,
            has_local_default: false,
            shared_default: None,
            is_introduced: false,
            known: Vec::new(),
            problem: None,
            encrypt: false,
            mode: 0o700,
            uid: 0,
            user: String::new(),
            job: None,
            links: None,
        }
    }

    /// Returns the owner of files in a rendezvous directory that has been tried.
    #[must_use]
    pub fn known_owner(&self, rendezvous: &Path) -> Option<OwnUid> {
        let known = self.known.iter().find(|(known, _)| known == rendezvous);
        known.map(|(_, own)| *own)
    }

    /// Returns the directory for payloads; `all_here` is true if all ranks see the same mounts.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if there is none; the reason why the private one cannot be used.
    pub fn choose(&self, all_here: bool) -> Result<PathBuf, Error> {
        if let Some(named) = &self.named {
            return Ok(named.clone());
        }
        if let Some(local) = self.local_default().filter(|_| all_here) {
            return local;
        }
        self.shared_default.clone().ok_or_else(|| {
            Error::config(
                "no directory for payloads; name one on a shared file system with FSGATHER_DIR",
            )
        })
    }

    /// Returns the private directory of this host, if it is used when all ranks see the same mounts, or the reason why
    /// it cannot be used.
    #[must_use]
    pub fn local_default(&self) -> Option<Result<PathBuf, Error>> {
        let is_used = self.named.is_none() && self.has_local_default;
        is_used.then(|| default_local(self.uid))
    }

    /// Returns true if a chosen directory is the working directory, for lack of a better one.
    #[must_use]
    pub fn is_working_directory(&self, chosen: &Path) -> bool {
        self.named.is_none() && self.shared_default.as_deref() == Some(chosen)
    }

    /// Returns the owner record of a new gather directory of these ranks, for rank 0.
    #[must_use]
    pub fn owner(
        &self,
        processes: &[ProcessId],
        world_size: WorldSize,
        communicator: Uuid,
    ) -> OwnerRecord {
        let now = SystemTime::now();
        let process = processes.first().cloned().unwrap_or_default();
        OwnerRecord {
            gather: draw_id(now, self.job.as_deref(), &process),
            process,
            uid: self.uid,
            user: self.user.clone(),
            job: self.job.clone(),
            world_size,
            communicator,
            created: now,
            ranks: processes.to_vec(),
        }
    }

    /// Makes a rendezvous directory in `directory`, or finds it. A missing `EXP_DIR` is made, as the original does.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if it cannot be made.
    pub fn make_rendezvous(&self, directory: &Path) -> Result<PathBuf, Error> {
        let is_named = self.named.as_deref() == Some(directory);
        if is_named && self.named_by == Origin::Variable(environment::EXP_DIR) {
            make_directory(directory)?;
        }
        make_rendezvous(directory)
    }

    /// Returns the problem of a directory, worded for the setting that named it.
    #[must_use]
    pub fn worded(&self, problem: Error) -> Error {
        match self.named_by {
            Origin::Argument => without_variable(problem),
            _ => problem,
        }
    }

    /// Makes a rendezvous directory in a directory that a call names. Also makes that directory and its parents if they
    /// are missing.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if it cannot be made, or written to.
    pub fn enter_new(&self, directory: &Path) -> Result<(PathBuf, OwnUid), Error> {
        make_directory(directory)
            .and_then(|()| self.enter(directory))
            .map_err(without_variable)
    }

    /// Makes a rendezvous directory in `directory`, or finds it. Also returns the owner of files in it.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if it cannot be made, or written to.
    pub fn enter(&self, directory: &Path) -> Result<(PathBuf, OwnUid), Error> {
        let path = self.make_rendezvous(directory)?;
        let own = match self.known_owner(&path) {
            Some(own) => own,
            None => check_writing(&path, self.mode)?.0,
        };
        Ok((path, own))
    }
}
