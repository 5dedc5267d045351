//! The path of payloads that are too large for the control plane: [`PayloadPath`].

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use fsgather_store::{Care, CollectPolicy, GatherDir, PayloadId, PayloadName, free_bytes};
use serde::{Deserialize, Serialize};

use fsgather_core::{
    CallId, ChannelId, Epoch, Error, GatherId, Peer, Rank, Ticket, bytes_text, lock,
};

use crate::payload::mesh::MeshPath;

/// The path that a set-up has found.
#[derive(Clone)]
pub(crate) enum PayloadPath {
    /// Through rank 0, in pieces.
    Relay,
    /// Over connections between the ranks.
    Mesh(MeshPath),
    /// Into files of a gather directory.
    Files(Arc<FilesPath>),
}

/// The identity of a path within one world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum PathId {
    Relay,
    Mesh,
    Files(GatherId),
}

impl PayloadPath {
    pub(crate) fn id(&self) -> PathId {
        match self {
            Self::Relay => PathId::Relay,
            Self::Mesh(_) => PathId::Mesh,
            Self::Files(files) => PathId::Files(files.directory().facts().id),
        }
    }

    /// Removes this rank's payload of a call: no rank will read it any more.
    pub(crate) fn reclaim_own(&self, channel: ChannelId, epoch: Epoch) {
        match self {
            Self::Relay => {}
            Self::Mesh(mesh) => mesh.connections.withdraw(CallId { channel, epoch }),
            Self::Files(files) => files.reclaim_own(channel, epoch),
        }
    }

    /// Leaves this rank's payload of a call to its only reader, which removes it.
    pub(crate) fn hand_over(&self, ticket: &Ticket) {
        if let Self::Files(files) = self {
            lock(&files.published).remove(&(ticket.channel, ticket.epoch));
        }
    }
}

/// A gather directory in use.
pub(crate) struct FilesPath {
    directory: GatherDir,
    policy: CollectPolicy,
    /// The group that has set it up.
    channel: ChannelId,
    /// The first member of that group, which has made the directory and removes it; by its number in the world.
    owner: Rank,
    /// The upkeep of the directory; `None` once it has finished.
    care: Mutex<Option<Care>>,
    /// This rank's own payloads that some rank may still read.
    published: Mutex<BTreeMap<(ChannelId, Epoch), PayloadName>>,
    /// Payloads that only this rank reads, and that it removes.
    ours_to_read: Mutex<HashSet<PayloadName>>,
    /// The reason why a payload of this rank took another path, if one did.
    refused: Mutex<Option<Error>>,
    /// True if the user has been warned that payloads take another path.
    has_warned: AtomicBool,
    /// True if this rank has warned that its input grows in memory.
    has_told_of_memory: AtomicBool,
}

impl FilesPath {
    pub(crate) fn new(
        directory: GatherDir,
        policy: CollectPolicy,
        channel: ChannelId,
        owner: Rank,
        care: Care,
    ) -> Self {
        Self {
            directory,
            policy,
            channel,
            owner,
            care: Mutex::new(Some(care)),
            published: Mutex::default(),
            ours_to_read: Mutex::default(),
            refused: Mutex::default(),
            has_warned: AtomicBool::new(false),
            has_told_of_memory: AtomicBool::new(false),
        }
    }

    pub(crate) fn directory(&self) -> &GatherDir {
        &self.directory
    }

    /// Returns the group that has set it up.
    pub(crate) const fn channel(&self) -> ChannelId {
        self.channel
    }

    /// Returns the rank that made it and removes it, by its number in the world.
    pub(crate) const fn owner(&self) -> Rank {
        self.owner
    }

    pub(crate) fn policy(&self) -> &CollectPolicy {
        &self.policy
    }

    /// Makes this rank write and read payloads without checksums, as all ranks that use it have agreed.
    pub(crate) fn without_checksums(mut self) -> Self {
        self.policy.needs_checksums = false;
        self
    }

    /// Returns true if payloads have checksums.
    pub(crate) const fn has_checksums(&self) -> bool {
        self.policy.needs_checksums
    }

    /// Records that this rank has published a payload.
    pub(crate) fn published(&self, name: PayloadName) {
        lock(&self.published).insert((name.channel(), name.epoch()), name);
    }

    /// Records that a payload of this rank must take another path.
    pub(crate) fn refused(&self, problem: &Error) {
        lock(&self.refused).get_or_insert_with(|| problem.clone());
    }

    /// Returns the reason not to try a payload of this length: another one was refused, and there is still no space for
    /// this one.
    pub(crate) fn refuses(&self, len: u64) -> Option<Error> {
        let refused = lock(&self.refused).clone()?;
        let free = free_bytes(self.directory.path())?;
        (free < len).then_some(refused)
    }

    /// Warns, the first time, of payloads that could not go through the directory.
    pub(crate) fn warn_of_fallback(&self, whose: &Peer, why: &str) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            fsgather_core::warn!(
                "a payload of {whose} goes through memory, by way of rank 0, which is slower than through files: {why}; \
                 FSGATHER_TRANSPORT=memory has payloads go from rank to rank"
            );
        }
    }

    /// Warns, the first time, of a payload of this rank that should go to a file bit by bit and grows in memory
    /// instead.
    pub(crate) fn warn_of_memory(&self, whose: &Peer, held: usize, why: &Error) {
        if !self.has_told_of_memory.swap(true, Ordering::Relaxed) {
            fsgather_core::warn!(
                "{whose} holds what it hands in bit by bit in memory, {} so far, since it can be written to no file: {why}",
                bytes_text(held as u64)
            );
        }
    }

    /// Records a payload that only this rank reads: it is removed after this rank has left, even if its results are
    /// still held.
    pub(crate) fn is_ours_to_read(&self, name: PayloadName) {
        lock(&self.ours_to_read).insert(name);
    }

    /// Removes this rank's payload of a call, in the background.
    pub(crate) fn reclaim_own(&self, channel: ChannelId, epoch: Epoch) {
        let name = lock(&self.published).remove(&(channel, epoch));
        if let Some(name) = name {
            self.reclaim(name);
        }
    }

    /// Removes a payload, in the background.
    pub(crate) fn reclaim(&self, name: PayloadName) {
        lock(&self.ours_to_read).remove(&name);
        match &*lock(&self.care) {
            Some(care) => care.reclaim(name),
            // The communicator has been closed: there is no need to hurry.
            None => {
                if let Err(error) = self.directory.reclaim(name) {
                    tracing::debug!("{error}");
                }
            }
        }
    }

    /// Removes the payload of a rank that has gone, in the background.
    pub(crate) fn reclaim_of(&self, id: PayloadId) {
        if let Some(care) = &*lock(&self.care) {
            care.reclaim_of(id);
        }
    }

    /// Removes leftovers of earlier attempts at a job beside the directory, in the background.
    pub(crate) fn sweep(&self, job: Option<String>) {
        if let Some(care) = &*lock(&self.care) {
            care.sweep(job);
        }
    }

    /// Returns an error if the directory may no longer be used: another process may have taken its owner for dead.
    pub(crate) fn check(&self) -> Result<(), Error> {
        lock(&self.care).as_ref().map_or(Ok(()), Care::check)
    }

    /// Waits until the files that must be removed are gone, or cannot be removed in reasonable time. Results that have
    /// not been read by now will not be read: a program may hold them until its process ends.
    pub(crate) fn finish(&self) {
        let unread = std::mem::take(&mut *lock(&self.ours_to_read));
        for name in unread {
            self.reclaim(name);
        }
        let care = lock(&self.care).take();
        if let Some(care) = care
            && !care.finish()
        {
            fsgather_core::warn!("some files of {} may stay", self.directory.path().display());
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{fs, path::Path, process::Command, time::Duration, time::Instant};

    use crate::join::local_context::LocalContext;
    use fsgather_core::{BackgroundThreads, ProcessId, WorldSize};
    use fsgather_store::{Janitor, this_process};
    use fsgather_testkit::{
        pace::{patience, rest},
        process,
    };
    use uuid::Uuid;

    use super::*;
    use crate::heard::heard;

    const JOB: &str = "4711";

    /// A gather directory that this process has made for a job.
    pub(crate) fn gather_dir(place: &Path, process: ProcessId) -> GatherDir {
        let mut context = LocalContext::nowhere();
        context.job = Some(JOB.into());
        let (rendezvous, own) = context.enter(place).unwrap();
        let one = WorldSize::new(1).unwrap();
        let owner = context.owner(&[process], one, Uuid::nil());
        GatherDir::create(&rendezvous, 0o700, &owner, own).unwrap()
    }

    /// Returns a directory in use by rank 0, with this period of its heartbeat.
    pub(crate) fn in_use(place: &Path, beat: Option<Duration>) -> FilesPath {
        let directory = gather_dir(place, this_process().unwrap());
        let janitor = Janitor::start(&directory, &BackgroundThreads::default()).unwrap();
        let care = janitor.care_for(directory.clone(), beat);
        let policy = CollectPolicy::default();
        FilesPath::new(directory, policy, ChannelId::WORLD, Rank::ZERO, care)
    }

    /// A process of this host that has ended.
    pub(crate) fn ended() -> ProcessId {
        let mut process = process::spawn(&mut Command::new("true")).unwrap();
        process.wait().unwrap();
        ProcessId {
            pid: process.id(),
            ..this_process().unwrap()
        }
    }

    pub(crate) fn wait_until(is_so: impl Fn() -> bool) {
        let since = Instant::now();
        while !is_so() {
            assert!(since.elapsed() < patience(), "it is not so");
            rest();
        }
    }

    #[test]
    fn a_directory_that_somebody_has_removed_is_not_used_any_more() {
        let place = tempfile::tempdir().unwrap();
        let files = in_use(place.path(), Some(Duration::from_millis(5)));
        files.check().unwrap();
        // All at once, so that no beat comes between.
        fs::rename(files.directory().path(), place.path().join("gone")).unwrap();
        wait_until(|| files.check().is_err());
        let text = files.check().unwrap_err().to_string();
        let path = files.directory().path().display().to_string();
        assert!(text.contains(&path), "{text}");
    }

    #[test]
    fn leftovers_of_an_earlier_attempt_go_without_a_warning() {
        let place = tempfile::tempdir().unwrap();
        let left = gather_dir(place.path(), ended());
        let files = in_use(place.path(), None);
        files.sweep(Some(JOB.into()));
        wait_until(|| !left.path().exists());
        assert_eq!(heard(|| files.finish()), [""; 0]);
        assert!(files.directory().path().exists());
    }
}
