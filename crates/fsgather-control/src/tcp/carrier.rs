//! A rank's line to the others: [`TcpCarrier`], the carrier over TCP.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use fsgather_core::{Error, ProcessId, ReclaimSink, RendezvousBackend, lock};

use crate::{
    carrier::Carrier,
    coordinator::Coordinator,
    join::{config::Config, record_keeper},
    member::Member,
    siblings::Watch,
    tcp::{node::TcpNode, runtime::CallerRuntime},
};

/// Maximum time that the last frames may take to reach the operating system.
const LAST_FRAMES: Duration = Duration::from_millis(500);

/// Number of times that sockets are served when a caller only polls for a result: messages that have arrived are read,
/// queued messages are sent.
const LOOKS: usize = 3;

/// Machines, connections and the right to run them.
pub(crate) struct TcpCarrier {
    node: Arc<TcpNode>,
    /// Absent after shutdown.
    runtime: Mutex<Option<Arc<CallerRuntime>>>,
    watch: Mutex<Option<Watch>>,
    /// Place of rank 0's record.
    board: Option<Arc<dyn RendezvousBackend>>,
}

impl TcpCarrier {
    pub(crate) fn new(
        node: Arc<TcpNode>,
        runtime: CallerRuntime,
        board: Option<Arc<dyn RendezvousBackend>>,
    ) -> Self {
        Self {
            node,
            runtime: Mutex::new(Some(Arc::new(runtime))),
            watch: Mutex::new(None),
            board,
        }
    }

    fn runtime(&self) -> Option<Arc<CallerRuntime>> {
        lock(&self.runtime).clone()
    }

    /// Watches the processes on this host.
    pub(crate) fn watch_siblings(&self, config: &Config, processes: &[ProcessId]) {
        let node = Arc::clone(&self.node);
        let report = move |sibling| node.act(|member, _| member.sibling_exited(sibling));
        match Watch::start(config, processes, report) {
            Ok(watch) => *lock(&self.watch) = watch,
            Err(error) => tracing::debug!("cannot watch the processes on this host: {error}"),
        }
    }

    /// Reports the cause to ranks that have joined a world that does not form, and to those that ask from now on.
    pub(crate) fn tell(&self, cause: &Error) {
        self.node
            .coordinate(|coordinator, _| coordinator.give_up(cause));
    }

    /// Answers processes that ask, for this long.
    pub(crate) fn linger(&self, time: Duration) {
        self.wait_until(Some(time), |_| None::<()>);
    }

    /// Ends a world that did not form, and reports the reason to ranks that have joined.
    pub(crate) fn give_up(&self, cause: &Error) {
        self.tell(cause);
        self.settle(LAST_FRAMES);
        self.shut_down();
    }
}

impl Carrier for TcpCarrier {
    fn act<R>(&self, act: impl FnOnce(&mut Member, Instant) -> R) -> R {
        self.node.act(act)
    }

    /// Inside of the runtime, no other thread has to be woken to send the message; this one will be back.
    fn act_and_wait_later<R>(
        &self,
        act: impl FnOnce(&mut Member, Instant) -> Result<R, Error>,
    ) -> Result<R, Error> {
        match self.runtime() {
            Some(runtime) => runtime.run_at_once(|| self.node.act(act))?,
            None => self.node.act(act),
        }
    }

    fn nudge(&self) {
        if !self.node.is_flushed()
            && let Some(runtime) = self.runtime()
        {
            runtime.nudge();
        }
    }

    fn wait_until<R>(
        &self,
        limit: Option<Duration>,
        mut ready: impl FnMut(&mut Member) -> Option<R>,
    ) -> Option<R> {
        let runtime = self.runtime()?;
        if limit == Some(Duration::ZERO) {
            return self.node.act(|member, _| ready(member)).or_else(|| {
                let looked = runtime.run(async {
                    // A caller that only polls, and often, keeps the progress thread away, so it has to do that thread's work.
                    for _ in 0..LOOKS {
                        tokio::task::yield_now().await;
                    }
                });
                if let Err(error) = looked {
                    tracing::debug!("no message is heard: {error}");
                }
                self.node.act(|member, _| ready(member))
            });
        }
        let result = self.node.until(|member, _| ready(member));
        let waited = runtime.run(async {
            match limit {
                None => Some(result.await),
                Some(limit) => tokio::time::timeout(limit, result).await.ok(),
            }
        });
        // After a panic all calls of this rank have failed.
        waited.unwrap_or_else(|_| self.node.act(|member, _| ready(member)))
    }

    fn settle(&self, limit: Duration) {
        let told = self
            .node
            .coordinate(|coordinator, _| coordinator.all_told())
            .unwrap_or(true);
        if told && self.node.is_flushed() {
            return;
        }
        let Some(runtime) = self.runtime() else {
            return;
        };
        let settled = async {
            self.node
                .until(|_, coordinator| coordinator.is_none_or(Coordinator::all_told).then_some(()))
                .await;
            self.node.flushed().await;
        };
        let in_time = runtime.run(async { tokio::time::timeout(limit, settled).await });
        if !matches!(in_time, Ok(Ok(()))) {
            tracing::debug!("some ranks did not take their last messages in time");
        }
    }

    fn wait_for_departures(&self, limit: Duration) -> bool {
        let Some(runtime) = self.runtime() else {
            return false;
        };
        let gone = self
            .node
            .until(|_, coordinator| coordinator.is_none_or(Coordinator::is_gone).then_some(()));
        // Ranks that have not left by then get a goodbye from `shut_down`.
        let in_time = runtime.run(async { tokio::time::timeout(limit, gone).await });
        matches!(in_time, Ok(Ok(())))
    }

    fn coordinate<R>(&self, act: impl FnOnce(&mut Coordinator, Instant) -> R) -> Option<R> {
        self.node.coordinate(act)
    }

    fn set_reclaim_sink(&self, sink: ReclaimSink) {
        self.node.set_own_reclaim_sink(Some(sink));
    }

    fn shut_down(&self) -> bool {
        drop(lock(&self.watch).take());
        let mut has_ended = true;
        let runtime = lock(&self.runtime).take();
        if let Some(runtime) = runtime {
            self.node.coordinate(|coordinator, _| coordinator.abandon());
            let ended = runtime.run(async {
                let _ = tokio::time::timeout(LAST_FRAMES, self.node.flushed()).await;
                // The writers shut their connections once they find their queues closed. The last messages of the others
                // are read to their end: a connection that is closed with unread data is reset, and loses data on its way.
                self.node.detach_all();
                let _ = tokio::time::timeout(LAST_FRAMES, self.node.all_read()).await;
            });
            has_ended = ended.is_ok();
        }
        if let Some(board) = &self.board {
            record_keeper::take_down(board);
        }
        // The sink may hold the owner of this line.
        self.node.set_own_reclaim_sink(None);
        has_ended
    }

    fn is_foreign(&self) -> bool {
        self.node.is_foreign()
    }
}

impl Drop for TcpCarrier {
    fn drop(&mut self) {
        if self.is_foreign() {
            // The threads and descriptors are the parent's; ending them is its business.
            if let Some(runtime) = self
                .runtime
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner)
                .take()
            {
                std::mem::forget(runtime);
            }
        }
    }
}
