//! Runs a mesh: [`Engine`].

use std::{
    future::Future,
    mem,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fsgather_core::{CallId, Error, Progress, Rank, lock};

use crate::{
    join::addresses,
    tcp::{acceptor, connection, host::no_runtime, runtime::CallerRuntime},
    thread_call::without_a_thread,
};

use super::{
    MeshConfig, SLICE,
    core::Core,
    dial::{Silent, answer, dial},
    link::Link,
    stalls::Eye,
};

/// Time that a rank waits for confirmations of earlier transfers, if it has to know.
const CONFIRMATION_TIME: Duration = Duration::from_millis(500);

/// The shared state of a mesh and the right to run it.
pub(super) struct Engine {
    /// The process that made it; a forked child must not touch it.
    pid: u32,
    core: Arc<Core>,
    /// Absent after shutdown.
    runtime: Mutex<Option<Arc<CallerRuntime>>>,
}

impl Engine {
    /// Listens, starts to serve others, and returns the port.
    pub(super) fn start(config: &MeshConfig) -> Result<(Self, u16), Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| no_runtime(&error))?;
        let runtime = CallerRuntime::new(runtime, config.thread_name(), &config.threads)
            .map_err(|error| without_a_thread(&error))?;
        let core = Arc::new(Core::new(config));
        let host = core.peer(config.rank).host;
        let place = addresses::to_listen_at(&*config.interfaces, None)?;
        let (listeners, port) = runtime.run(async {
            connection::listen_as(
                config.rank,
                &host,
                &place,
                config.ports.clone(),
                "FSGATHER_PORT: each rank of a host needs one for itself, and rank 0 another one",
            )
        })??;
        let its = Arc::clone(&core);
        let answering = move |stream| answer(Arc::clone(&its), stream);
        runtime.spawn(acceptor::keep(listeners, answering, |_| {}));
        runtime.nudge();
        let engine = Self {
            pid: std::process::id(),
            core,
            runtime: Mutex::new(Some(Arc::new(runtime))),
        };
        Ok((engine, port))
    }

    pub(super) const fn core(&self) -> &Arc<Core> {
        &self.core
    }

    #[cfg(test)]
    pub(super) const fn pretend_to_be_copied(&mut self) {
        self.pid ^= 1;
    }

    fn is_foreign(&self) -> bool {
        self.pid != std::process::id()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<CallerRuntime>>> {
        lock(&self.runtime)
    }

    fn runtime(&self) -> Result<Arc<CallerRuntime>, Error> {
        if self.is_foreign() {
            return Err(Error::config(
                "this communicator belongs to the parent process; a forked child cannot use it",
            ));
        }
        self.lock().clone().ok_or_else(Error::closed)
    }

    /// Returns an error if it cannot be used.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.runtime().map(drop)
    }

    /// Starts a task that makes progress whenever the mesh is run, from now on.
    pub(super) fn spawn(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Error> {
        let runtime = self.runtime()?;
        runtime.spawn(task);
        runtime.nudge();
        Ok(())
    }

    /// Runs the mesh until `future` is done.
    pub(super) fn run<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        self.runtime()?.run(future)
    }

    /// Runs the mesh until `future` is done, and calls `progress` every [`SLICE`].
    fn wait<T>(
        &self,
        future: impl Future<Output = Result<T, Error>>,
        progress: &mut Progress<'_>,
    ) -> Result<T, Error> {
        let mut future = pin!(future);
        loop {
            let slice = self.run(async { tokio::time::timeout(SLICE, future.as_mut()).await })?;
            match slice {
                Ok(outcome) => return outcome,
                Err(_) => progress(0)?,
            }
        }
    }

    /// A link to another rank: one that is idle, or a new one.
    pub(super) fn link_to(&self, to: Rank, progress: &mut Progress<'_>) -> Result<Link, Error> {
        if let Some(link) = self.core.idle.take(to, None) {
            return Ok(link);
        }
        let core = &self.core;
        self.wait(
            settled_or(core, to, dial(core, to, Silent::GiveUp)),
            progress,
        )
    }

    /// The same in a call that cannot continue without the link: a stopped rank gets as much time as in every other wait.
    pub(super) fn link_for(
        &self,
        call: CallId,
        to: Rank,
        timeout: Duration,
        progress: &mut Progress<'_>,
    ) -> Result<Link, Error> {
        let core = &self.core;
        if let Some(link) = core.idle.take(to, Some(call.channel)) {
            return Ok(link);
        }
        let mut eye = Eye::new(&core.stalls, call, timeout);
        let found = settled_or(core, to, dial(core, to, Silent::Wait));
        self.wait(found, &mut |moved| {
            eye.saw(moved, || vec![to]);
            progress(moved)?;
            eye.check(|| core.timed_out(&[to], timeout))
        })
    }

    /// Lets the progress thread serve others from now on, even without a caller.
    pub(super) fn leave_to_itself(&self) {
        if let Ok(runtime) = self.runtime() {
            runtime.nudge();
        }
    }

    /// Ends everything, once nothing is offered and payloads on their way have been sent, or after `limit`.
    pub(super) fn shut_down(&self, limit: Duration) {
        let Ok(runtime) = self.runtime() else { return };
        let core = &self.core;
        if !core.offers.is_empty() || !core.deliveries.is_idle() {
            let taken = async {
                core.offers.all_withdrawn().await;
                core.deliveries.all_ended().await;
            };
            let in_time = runtime.run(async { tokio::time::timeout(limit, taken).await });
            if !matches!(in_time, Ok(Ok(()))) {
                tracing::debug!("some ranks did not take their payloads in time");
            }
        }
        // A connection that is closed with unread data may lose data that it has sent.
        let mut idle = core.idle.take_all();
        let settling = async {
            for link in &mut idle {
                if let Err(error) = link.settle().await {
                    tracing::trace!("the link to rank {} has ended: {error}", link.peer);
                }
            }
        };
        let limit = limit.min(CONFIRMATION_TIME);
        let in_time = runtime.run(async { tokio::time::timeout(limit, settling).await });
        if !matches!(in_time, Ok(Ok(()))) {
            tracing::debug!("some ranks did not say in time that they got everything");
        }
        drop(idle);
        drop(self.lock().take());
    }
}

/// An idle link, once its other end has confirmed the earlier transfers; otherwise the result of `dialled`.
pub(super) async fn settled_or(
    core: &Core,
    to: Rank,
    dialled: impl Future<Output = Result<Link, Error>>,
) -> Result<Link, Error> {
    if let Some(mut link) = core.idle.take_any(to) {
        let settled = tokio::time::timeout(CONFIRMATION_TIME, link.settle()).await;
        if matches!(settled, Ok(Ok(()))) {
            return Ok(link);
        }
    }
    dialled.await
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.is_foreign() {
            // Threads, descriptors and their tasks are the parent's.
            let runtime = self.runtime.get_mut();
            if let Some(runtime) = runtime.unwrap_or_else(PoisonError::into_inner).take() {
                mem::forget(runtime);
            }
            mem::forget(Arc::clone(&self.core));
        }
    }
}
