//! Fetching one payload from where it is offered: [`Pull`].

use std::{
    fmt,
    io::{self, IoSlice},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use fsgather_core::{Error, PeerFailure, Progress, Rank};

use crate::tcp::connection::HANDSHAKE_LIMIT;

use super::{
    CallId, PIECE, REPORT, SLICE, TransferStep,
    engine::Engine,
    header::{Header, Reply, TransferKind},
    inflow::room,
    link::Link,
    stalls::Eye,
    stream::{Fault, Receiving, StreamOrigin, Wanted},
};

/// A payload of another rank that is being fetched, in order.
///
/// Only what was asked for is read from the link, so at most what the operating system keeps for one
/// connection is on its way. Dropping it half-way ends the link, and tells the other side so.
///
/// Every byte handed out lies in a chunk that has been verified; whether the payload is whole and the
/// right one is known at its end only.
pub struct Pull {
    engine: Arc<Engine>,
    call: CallId,
    from: Rank,
    origin: StreamOrigin,
    receiving: Receiving,
    /// Gone once it is not needed any more.
    link: Option<Link>,
    /// How much of the header is sent, and how much of the reply has come.
    asked: usize,
    reply: [u8; Reply::LEN],
    answered: usize,
    failure: Option<Error>,
    /// How long nothing may move.
    timeout: Duration,
}

impl Pull {
    pub(super) fn new(engine: Arc<Engine>, call: CallId, from: Rank, len: u64) -> Self {
        let origin = StreamOrigin {
            communicator: engine.core().communicator(),
            call,
            rank: from,
            len,
            has_checksums: true,
        };
        let mut pull = Self {
            call,
            from,
            origin,
            receiving: Receiving::new(origin),
            link: None,
            asked: 0,
            reply: [0; Reply::LEN],
            answered: 0,
            failure: None,
            timeout: engine.core().timeout,
            engine,
        };
        // Ask at once if that is possible without waiting, so that the payload is on its way when it is
        // wanted. What goes wrong shows then.
        if len > 0 {
            pull.link = pull.engine.core().idle.take(from, Some(call.channel));
            if pull.try_ask().is_err() {
                pull.link = None;
                pull.asked = 0;
            }
        }
        pull
    }

    /// The same for a call with a time-out of its own.
    #[must_use]
    pub const fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The same of a payload that is [offered without checksums](super::Mesh::offer_without_checksums). To be said
    /// before anything is read.
    #[must_use]
    pub fn without_checksums(mut self) -> Self {
        self.origin.has_checksums = false;
        self.receiving = Receiving::new(self.origin);
        self
    }

    /// Whose payload it is.
    #[must_use]
    pub const fn from(&self) -> Rank {
        self.from
    }

    /// How long the whole payload is, in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is no collection")]
    pub const fn len(&self) -> u64 {
        self.origin.len
    }

    /// The next 1 MiB of the payload, or what is left of it; nothing at its end.
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
        let Some(len) = self.receiving.next_chunk_len() else {
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
        let handed_out = self.origin.chunk(self.receiving.verified()).start;
        let rest = StreamOrigin {
            len: self.origin.len - handed_out,
            ..self.origin
        };
        let mut payload = room(self.engine.core(), rest)?;
        while self.receiving.next_chunk_len().is_some() {
            self.receive_chunk(&mut payload, progress)?;
        }
        Ok(payload)
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
                self.link = None;
                self.failure = Some(failure.clone());
            })
    }

    fn try_receive_chunk(
        &mut self,
        into: &mut Vec<u8>,
        progress: &mut Progress<'_>,
    ) -> Result<(), Error> {
        let engine = Arc::clone(&self.engine);
        if self.link.is_none() {
            let link = engine.link_for(self.call, self.from, self.timeout, progress)?;
            self.link = Some(link);
        }
        let wanted = self.receiving.verified() + 1;
        let core = engine.core();
        let (call, from, timeout) = (self.call, self.from, self.timeout);
        let mut eye = Eye::new(&core.stalls, call, timeout);
        while self.receiving.verified() < wanted {
            let moved = engine.run(self.advance(wanted, into))??;
            eye.saw(moved, || vec![from]);
            progress(moved)?;
            eye.check(|| core.timed_out(&[from], timeout))?;
        }
        if self.receiving.wanted() == Wanted::Nothing
            && let Some(link) = self.link.take()
        {
            engine.core().idle.put(link);
            engine.leave_to_itself();
        }
        Ok(())
    }

    /// Receives until so many chunks are there, there is enough for a report, or [`SLICE`] is over; how
    /// many bytes.
    async fn advance(&mut self, wanted: u64, into: &mut Vec<u8>) -> Result<u64, Error> {
        let until = tokio::time::Instant::now() + SLICE;
        let mut moved = 0;
        while self.receiving.verified() < wanted && moved < REPORT {
            let sent = self
                .try_ask()
                .map_err(|error| self.engine.core().lost(self.from, error))?;
            let Some(link) = &mut self.link else {
                break;
            };
            if !sent {
                if tokio::time::timeout_at(until, link.writable())
                    .await
                    .is_err()
                {
                    return Ok(moved);
                }
                continue;
            }
            let step = if self.answered < Reply::LEN {
                self.hear_reply()?
            } else {
                self.receive(into).await?
            };
            moved += step.bytes();
            if step == TransferStep::Blocked
                && let Some(link) = &self.link
                && tokio::time::timeout_at(until, link.readable())
                    .await
                    .is_err()
            {
                return Ok(moved);
            }
        }
        if moved >= REPORT {
            tokio::task::yield_now().await;
        }
        Ok(moved)
    }

    /// Sends the header, as far as the link takes it; whether it is sent.
    fn try_ask(&mut self) -> io::Result<bool> {
        let header = Header {
            kind: TransferKind::Pull,
            from: self.engine.core().rank,
            call: self.call,
        };
        let Some(link) = &mut self.link else {
            return Ok(false);
        };
        let bytes = header.to_bytes();
        while self.asked < bytes.len() {
            match link.try_send(&[IoSlice::new(&bytes[self.asked..])])? {
                Some(sent) => self.asked += sent,
                None => return Ok(false),
            }
        }
        link.try_flush()
    }

    /// Receives what has come of the reply.
    fn hear_reply(&mut self) -> Result<TransferStep, Error> {
        let core = self.engine.core();
        let Some(link) = &mut self.link else {
            return Ok(TransferStep::Nothing);
        };
        let mut rest = &mut self.reply[self.answered..];
        let most = rest.len();
        let received = link
            .try_receive(&mut rest, most)
            .map_err(|error| core.lost(self.from, error))?;
        self.answered += received.unwrap_or(0);
        if self.answered == Reply::LEN {
            self.heed_reply()?;
        }
        Ok(received.map_or(TransferStep::Blocked, TransferStep::Moved))
    }

    fn heed_reply(&mut self) -> Result<(), Error> {
        let core = Arc::clone(self.engine.core());
        let len = self.origin.len;
        let message = match Reply::from_bytes(self.reply) {
            Some(Reply::Follows(theirs)) if theirs == len => return Ok(()),
            Some(Reply::Follows(theirs)) => {
                let reason = format!("{len} bytes were announced, {theirs} are offered");
                return Err(core.corrupt(self.from, reason));
            }
            Some(Reply::Withdrawn) => "it has withdrawn its payload".into(),
            None => return Err(core.lost_because(self.from, "it sent a reply that is none")),
        };
        // Nothing follows, so the link is as good as before.
        if let Some(link) = self.link.take() {
            core.idle.put(link);
        }
        Err(core.failed(self.from, PeerFailure::Raised { message }))
    }

    /// Receives what has come of the payload, up to [`PIECE`] bytes.
    async fn receive(&mut self, into: &mut Vec<u8>) -> Result<TransferStep, Error> {
        let core = self.engine.core();
        let Some(link) = &mut self.link else {
            return Ok(TransferStep::Nothing);
        };
        let lost = |error| core.lost(self.from, error);
        let received = match self.receiving.wanted() {
            Wanted::Chunk(rest) => {
                let before = into.len();
                let received = link.try_receive(into, rest.min(PIECE)).map_err(lost)?;
                self.receiving.took(&into[before..]);
                received
            }
            Wanted::Tail => {
                let mut tail = self.receiving.tail();
                let most = tail.len();
                let received = link.try_receive(&mut tail, most).map_err(lost)?;
                match self.receiving.took_tail(received.unwrap_or(0)) {
                    Ok(_) => {}
                    Err(Fault::Complaint) => {
                        let message = complaint(link).await;
                        return Err(core.failed(self.from, PeerFailure::Raised { message }));
                    }
                    Err(fault) => {
                        return Err(core.corrupt(self.from, fault.to_string()));
                    }
                }
                received
            }
            Wanted::Nothing => Some(0),
        };
        Ok(received.map_or(TransferStep::Blocked, TransferStep::Moved))
    }
}

/// Why the other side cannot go on.
async fn complaint(link: &mut Link) -> String {
    let heard = async {
        let mut len = [0; 2];
        link.receive(&mut len).await?;
        let mut text = vec![0; usize::from(u16::from_le_bytes(len))];
        link.receive(&mut text).await?;
        io::Result::Ok(String::from_utf8_lossy(&text).into_owned())
    };
    let heard = tokio::time::timeout(HANDSHAKE_LIMIT, heard).await;
    let why = heard.ok().and_then(Result::ok);
    format!(
        "it cannot read its payload to the end: {}",
        why.as_deref().unwrap_or("it did not say why")
    )
}

impl fmt::Debug for Pull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pull")
            .field("call", &self.call)
            .field("from", &self.from)
            .field("len", &self.origin.len)
            .field("verified", &self.receiving.verified())
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}
