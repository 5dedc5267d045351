//! What a rank brings along to set-ups: [`Ground`].

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use fsgather_control::InterfaceFilter;
use fsgather_core::Error;
use fsgather_store::{OwnUid, check_writable, make_rendezvous};

/// What a rank brings along to set-ups.
#[derive(Clone)]
pub(crate) struct Ground {
    /// The directory that was named, if one was.
    pub(crate) named: Option<PathBuf>,
    /// What is used when all ranks see the same mounts and none was named, and what otherwise.
    pub(crate) local_default: Option<PathBuf>,
    pub(crate) shared_default: Option<PathBuf>,
    /// Rendezvous directories that have been tried, and the owner that files in them have.
    pub(crate) known: Vec<(PathBuf, OwnUid)>,
    /// Why this rank cannot use the directory, although it can see it: to be told to all.
    pub(crate) problem: Option<Error>,
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
    /// Whether payloads are encrypted on their way to other hosts.
    pub(crate) encrypt: bool,
    pub(crate) patience: Duration,
    pub(crate) network_namespace: u64,
}

impl Ground {
    /// For worlds without a directory.
    pub(crate) fn nowhere() -> Self {
        Self {
            named: None,
            local_default: None,
            shared_default: None,
            known: Vec::new(),
            problem: None,
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

    /// Makes a rendezvous directory in `directory`, or finds it, and the owner files have in it.
    pub(crate) fn enter(&self, directory: &Path) -> Result<(PathBuf, OwnUid), Error> {
        let path = make_rendezvous(directory)?;
        let own = match self.known_owner(&path) {
            Some(own) => own,
            None => check_writable(&path)?,
        };
        Ok((path, own))
    }
}
