//! One payload that arrives over a link: [`Fetch`].

use std::{
    io::{self, IoSlice},
    sync::Arc,
};

use fsgather_core::{Error, PeerFailure, Rank};

use crate::tcp::connection::HANDSHAKE_LIMIT;

use super::{
    PIECE, REPORT, SLICE, TransferStep,
    core::Core,
    header::{Header, Reply, TransferKind},
    link::Link,
    stream::{Fault, Receiving, StreamOrigin, Wanted},
};

/// The progress of a payload of another rank, and the link that it arrives over. The caller decides where the bytes go, and
/// how long to wait.
pub(super) struct Fetch {
    core: Arc<Core>,
    from: Rank,
    origin: StreamOrigin,
    receiving: Receiving,
    /// Absent once it is not needed any more.
    pub(super) link: Option<Link>,
    /// Number of bytes of the header that were sent, and the received part of the reply.
    asked: usize,
    reply: [u8; Reply::LEN],
    answered: usize,
}

impl Fetch {
    /// A fetch of which nothing has arrived, without a link.
    pub(super) fn new(core: Arc<Core>, origin: StreamOrigin) -> Self {
        Self {
            core,
            from: origin.rank,
            origin,
            receiving: Receiving::new(origin),
            link: None,
            asked: 0,
            reply: [0; Reply::LEN],
            answered: 0,
        }
    }

    pub(super) const fn origin(&self) -> &StreamOrigin {
        &self.origin
    }

    pub(super) const fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Number of chunks that have arrived and are verified.
    pub(super) const fn verified(&self) -> u64 {
        self.receiving.verified()
    }

    /// Length of the next chunk, if there is one more.
    pub(super) fn next_chunk_len(&self) -> Option<usize> {
        self.receiving.next_chunk_len()
    }

    /// The same payload, of which nothing has arrived.
    pub(super) fn anew(&self) -> Self {
        Self::new(Arc::clone(&self.core), self.origin)
    }

    /// Expects a payload without checksums; must be called before anything has arrived.
    pub(super) fn leave_checksums_out(&mut self) {
        self.origin.has_checksums = false;
        self.receiving = Receiving::new(self.origin);
    }

    /// Takes a link that a transfer can begin on at once, if there is one, and asks for the payload.
    pub(super) fn ask_at_once(&mut self) {
        self.link = self
            .core
            .idle
            .take(self.from, Some(self.origin.call.channel));
        if self.try_ask().is_err() {
            self.link = None;
            self.asked = 0;
        }
    }

    /// Keeps the link for other transfers once all has arrived over it, and returns true if it has.
    pub(super) fn end(&mut self) -> bool {
        if self.receiving.wanted() != Wanted::Nothing {
            return false;
        }
        if let Some(link) = self.link.take() {
            self.core.idle.put(link);
        }
        true
    }

    /// Receives until `wanted` chunks are there, there is enough for a report, or [`SLICE`] is over, and returns the number of bytes.
    pub(super) async fn advance(&mut self, wanted: u64, into: &mut Vec<u8>) -> Result<u64, Error> {
        let until = tokio::time::Instant::now() + SLICE;
        let mut moved = 0;
        while self.receiving.verified() < wanted && moved < REPORT {
            let sent = self
                .try_ask()
                .map_err(|error| self.core.lost(self.from, error))?;
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

    /// Sends the header, as far as the link takes it, and returns true if it is sent.
    pub(super) fn try_ask(&mut self) -> io::Result<bool> {
        let header = Header {
            kind: TransferKind::Pull,
            from: self.core.rank,
            call: self.origin.call,
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

    /// Receives the part of the reply that has arrived.
    fn hear_reply(&mut self) -> Result<TransferStep, Error> {
        let core = &self.core;
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
        let core = Arc::clone(&self.core);
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
        // Nothing follows, so the link can still be used.
        if let Some(link) = self.link.take() {
            core.idle.put(link);
        }
        Err(core.failed(self.from, PeerFailure::Raised { message }))
    }

    /// Receives data of the payload that has arrived, up to [`PIECE`] bytes.
    async fn receive(&mut self, into: &mut Vec<u8>) -> Result<TransferStep, Error> {
        let core = &self.core;
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

/// The reason why the other side cannot continue.
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
