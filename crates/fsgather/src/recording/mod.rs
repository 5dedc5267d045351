//! Keeps this rank's last calls where others find them: [`Recording`].
//!
//! They lie in a mapped file, on a file system of this host, so that they survive the process and cost no call of the
//! system: beside the rank's other files, or, where those are on a file server, in this host's private directory. From there a
//! thread copies them to the server: after half a minute, every 10 seconds while something changes, and when something has
//! failed. Rank 0's thread also answers who asks what all ranks are doing, and a thread of each host has the files look young.
//!
//! | module | holds |
//! |---|---|
//! | [`worker`] | the thread, and what it is told |
//! | [`copying`] | a copy on a server |
//! | [`failed`] | what a process has left of worlds that have failed |

mod copying;
mod failed;
mod worker;

use std::{
    collections::BTreeMap,
    path::{self, Path, PathBuf},
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

/// What must be free where calls are kept, in bytes, so that they take no room from payloads.
const ROOM: u64 = 64 << 20;

/// One rank's last calls, for as long as it is in its world.
pub(crate) struct Recording {
    recorder: Arc<Recorder>,
    /// What names the calls of all ranks to `fsgather trace`.
    shown: PathBuf,
    keep: Trace,
    communicator: Uuid,
    /// What had failed in this process when this world was made: if all ends well, the program has got over it.
    got_over: Vec<Uuid>,
    /// When this rank came to the meeting: what is older than that is not made by this world.
    came: SystemTime,
    is_told: AtomicBool,
    worker: Option<Arc<Orders>>,
}

/// Begins to write the calls of a world down, where that is wanted and can be done.
///
/// `came` is when this rank came to the meeting, `names` what people call ranks.
pub(crate) fn begin(inner: &GroupState, keep: Trace, came: SystemTime, names: &RankNames) {
    if keep == Trace::Off {
        return;
    }
    match Recording::begin(inner, keep, came, names) {
        Ok(recording) => {
            inner
                .world
                .call_log
                .record_with(Arc::clone(&recording.recorder));
            inner.world.recording.get_or_init(|| recording);
        }
        // Who has asked for them is to know.
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
        came: SystemTime,
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
        if free_bytes(&own).is_some_and(|free| free < ROOM) {
            let cause = StorageCause::described("it has little room");
            return Err(Error::storage("keep calls in", &own, cause));
        }
        // Nothing that a file server sees, where nothing may go over a network in plain text.
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
            got_over: FAILED.known(),
            came,
            is_told: AtomicBool::new(false),
            worker: worker.start(),
        })
    }

    /// Notes that something has failed, so that the calls stay. Says so where `speaks` says that it is this rank who does.
    pub(crate) fn fail(&self, speaks: bool) {
        if self.is_told.swap(true, Ordering::Relaxed) {
            return;
        }
        self.recorder.fail();
        if let Some(orders) = &self.worker {
            orders.give(Order::CopyNow);
        }
        if speaks {
            // What is kept on this host is there also where the shared directory cannot be made.
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

    /// Ends it with the world. `closed`: all ranks have closed it together; `alone`: nothing else was kept where calls are.
    pub(crate) fn end(&self, closed: bool, alone: bool) {
        let stays = match self.keep {
            Trace::Always => true,
            // What has failed before, in a group or in an earlier world, the program has got over.
            Trace::Failed => self.recorder.has_failed() && !closed,
            Trace::Off => false,
        };
        // Nothing that fails from here on has anything to do with its calls.
        self.is_told.store(true, Ordering::Relaxed);
        if let Some(orders) = &self.worker {
            orders.give(Order::End { stays });
            orders.wait_for_end();
        }
        if !stays {
            calls::remove(self.recorder.path());
            // Whoever is the last one finds nothing of the others there.
            if let Some(rendezvous) = self.recorder.path().parent().filter(|_| alone) {
                calls::remove_unused_rendezvous(rendezvous, self.came);
            }
        }
        if self.keep == Trace::Failed {
            let paths = [self.recorder.path().to_owned(), self.shown.clone()];
            let own = stays.then_some((self.communicator, paths));
            FAILED.settle(own, closed, &self.got_over);
        }
    }
}

/// The rendezvous directory in which ranks hand over payloads, have met, or could do so.
fn shared_place(inner: &GroupState) -> Option<PathBuf> {
    if let Some(PayloadPath::Files(files)) = inner.world.settled() {
        return files.directory().path().parent().map(Path::to_owned);
    }
    let context = &inner.world.context;
    let known = context.known.first().map(|(place, _)| place.clone());
    // Who has payloads go through memory wants nothing in a directory that ranks do not meet in.
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
    real.or_else(|| path::absolute(named?).ok())
}

fn is_first_of_host(inner: &GroupState) -> bool {
    let world = &inner.world;
    let Some(own) = world.processes.get(world.rank.index()) else {
        return false;
    };
    let of_host = world.processes.iter().position(|one| one.sees_pids_of(own));
    of_host == Some(world.rank.index())
}
