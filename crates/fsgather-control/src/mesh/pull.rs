//! Fetches one payload from the rank that offers it: [`Pull`].

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use fsgather_core::{CallId, Error, Progress, Rank};

use super::{
    ahead::Ahead, engine::Engine, fetch::Fetch, incoming::room, stalls::Eye, stream::StreamOrigin,
};

/// A payload of another rank that is being fetched, in order.
///
/// Only the requested data is read from the link, so at most the data that the operating system buffers for one connection
/// is on its way, and the first 1 MiB if that is fetched [ahead](Self::ahead). Dropping it half-way ends the link, which
/// the other side notices.
///
/// Every byte handed out is in a chunk that has been verified; whether the payload is whole and the right one is known at
/// its end only.
pub struct Pull {
    engine: Arc<Engine>,
    fetch: Fetch,
    /// The fetch of the first chunk before it is wanted.
    ahead: Option<Ahead>,
    /// The first chunk if it was fetched so and has not been taken yet.
    held: Bytes,
    failure: Option<Error>,
    /// Time for which nothing may move.
    timeout: Duration,
}

impl Pull {
    pub(super) fn new(engine: Arc<Engine>, call: CallId, from: Rank, len: u64) -> Self {
        let core = engine.core();
        let origin = StreamOrigin {
            communicator: core.communicator(),
            call,
            rank: from,
            len,
            has_checksums: true,
        };
        let mut pull = Self {
            fetch: Fetch::new(Arc::clone(core), origin),
            ahead: None,
            held: Bytes::new(),
            failure: None,
            timeout: core.timeout,
            engine,
        };
        // Ask at once if that is possible without waiting, so that the payload is on its way when it is wanted. Errors show then.
        if len > 0 {
            pull.fetch.ask_at_once();
        }
        pull
    }

    /// Sets a time-out of the call's own.
    #[must_use]
    pub const fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Fetches a payload that is [offered without checksums](super::Mesh::offer_without_checksums). Must be called before
    /// anything is read.
    #[must_use]
    pub fn without_checksums(mut self) -> Self {
        self.fetch.leave_checksums_out();
        self
    }

    /// Fetches the first 1 MiB of the payload while the caller does something else, over a new link if there is none. So
    /// payloads of several ranks arrive at the same time, each of which holds that much memory. Must be called last.
    ///
    /// Errors before anything is read lead to another try then.
    ///
    /// # Errors
    ///
    /// Those of [`Mesh::pull`](super::Mesh::pull).
    pub fn ahead(mut self) -> Result<Self, Error> {
        if self.ahead.is_none() && self.fetch.next_chunk_len().is_some() {
            let anew = self.fetch.anew();
            let begun = std::mem::replace(&mut self.fetch, anew);
            self.ahead = Some(Ahead::start(&self.engine, begun)?);
        }
        Ok(self)
    }

    /// The rank that the payload comes from.
    #[must_use]
    pub const fn from(&self) -> Rank {
        self.fetch.origin().rank
    }

    /// Length of the whole payload in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is no collection")]
    pub const fn len(&self) -> u64 {
        self.fetch.origin().len
    }

    /// The next 1 MiB of the payload, or the rest of it; `None` at its end.
    ///
    /// `progress` is called with the number of bytes that have moved, at least every 100 ms; an error
    /// from it ends the fetch and is returned as it is.
    ///
    /// # Errors
    ///
    /// [`Error::Rendezvous`] when there is no way to that rank, [`Error::PeerFailed`] when it is lost, has
    /// withdrawn the payload or cannot read it, [`Error::Corrupt`] when something else arrived than what
    /// it sent, [`Error::Timeout`] when nothing moved for too long. The same again from then on.
    pub fn next_chunk(&mut self, progress: &mut Progress<'_>) -> Result<Option<Bytes>, Error> {
        self.take_up(progress)?;
        if !self.held.is_empty() {
            return Ok(Some(std::mem::take(&mut self.held)));
        }
        let Some(len) = self.fetch.next_chunk_len() else {
            return self.failure.clone().map_or(Ok(None), Err);
        };
        let mut chunk = Vec::with_capacity(len);
        self.receive_chunk(&mut chunk, progress)?;
        Ok(Some(chunk.into()))
    }

    /// The rest of the payload, in one piece.
    ///
    /// # Errors
    ///
    /// As [`next_chunk`](Self::next_chunk), and [`Error::Storage`] when there is no memory for it.
    pub fn read_to_end(mut self, progress: &mut Progress<'_>) -> Result<Vec<u8>, Error> {
        self.take_up(progress)?;
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() && self.fetch.next_chunk_len().is_none() {
            return Ok(held.into());
        }
        let origin = *self.fetch.origin();
        let rest = origin.len - origin.chunk(self.fetch.verified()).start + held.len() as u64;
        let mut payload = room(self.engine.core(), origin.rank, rest)?;
        payload.extend_from_slice(&held);
        drop(held);
        while self.fetch.next_chunk_len().is_some() {
            self.receive_chunk(&mut payload, progress)?;
        }
        Ok(payload)
    }

    /// Continues the fetch that was begun before it was wanted.
    fn take_up(&mut self, progress: &mut Progress<'_>) -> Result<(), Error> {
        let Some(ahead) = self.ahead.take() else {
            return Ok(());
        };
        let origin = *self.fetch.origin();
        let begun = ahead.wait(&self.engine, &origin, self.timeout, progress);
        let begun = begun.inspect_err(|failure| self.failure = Some(failure.clone()))?;
        if let Some(begun) = begun {
            self.held = begun.chunk;
            self.fetch = begun.fetch;
        }
        Ok(())
    }

    /// Appends the next chunk to `into`, once it is verified.
    fn receive_chunk(
        &mut self,
        into: &mut Vec<u8>,
        progress: &mut Progress<'_>,
    ) -> Result<(), Error> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.try_receive_chunk(into, progress)
            .inspect_err(|failure| {
                self.fetch.link = None;
                self.failure = Some(failure.clone());
            })
    }

    fn try_receive_chunk(
        &mut self,
        into: &mut Vec<u8>,
        progress: &mut Progress<'_>,
    ) -> Result<(), Error> {
        let engine = Arc::clone(&self.engine);
        let StreamOrigin {
            call, rank: from, ..
        } = *self.fetch.origin();
        let timeout = self.timeout;
        if self.fetch.link.is_none() {
            let link = engine.link_for(call, from, timeout, progress)?;
            self.fetch.link = Some(link);
        }
        let wanted = self.fetch.verified() + 1;
        let core = engine.core();
        let mut eye = Eye::new(&core.stalls, call, timeout);
        while self.fetch.verified() < wanted {
            let moved = engine.run(self.fetch.advance(wanted, into))??;
            eye.saw(moved, || vec![from]);
            progress(moved)?;
            eye.check(|| core.timed_out(&[from], timeout))?;
        }
        if self.fetch.end() {
            engine.leave_to_itself();
        }
        Ok(())
    }
}

impl fmt::Debug for Pull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pull")
            .field("call", &self.fetch.origin().call)
            .field("from", &self.from())
            .field("len", &self.len())
            .field("verified", &self.fetch.verified())
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}
