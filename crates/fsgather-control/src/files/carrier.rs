//! A rank's line to the others: [`FileCarrier`], the carrier over marker files.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use fsgather_core::{
    BackgroundThread, Error, Mailbox, ProcessId, Rank, ReclaimSink, RendezvousBackend, Retirement,
    lock,
};

use super::{
    node::{Endpoint, FileNode},
    outbox::Outbox,
    poller::Poller,
    seek::EnteredFiles,
};
use crate::{
    carrier::Carrier,
    coordinator::Coordinator,
    join::{
        config::{self, Config, Joined},
        record_keeper,
    },
    machines::Machines,
    member::Member,
    siblings::Watch,
    thread_call::without_a_thread,
};

/// Time for which rank 0 waits at the end until all others have read its last messages.
const LAST_MESSAGES_TIME: Duration = Duration::from_secs(10);

/// Maximum time that the last messages may take to be left.
const LAST_SEND: Duration = Duration::from_secs(2);

/// Maximum time that the poller may take to stop; one that hangs in a file call is abandoned.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A node, its poller, and the watch of the processes on this host.
pub(super) struct FileCarrier {
    rank: Rank,
    node: Arc<FileNode>,
    poller: Mutex<Option<BackgroundThread>>,
    watch: Mutex<Option<Watch>>,
    /// Longest pause between two looks of a rank for messages.
    longest_pause: Duration,
    /// Place of rank 0's record.
    board: Option<Arc<dyn RendezvousBackend>>,
}

impl FileCarrier {
    /// Starts the poller.
    pub(super) fn start(
        config: &Config,
        node: Arc<FileNode>,
        (mailbox, outbox): (Arc<dyn Mailbox>, Outbox),
        processes: Option<Vec<ProcessId>>,
        board: Option<Arc<dyn RendezvousBackend>>,
    ) -> Result<Self, Error> {
        let (_, longest_pause) = mailbox.pace();
        let poller = Poller::new(
            Arc::clone(&node),
            (mailbox, outbox),
            config::own_peer(config),
            processes,
            Arc::clone(&config.is_running),
        );
        let (threads, name) = (config.threads(), format!("fsgather-{}", config.rank));
        let (its, its_name) = (threads.clone(), name.clone());
        let poller = threads
            .start(name, move || poller.run(&its, &its_name))
            .map_err(|error| without_a_thread(&error))?;
        Ok(Self {
            rank: config.rank,
            node,
            poller: Mutex::new(Some(poller)),
            watch: Mutex::new(None),
            longest_pause,
            board,
        })
    }

    /// Watches the processes on this host.
    pub(super) fn watch_siblings(&self, config: &Config, processes: &[ProcessId]) {
        let node = Arc::clone(&self.node);
        let report = move |sibling| {
            if sibling == Rank::ZERO {
                node.coordinator_ended();
            } else {
                node.sibling_ended(sibling);
            }
        };
        match Watch::start(config, processes, report) {
            Ok(watch) => *lock(&self.watch) = watch,
            Err(error) => tracing::debug!("cannot watch the processes on this host: {error}"),
        }
    }
}

impl Carrier for FileCarrier {
    fn act<R>(&self, act: impl FnOnce(&mut Member, Instant) -> R) -> R {
        self.node.act(act)
    }

    fn wait_until<R>(
        &self,
        limit: Option<Duration>,
        mut ready: impl FnMut(&mut Member) -> Option<R>,
    ) -> Option<R> {
        self.node.until(limit, |member, _| ready(member))
    }

    fn settle(&self, limit: Duration) {
        // Messages in the shared place stay there although this process may end: no reader has to be waited for.
        if !self.node.flushed(limit) {
            tracing::debug!("the last messages were not left in time");
        }
    }

    fn wait_for_departures(&self, limit: Duration) -> bool {
        // The others may look only this often.
        let limit = limit.max(self.longest_pause * 3);
        self.node
            .until(Some(limit), |_, coordinator| {
                coordinator.is_none_or(Coordinator::is_gone).then_some(())
            })
            .is_some()
    }

    fn coordinate<R>(&self, act: impl FnOnce(&mut Coordinator, Instant) -> R) -> Option<R> {
        self.node.coordinate(act)
    }

    fn set_reclaim_sink(&self, sink: ReclaimSink) {
        self.node.set_own_reclaim_sink(Some(sink));
    }

    fn shut_down(&self) -> bool {
        drop(lock(&self.watch).take());
        let Some(poller) = lock(&self.poller).take() else {
            return true;
        };
        if let Some(board) = &self.board {
            record_keeper::take_down(board);
        }
        let how = if self.rank == Rank::ZERO {
            self.node.coordinate(|coordinator, _| coordinator.abandon());
            if self.node.all_read(LAST_MESSAGES_TIME) {
                Retirement::Over
            } else {
                Retirement::InUse
            }
        } else {
            self.node.flushed(LAST_SEND);
            if self.node.act(|member, _| member.has_lost_coordinator()) {
                Retirement::Deserted
            } else {
                Retirement::Over
            }
        };
        self.node.stop(how);
        let has_stopped = poller.wait(STOP_LIMIT);
        // The sink may hold the owner of this line.
        self.node.set_own_reclaim_sink(None);
        has_stopped && how == Retirement::Over
    }

    fn is_foreign(&self) -> bool {
        self.node.is_foreign()
    }
}

impl Drop for FileCarrier {
    fn drop(&mut self) {
        if self.is_foreign() {
            // The thread is the parent's; ending it is its business.
            let poller = self.poller.get_mut();
            std::mem::forget(poller.unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

/// Takes the place in a world that has formed.
pub(crate) fn enter(config: &Config, entered: EnteredFiles) -> Result<Joined, Error> {
    let EnteredFiles {
        welcome,
        mailbox,
        endpoint,
        outbox,
        heard,
    } = entered;
    let machines = Machines::of_member(config.rank, &welcome)?;
    let processes = welcome.processes;
    let node = Arc::new(FileNode::over_files(machines, Endpoint::Member(endpoint)));
    node.act(|member, now| {
        for message in heard {
            member.on_message(message, now);
        }
    });
    let line = FileCarrier::start(
        config,
        Arc::clone(&node),
        (mailbox, outbox),
        Some(processes.clone()),
        None,
    )?;
    node.obey_interrupt(config);
    node.open_eyes(config);
    line.watch_siblings(config, &processes);
    Ok(config::joined(
        config,
        welcome.communicator,
        processes,
        false,
        line,
    ))
}
