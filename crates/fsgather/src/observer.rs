//! Passes events of calls to `fsgather-observe`: [`Observer`]. Without the feature `observe`, `no_observer.rs` replaces
//! it.

use std::{
    path::{Path, PathBuf},
    time::SystemTime,
};

use fsgather_config::settings::Trace;
use fsgather_core::{CallEvent, ProcessId, Rank, RankNames, Ticket};
use fsgather_observe::recording::{Keeping, Recording};
use fsgather_store::calls::CallsHeader;

use crate::{calls_place, group_state::GroupState};

/// The recorder of the calls of a rank.
#[derive(Debug)]
pub(crate) struct Observer(Recording);

impl Observer {
    /// Returns the recorder of the rank of this process; `names` has the names of ranks in the job.
    pub(crate) fn of_rank(rank: Rank, names: &RankNames, processes: &[ProcessId]) -> Self {
        Self(Recording::new(rank, names, processes))
    }

    /// Returns the recorder of a rank that is a thread of this process.
    pub(crate) fn of_thread(rank: Rank, processes: &[ProcessId]) -> Self {
        Self(Recording::of_thread(rank, processes))
    }

    pub(crate) fn observe(&self, ticket: &Ticket, event: CallEvent<'_>) {
        self.0.observe(ticket, event);
    }

    /// Records a failure of a call that users will want to examine. Warns if this rank is the one that `speaks`.
    pub(crate) fn fail(&self, speaks: bool) {
        self.0.fail(speaks);
    }

    /// Ends the record with the world. `closed`: all ranks have closed it together; `alone`: nothing else was kept in
    /// its directory.
    pub(crate) fn end(&self, closed: bool, alone: bool) {
        self.0.end(closed, alone);
    }

    /// Returns the number of calls that have begun, and the file that has the last of them.
    pub(crate) fn last_calls(&self) -> Option<(u64, Vec<u8>)> {
        self.0.last_calls()
    }

    /// Keeps the calls that begin from now on in a file, if that is requested and possible.
    ///
    /// `joined_at` is the time when this rank began to meet the others, `names` has the names of ranks in the job.
    pub(crate) fn keep(inner: &GroupState, keep: Trace, joined_at: SystemTime, names: &RankNames) {
        let recording = &inner.world.observer.0;
        if keep == Trace::Off {
            return;
        }
        let is_first_of_host = calls_place::is_first_of_host(inner);
        let shared = calls_place::shared(inner);
        let kept = calls_place::own(shared.as_deref()).and_then(|own| {
            recording.keep(Keeping {
                keep,
                header: header(inner, shared.as_deref(), names),
                // With encryption, no plain text goes to a file server.
                afar: shared.filter(|shared| *shared != own && !inner.world.context.encrypt),
                own,
                joined_at,
                is_first_of_host,
                onlooker: inner.exchange.onlooker(),
                threads: inner.world.threads(),
            })
        });
        match kept {
            Ok(()) => {}
            // A user who has asked for calls must know.
            Err(error) if keep == Trace::Always && is_first_of_host => {
                fsgather_core::warn!("the last calls are not kept: {error}");
            }
            Err(error) => tracing::debug!("the last calls are not kept: {error}"),
        }
    }
}

fn header(inner: &GroupState, shared: Option<&Path>, names: &RankNames) -> CallsHeader {
    let world = &inner.world;
    let process = world.processes.get(world.rank.index());
    let directory = gather_directory(inner, shared);
    CallsHeader {
        process: process.cloned().unwrap_or_default(),
        communicator: world.communicator,
        rank: world.rank,
        called: names.of(world.rank),
        world_size: inner.exchange.world_size().get(),
        began: 0,
        job: world.context.job.clone(),
        directory: directory.map(|directory| directory.to_string_lossy().into_owned()),
    }
}

/// Returns the directory through which the ranks of this world gather, by its absolute name: that of `shared`, their
/// rendezvous directory, else the named one.
fn gather_directory(inner: &GroupState, shared: Option<&Path>) -> Option<PathBuf> {
    let used = shared.and_then(Path::parent);
    // Nothing has used a directory that was only named: its file system might hang.
    let real = used.and_then(|used| used.canonicalize().ok());
    let named = used.or(inner.world.context.named.as_deref());
    real.or_else(|| named.map(Path::to_owned))
}
