//! Records the calls of this rank, and keeps the last of them for other processes: [`Recording`].
//!
//! They are in a mapped file on a file system of this host, so that they survive the process and cost no system call.
//! It is beside the rank's other files, or, if those are on a file server, in the private directory of this host. From
//! there a thread copies it to the server: after half a minute, every 10 seconds while it changes, and after a failure.
//! The thread of rank 0 also answers questions about the activities of all ranks, and one thread of each host touches
//! the files.
//!
//! | module | contents |
//! |---|---|
//! | `worker` | the thread and its orders |
//! | `copying` | a copy on a server |
//! | `failed` | the calls of worlds that have failed in this process |

mod copying;
mod failed;
mod worker;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use fsgather_config::settings::Trace;
use fsgather_core::{
    BackgroundThreads, CallEvent, Error, Onlooker, ProcessId, Rank, RankNames, Ticket,
};
use fsgather_store::calls::{self, CallsHeader};
use uuid::Uuid;

use self::{
    copying::Copying,
    failed::FAILED,
    worker::{Order, Orders, Worker},
};
use crate::trace::{
    record_file::{LEN, LEN_OF_RECORDS},
    recorder::Recorder,
};

/// The calls of one rank, for as long as it is in its world.
#[derive(Debug)]
pub struct Recording {
    recorder: Arc<Recorder>,
    names: RankNames,
    kept: OnceLock<Kept>,
}

/// The places of the last calls of a rank, and the needs of the thread that maintains them.
pub struct Keeping {
    /// The condition under which they stay after the end of the world.
    pub keep: Trace,
    /// The directory of this host for the file.
    pub own: PathBuf,
    /// The directory on a file server to which the file is copied.
    pub afar: Option<PathBuf>,
    /// Rank and world; the time of its beginning is set here.
    pub header: CallsHeader,
    /// The time when this rank began to meet the others: older directories are not of this world.
    pub joined_at: SystemTime,
    /// True if this rank touches the files of its host, and removes old ones.
    pub is_first_of_host: bool,
    /// The probe by which rank 0 asks for the activities of the ranks.
    pub onlooker: Option<Arc<dyn Onlooker>>,
    /// The owner of the thread.
    pub threads: BackgroundThreads,
}

impl std::fmt::Debug for Keeping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeping")
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}

/// The kept calls, and their files.
struct Kept {
    path: PathBuf,
    /// The path for `fsgather trace`.
    shown: PathBuf,
    keep: Trace,
    communicator: Uuid,
    /// The worlds that had failed in this process when this one was made: if it ends well, the program has recovered from that.
    failed_before: Vec<Uuid>,
    joined_at: SystemTime,
    is_reported: AtomicBool,
    worker: Option<Arc<Orders>>,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Recording {
    /// Returns the recording of a rank that is a thread: only the log has its calls.
    #[must_use]
    pub fn of_thread(rank: Rank, processes: &[ProcessId]) -> Self {
        Self {
            recorder: Arc::new(Recorder::of_thread(rank, processes)),
            names: RankNames::default(),
            kept: OnceLock::new(),
        }
    }

    /// Returns the recording of a rank that is a process. `names` has the names of ranks in the job, `processes` the
    /// processes of the ranks, by rank.
    #[must_use]
    pub fn new(rank: Rank, names: &RankNames, processes: &[ProcessId]) -> Self {
        Self {
            recorder: Arc::new(Recorder::new(rank, names, processes)),
            names: names.clone(),
            kept: OnceLock::new(),
        }
    }

    /// Records an event of a call.
    pub fn observe(&self, ticket: &Ticket, event: CallEvent<'_>) {
        self.recorder.observe(ticket, event);
    }

    /// Returns the number of calls that have begun, and the file that has the last of them as it is now, if there is one.
    #[must_use]
    pub fn last_calls(&self) -> Option<(u64, Vec<u8>)> {
        let path = self.recorder.path()?;
        Some((self.recorder.count(), std::fs::read(path).ok()?))
    }

    /// Keeps the calls that begin from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if the file cannot be made or mapped.
    pub fn keep(&self, keeping: Keeping) -> Result<(), Error> {
        let Keeping {
            keep,
            own,
            afar,
            mut header,
            joined_at,
            is_first_of_host,
            onlooker,
            threads,
        } = keeping;
        let recorder = &self.recorder;
        header.began = recorder.began();
        let (file, path) = calls::create(&own, &header, LEN)?;
        recorder.write_to(&file, &path).map_err(|error| {
            calls::remove(&path);
            Error::storage("map", &path, &error)
        })?;
        let communicator = header.communicator;
        let shown = match &afar {
            Some(afar) => afar.join(header.name()),
            None => path.clone(),
        };
        let worker = Worker {
            recorder: Arc::clone(recorder),
            path: path.clone(),
            file,
            swept: is_first_of_host.then(|| own.clone()),
            copy: afar.clone().map(|place| Copying {
                place,
                header: header.clone(),
                made: None,
                copied: vec![0; LEN_OF_RECORDS],
                changes: 0,
            }),
            asked: if header.rank == Rank::ZERO {
                [Some(own), afar].into_iter().flatten().collect()
            } else {
                Vec::new()
            },
            known: BTreeMap::new(),
            onlooker,
            names: self.names.clone(),
            header,
        };
        self.kept.get_or_init(|| Kept {
            path,
            shown,
            keep,
            communicator,
            failed_before: FAILED.known(),
            joined_at,
            is_reported: AtomicBool::new(false),
            worker: worker.start(&threads),
        });
        Ok(())
    }

    /// Records that a call has failed, so that the calls stay. Warns if this rank is the one that `speaks`.
    pub fn fail(&self, speaks: bool) {
        let Some(kept) = self.kept.get() else {
            return;
        };
        if kept.is_reported.swap(true, Ordering::Relaxed) {
            return;
        }
        self.recorder.fail();
        if let Some(orders) = &kept.worker {
            orders.give(Order::CopyNow);
        }
        if speaks {
            // If the shared directory cannot be made, the calls are on this host.
            let is_made = kept.shown.parent().is_some_and(Path::is_dir);
            let shown = if is_made { &kept.shown } else { &kept.path };
            fsgather_core::warn!(
                "the last calls of each rank are kept: fsgather trace {}",
                shown.display()
            );
        }
    }

    /// Ends the recording with the world. `closed`: all ranks have closed it together; `alone`: the directory had
    /// nothing but calls.
    pub fn end(&self, closed: bool, alone: bool) {
        let Some(kept) = self.kept.get() else {
            return;
        };
        let stays = match kept.keep {
            Trace::Always => true,
            // The program has recovered from failures of a group or of an earlier world.
            Trace::Failed => self.recorder.has_failed() && !closed,
            Trace::Off => false,
        };
        // Later failures have nothing to do with its calls.
        kept.is_reported.store(true, Ordering::Relaxed);
        let used_len = self.recorder.seal();
        if let Some(orders) = &kept.worker {
            orders.give(Order::End { stays });
            orders.wait_for_end();
        }
        if stays && let Err(error) = calls::cut(&kept.path, used_len) {
            tracing::debug!("calls are not cut to the part that is used: {error}");
        }
        if !stays {
            calls::remove(&kept.path);
            // The last rank finds the directory empty.
            if let Some(rendezvous) = kept.path.parent().filter(|_| alone) {
                calls::remove_unused_rendezvous(rendezvous, kept.joined_at);
            }
        }
        if kept.keep == Trace::Failed {
            let paths = [kept.path.clone(), kept.shown.clone()];
            let own = stays.then_some((kept.communicator, paths));
            FAILED.settle(own, closed, &kept.failed_before);
        }
    }
}
