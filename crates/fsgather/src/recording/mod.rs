//! Keeps this rank's last calls where others find them: [`Recording`].
//!
//! A mapped file on a file system of this host has them, so that they survive the process and cost no system call: beside the rank's
//! other files, or, if those are on a file server, in the private directory of this host. From there a thread copies them to the server:
//! after half a minute, every 10 seconds while they change, and after a failure. The thread of rank 0 also answers questions about the
//! activities of all ranks, and one thread of each host touches the files.
//!
//! | module | contents |
//! |---|---|
//! | [`worker`] | the thread and its orders |
//! | [`copying`] | a copy on a server |
//! | [`failed`] | the calls of worlds that have failed in this process |

mod copying;
mod failed;
mod worker;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use fsgather_config::settings::{Trace, Transport};
use fsgather_core::{Error, Rank, RankNames, StorageCause};
use fsgather_observe::trace::recorder::{self, Recorder};
use fsgather_store::{
    FileSystem,
    calls::{self, CallsHeader},
    free_bytes, layout, make_rendezvous,
};
use uuid::Uuid;

use self::{
    copying::Copying,
    failed::FAILED,
    worker::{Order, Orders, Worker},
};
use crate::{group_state::GroupState, payload::path::PayloadPath};

/// Minimum free space of the file system that keeps calls, in bytes, so that they take none from payloads.
const MIN_FREE_BYTES: u64 = 64 << 20;

/// One rank's last calls, for as long as it is in its world.
pub(crate) struct Recording {
    recorder: Arc<Recorder>,
    /// The path for `fsgather trace`.
    shown: PathBuf,
    keep: Trace,
    communicator: Uuid,
    /// The worlds that had failed in this process when this one was made: if it ends well, the program has recovered from that.
    failed_before: Vec<Uuid>,
    /// The time when this rank began to meet the others: older directories are not of this world.
    joined_at: SystemTime,
    is_reported: AtomicBool,
    worker: Option<Arc<Orders>>,
}

/// Begins to record the calls of a world, if that is wanted and possible.
///
/// `joined_at` is the time when this rank began to meet the others, `names` has the names of ranks in the job.
pub(crate) fn begin(inner: &GroupState, keep: Trace, joined_at: SystemTime, names: &RankNames) {
    if keep == Trace::Off {
        return;
    }
    match Recording::begin(inner, keep, joined_at, names) {
        Ok(recording) => {
            inner
                .world
                .call_log
                .record_with(Arc::clone(&recording.recorder));
            inner.world.recording.get_or_init(|| recording);
        }
        // A user who has asked for calls must know.
        Err(error) if keep == Trace::Always && is_first_of_host(inner) => {
            fsgather_core::warn!("the last calls are not kept: {error}");
        }
        Err(error) => tracing::debug!("the last calls are not kept: {error}"),
    }
}

impl Recording {
    fn begin(
        inner: &GroupState,
        keep: Trace,
        joined_at: SystemTime,
        names: &RankNames,
    ) -> Result<Self, Error> {
        let world = &inner.world;
        let shared = shared_place(inner);
        let directory = gather_directory(inner, shared.as_deref());
        let is_local = |place: &PathBuf| FileSystem::of(place).is_ok_and(|of| of.is_mappable());
        let made = |place: PathBuf| make_rendezvous(place.parent()?).ok();
        let own = match shared.clone().filter(is_local).and_then(made) {
            Some(own) => own,
            None => calls::local_rendezvous()?,
        };
        if free_bytes(&own).is_some_and(|free| free < MIN_FREE_BYTES) {
            let cause = StorageCause::described("it has little room");
            return Err(Error::storage("keep calls in", &own, cause));
        }
        // With encryption, no plain text goes to a file server.
        let afar = shared.filter(|shared| *shared != own && !world.context.encrypt);
        let (origin, now) = (Instant::now(), SystemTime::now());
        let began = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let process = world.processes.get(world.rank.index());
        let header = CallsHeader {
            process: process.cloned().unwrap_or_default(),
            communicator: world.communicator,
            rank: world.rank,
            called: names.of(world.rank),
            world_size: inner.exchange.world_size().get(),
            began: u64::try_from(began.as_nanos()).unwrap_or(u64::MAX),
            job: world.context.job.clone(),
            directory: directory.map(|directory| directory.to_string_lossy().into_owned()),
        };
        let (file, path) = calls::create(&own, &header, recorder::LEN)?;
        let recorder = Recorder::begin_in(&file, &path, origin).map_err(|error| {
            calls::remove(&path);
            Error::storage("map", &path, &error)
        })?;
        let recorder = Arc::new(recorder);
        let shown = match &afar {
            Some(afar) => afar.join(header.name()),
            None => path,
        };
        let is_first_of_host = is_first_of_host(inner);
        let worker = Worker {
            recorder: Arc::clone(&recorder),
            file,
            swept: is_first_of_host.then(|| own.clone()),
            copy: afar.clone().map(|place| Copying {
                place,
                header: header.clone(),
                made: None,
                copied: vec![0; recorder::LEN_OF_RECORDS],
                changes: 0,
            }),
            asked: if world.rank == Rank::ZERO {
                [Some(own), afar].into_iter().flatten().collect()
            } else {
                Vec::new()
            },
            known: BTreeMap::new(),
            onlooker: inner.exchange.onlooker(),
            names: names.clone(),
            header,
        };
        Ok(Self {
            recorder,
            shown,
            keep,
            communicator: world.communicator,
            failed_before: FAILED.known(),
            joined_at,
            is_reported: AtomicBool::new(false),
            worker: worker.start(&world.threads()),
        })
    }

    /// Records that a call has failed, so that the calls stay. Warns if this rank is the one that `speaks`.
    pub(crate) fn fail(&self, speaks: bool) {
        if self.is_reported.swap(true, Ordering::Relaxed) {
            return;
        }
        self.recorder.fail();
        if let Some(orders) = &self.worker {
            orders.give(Order::CopyNow);
        }
        if speaks {
            // If the shared directory cannot be made, the calls are on this host.
            let is_made = self.shown.parent().is_some_and(Path::is_dir);
            let shown = if is_made {
                &self.shown
            } else {
                self.recorder.path()
            };
            fsgather_core::warn!(
                "the last calls of each rank are kept: fsgather trace {}",
                shown.display()
            );
        }
    }

    /// Ends it with the world. `closed`: all ranks have closed it together; `alone`: the directory had nothing but calls.
    pub(crate) fn end(&self, closed: bool, alone: bool) {
        let stays = match self.keep {
            Trace::Always => true,
            // The program has recovered from failures of a group or of an earlier world.
            Trace::Failed => self.recorder.has_failed() && !closed,
            Trace::Off => false,
        };
        // Later failures have nothing to do with its calls.
        self.is_reported.store(true, Ordering::Relaxed);
        let used_len = self.recorder.seal();
        if let Some(orders) = &self.worker {
            orders.give(Order::End { stays });
            orders.wait_for_end();
        }
        if stays && let Err(error) = calls::cut(self.recorder.path(), used_len) {
            tracing::debug!("calls are not cut to the part that is used: {error}");
        }
        if !stays {
            calls::remove(self.recorder.path());
            // The last rank finds the directory empty.
            if let Some(rendezvous) = self.recorder.path().parent().filter(|_| alone) {
                calls::remove_unused_rendezvous(rendezvous, self.joined_at);
            }
        }
        if self.keep == Trace::Failed {
            let paths = [self.recorder.path().to_owned(), self.shown.clone()];
            let own = stays.then_some((self.communicator, paths));
            FAILED.settle(own, closed, &self.failed_before);
        }
    }
}

/// Returns the rendezvous directory in which ranks hand over payloads, have met, or could do so.
fn shared_place(inner: &GroupState) -> Option<PathBuf> {
    if let Some(PayloadPath::Files(files)) = inner.world.settled() {
        return files.directory().path().parent().map(Path::to_owned);
    }
    let context = &inner.world.context;
    let known = context.known.first().map(|(place, _)| place.clone());
    // If payloads go through memory, nothing may appear in a directory in which ranks do not meet.
    let uses_files = inner.world.request().transport != Transport::Memory;
    let named = context.named.as_deref().filter(|_| uses_files);
    known.or_else(|| named.map(layout::rendezvous_path))
}

/// Returns the directory that the ranks of this world gather through, by its absolute name: that of `shared`, their rendezvous directory,
/// else the one that was named.
fn gather_directory(inner: &GroupState, shared: Option<&Path>) -> Option<PathBuf> {
    let used = shared.and_then(Path::parent);
    // Nothing has used a directory that was only named: its file system might hang.
    let real = used.and_then(|used| used.canonicalize().ok());
    let named = used.or(inner.world.context.named.as_deref());
    real.or_else(|| named.map(Path::to_owned))
}

fn is_first_of_host(inner: &GroupState) -> bool {
    let world = &inner.world;
    let Some(own) = world.processes.get(world.rank.index()) else {
        return false;
    };
    let of_host = world.processes.iter().position(|one| one.sees_pids_of(own));
    of_host == Some(world.rank.index())
}
