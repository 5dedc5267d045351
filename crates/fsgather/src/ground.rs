//! The knowledge that a rank brings along to set-ups: [`Ground`].

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use fsgather_control::InterfaceFilter;
use fsgather_core::{Error, ProcessId, WorldSize};
use fsgather_store::{
    OwnUid, OwnerRecord, check_writing, default_local, draw_id, make_rendezvous, takes_no_data,
};
use uuid::Uuid;

/// What a rank brings along to set-ups.
#[derive(Clone)]
pub(crate) struct Ground {
    /// The directory that was named, if one was.
    pub(crate) named: Option<PathBuf>,
    /// Whether the private directory of this host is used when all ranks see the same mounts and none was named.
    pub(crate) has_local_default: bool,
    /// What is used otherwise: the working directory.
    pub(crate) shared_default: Option<PathBuf>,
    /// Whether a channel of the program's own has introduced the ranks, so that they need no directory to meet.
    pub(crate) is_introduced: bool,
    /// Rendezvous directories that have been tried, and the owner that files in them have.
    pub(crate) known: Vec<(PathBuf, OwnUid)>,
    /// Why this rank cannot use the directory, although it can see it: to be told to all.
    pub(crate) problem: Option<Error>,
    /// Whether payloads may not go over a network in plain text.
    pub(crate) encrypt: bool,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) user: String,
    pub(crate) job: Option<String>,
    /// How to connect to other ranks; none where there is no network.
    pub(crate) links: Option<LinkSettings>,
}

/// How to connect to other ranks.
#[derive(Clone)]
pub(crate) struct LinkSettings {
    pub(crate) ports: RangeInclusive<u16>,
    pub(crate) interfaces: Arc<InterfaceFilter>,
    pub(crate) patience: Duration,
    pub(crate) network_namespace: u64,
}

/// Whether a directory with this problem can be done without where there is another way: one that nobody has named, and
/// any that takes no more data.
pub(crate) fn is_dispensable(problem: &Error, is_named: bool) -> bool {
    matches!(problem, Error::Storage { .. }) && (!is_named || takes_no_data(problem))
}

impl Ground {
    /// For worlds without a directory.
    pub(crate) fn nowhere() -> Self {
        Self {
            named: None,
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

    pub(crate) fn known_owner(&self, rendezvous: &Path) -> Option<OwnUid> {
        let known = self.known.iter().find(|(known, _)| known == rendezvous);
        known.map(|(_, own)| *own)
    }

    /// The directory for payloads; `all_here` says whether all ranks see the same mounts.
    pub(crate) fn choose(&self, all_here: bool) -> Result<PathBuf, Error> {
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

    /// The private directory of this host, where that is used if all ranks see the same mounts; why not, if it cannot
    /// be used.
    pub(crate) fn local_default(&self) -> Option<Result<PathBuf, Error>> {
        let is_used = self.named.is_none() && self.has_local_default;
        is_used.then(|| default_local(self.uid))
    }

    /// Whether a directory that was chosen is the working directory, for want of a better one.
    pub(crate) fn is_working_directory(&self, chosen: &Path) -> bool {
        self.named.is_none() && self.shared_default.as_deref() == Some(chosen)
    }

    /// What a new gather directory of these ranks says of its owner, rank 0.
    pub(crate) fn owner(
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

    /// Makes a rendezvous directory in `directory`, or finds it, and the owner files have in it.
    pub(crate) fn enter(&self, directory: &Path) -> Result<(PathBuf, OwnUid), Error> {
        let path = make_rendezvous(directory)?;
        let own = match self.known_owner(&path) {
            Some(own) => own,
            None => check_writing(&path, self.mode)?.0,
        };
        Ok((path, own))
    }
}
