//! A payload whose beginning is fetched before it is wanted: [`Ahead`].

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use fsgather_core::{Error, Progress};
use tokio::sync::oneshot;

use super::{
    SLICE,
    dial::{Silent, dial},
    engine::{Engine, settled_or},
    fetch::Fetch,
    incoming::room,
    stalls::Eye,
    stream::StreamOrigin,
};

/// The beginning of a payload, and the rest of its fetch.
pub(super) struct Begun {
    /// The first chunk, or an empty one.
    pub(super) chunk: Bytes,
    pub(super) fetch: Fetch,
    failure: Option<Error>,
}

/// A fetch that gets as far as the first chunk while its caller does something else. Dropping it ends the fetch.
pub(super) struct Ahead {
    /// Absent once it has been received.
    outcome: Option<oneshot::Receiver<Begun>>,
    /// Number of bytes that have arrived and have not been reported.
    moved: Arc<AtomicU64>,
    /// The process that began it.
    pid: u32,
}

impl Ahead {
    /// Starts a task that fetches the first chunk, and makes a link first if there is none.
    pub(super) fn start(engine: &Engine, mut fetch: Fetch) -> Result<Self, Error> {
        let moved = Arc::new(AtomicU64::new(0));
        let (mut tell, outcome) = oneshot::channel();
        let counted = Arc::clone(&moved);
        engine.spawn(async move {
            let mut chunk = Vec::new();
            let failure = tokio::select! {
                came = first_chunk(&mut fetch, &mut chunk, &counted) => came.err(),
                () = tell.closed() => return,
            };
            // It may not be wanted any more; its link ends with it then.
            drop(tell.send(Begun {
                chunk: chunk.into(),
                fetch,
                failure,
            }));
        })?;
        Ok(Self {
            outcome: Some(outcome),
            moved,
            pid: std::process::id(),
        })
    }

    /// Returns the beginning of the payload, once it is wanted. `None` if the fetch has to begin anew: it ended before it
    /// was wanted, and may succeed now.
    ///
    /// # Errors
    ///
    /// The error of the fetch, [`Error::Timeout`] when nothing moves for too long from now on, or the error of `progress`.
    pub(super) fn wait(
        mut self,
        engine: &Engine,
        origin: &StreamOrigin,
        timeout: Duration,
        progress: &mut Progress<'_>,
    ) -> Result<Option<Begun>, Error> {
        let Some(outcome) = &mut self.outcome else {
            return Ok(None);
        };
        let core = engine.core();
        let late = || core.timed_out(&[origin.rank], timeout);
        let mut eye = Eye::new(&core.stalls, origin.call, timeout);
        let mut is_wanted_first = true;
        loop {
            let limit = if is_wanted_first {
                Duration::ZERO
            } else {
                SLICE
            };
            let slice = engine.run(async { tokio::time::timeout(limit, &mut *outcome).await })?;
            let moved = self.moved.swap(0, Ordering::Relaxed);
            eye.saw(moved, || vec![origin.rank]);
            progress(moved)?;
            match slice {
                Ok(Ok(begun)) if is_wanted_first => return begun.unless_ended(),
                Ok(Ok(begun)) => return begun.failure.clone().map_or(Ok(Some(begun)), Err),
                Ok(Err(_)) => return Err(Error::closed()),
                Err(_) => eye.check(late)?,
            }
            is_wanted_first = false;
        }
    }
}

impl Begun {
    /// Returns it if the fetch can be continued.
    fn unless_ended(self) -> Result<Option<Self>, Error> {
        let goes_on = match (&self.failure, &self.fetch.link) {
            (Some(damaged @ Error::Corrupt { .. }), _) => return Err(damaged.clone()),
            (Some(_), _) => false,
            // All has arrived.
            (None, None) => true,
            (None, Some(link)) => !link.has_ended(),
        };
        Ok(goes_on.then_some(self))
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // The task that it would wake is the parent's.
        if self.pid != std::process::id() {
            mem::forget(self.outcome.take());
        }
    }
}

async fn first_chunk(
    fetch: &mut Fetch,
    chunk: &mut Vec<u8>,
    moved: &AtomicU64,
) -> Result<(), Error> {
    if fetch.link.is_none() {
        let (core, from) = (Arc::clone(fetch.core()), fetch.origin().rank);
        let link = settled_or(&core, from, dial(&core, from, Silent::Wait)).await?;
        fetch.link = Some(link);
    }
    let len = fetch.next_chunk_len().unwrap_or(0);
    *chunk = room(fetch.core(), fetch.origin().rank, len as u64)?;
    while fetch.verified() == 0 {
        let bytes = fetch.advance(1, chunk).await?;
        moved.fetch_add(bytes, Ordering::Relaxed);
    }
    fetch.end();
    Ok(())
}
