//! Sends to one neighbour in a ring: [`Outflow`].

use std::{fmt, io::IoSlice, sync::Arc};

use fsgather_core::{CallId, Error, Rank};

use super::{
    PIECE, TransferStep,
    core::Core,
    header::{Header, TransferKind},
    host_memory::HandOver,
    incoming::Incoming,
    link::Link,
    stream::{Checksum, Sending, StreamOrigin},
};

/// A payload to send; they go one after the other.
#[derive(Clone, Copy)]
pub(super) enum RingPayload<'a> {
    /// A payload that is here: this rank's, or one that another rank of its host has placed.
    Here(StreamOrigin, &'a [u8]),
    /// A payload of another rank, by its index among the incoming ones.
    HandedOn(usize),
}

/// An event that has to happen before more can be sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaits {
    /// Bytes from other ranks, or nothing at all.
    Nothing,
    /// The neighbour has to take bytes that were sent.
    Room,
}

/// This rank's own payload on its way to a neighbour in a ring that may still not take place.
///
/// It holds only the link; dropping it ends that.
#[must_use = "what was sent is in vain when it is dropped"]
pub struct Begun {
    link: Link,
    /// Number of bytes of the header that were sent.
    header: usize,
    /// True if all of the payload was sent.
    is_sent: bool,
    /// Progress of the payload, if it is under way.
    sending: Option<Sending>,
}

impl Begun {
    /// The neighbour that it goes to.
    pub(super) const fn to(&self) -> Rank {
        self.link.peer
    }

    /// Returns true if its link still works: the network may have cut it meanwhile. If all has been sent, the neighbour may
    /// have confirmed it already.
    pub(super) fn is_fresh(&self) -> bool {
        self.link.is_fresh_or_heard(self.is_sent)
    }
}

impl fmt::Debug for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Begun")
            .field("to", &self.to())
            .finish_non_exhaustive()
    }
}

/// The payloads to one neighbour in a ring.
pub(super) struct Outflow<'a> {
    core: Arc<Core>,
    call: CallId,
    to: Rank,
    /// True if the neighbour shares memory with this rank, so that each payload begins with its way of transfer.
    hands_over: bool,
    /// Absent once it is not needed any more.
    link: Option<Link>,
    header: [u8; Header::LEN],
    /// Number of bytes of the header that were sent.
    begun: usize,
    /// The payloads in the order in which they go; without empty ones.
    outgoing: Vec<RingPayload<'a>>,
    /// Index of the payload that is being sent.
    at: usize,
    /// Number of bytes sent of its way of transfer.
    said: usize,
    /// Progress of the payload itself.
    sending: Option<Sending>,
    awaits: Awaits,
}

impl<'a> Outflow<'a> {
    pub(super) fn new(
        core: Arc<Core>,
        call: CallId,
        to: Rank,
        hands_over: bool,
        outgoing: Vec<RingPayload<'a>>,
    ) -> Self {
        let header = Header {
            kind: TransferKind::Ring,
            from: core.rank,
            call,
        };
        Self {
            core,
            call,
            to,
            hands_over,
            link: None,
            header: header.to_bytes(),
            begun: 0,
            outgoing,
            at: 0,
            said: 0,
            sending: None,
            awaits: Awaits::Nothing,
        }
    }

    pub(super) const fn to(&self) -> Rank {
        self.to
    }

    /// Returns true if a link is needed that is not there.
    pub(super) fn lacks_link(&self) -> bool {
        self.link.is_none() && !self.is_sent()
    }

    pub(super) fn send_over(&mut self, link: Link) {
        self.link = Some(link);
    }

    /// Continues `begun`, which is the first payload to send.
    pub(super) fn go_on(&mut self, begun: Begun) {
        self.link = Some(begun.link);
        self.begun = begun.header;
        self.at = usize::from(begun.is_sent);
        self.sending = begun.sending;
    }

    /// Sends what can be sent without waiting; `None` if the link has ended.
    pub(super) fn begin(mut self) -> Option<Begun> {
        while !self.is_sent() {
            match self.step(&[]).ok()? {
                TransferStep::Moved(_) => {}
                TransferStep::Blocked | TransferStep::Nothing => break,
            }
        }
        let is_sent = self.is_sent();
        let mut link = self.link?;
        link.try_flush().ok()?;
        Some(Begun {
            link,
            header: self.begun,
            is_sent,
            sending: self.sending,
        })
    }

    /// The link, if there is one.
    pub(super) fn into_link(self) -> Option<Link> {
        self.link
    }

    /// Returns true if everything has been sent.
    pub(super) fn is_sent(&self) -> bool {
        self.at == self.outgoing.len()
    }

    /// Returns true if nothing is left to do.
    pub(super) fn is_complete(&self) -> bool {
        self.is_sent() && self.link.is_none()
    }

    /// Returns true if the neighbour has to take bytes before more can be sent.
    pub(super) fn awaits_room(&self) -> bool {
        self.awaits == Awaits::Room
    }

    /// Sends up to [`PIECE`] bytes of the data that is here.
    pub(super) fn step(&mut self, incoming: &[Incoming]) -> Result<TransferStep, Error> {
        self.awaits = Awaits::Nothing;
        let Some(link) = &mut self.link else {
            return Ok(TransferStep::Nothing);
        };
        let lost = |error| self.core.lost(self.to, error);
        if self.begun < Header::LEN {
            let rest = IoSlice::new(&self.header[self.begun..]);
            let Some(sent) = link.try_send(&[rest]).map_err(lost)? else {
                self.awaits = Awaits::Room;
                return Ok(TransferStep::Blocked);
            };
            self.begun += sent;
            return Ok(TransferStep::Moved(sent));
        }
        let Some(&outgoing) = self.outgoing.get(self.at) else {
            return self.release_link();
        };
        let (origin, hand_over) = match outgoing {
            RingPayload::Here(origin, _) => (origin, Some(HandOver::Bytes)),
            RingPayload::HandedOn(index) => {
                let incoming = &incoming[index];
                (incoming.origin(), incoming.hand_over(self.core.rank))
            }
        };
        if self.hands_over && self.said < HandOver::LEN {
            let Some(hand_over) = hand_over else {
                return Ok(TransferStep::Nothing);
            };
            let rest = &hand_over.to_bytes()[self.said..];
            let Some(sent) = link.try_send(&[IoSlice::new(rest)]).map_err(lost)? else {
                self.awaits = Awaits::Room;
                return Ok(TransferStep::Blocked);
            };
            self.said += sent;
            return Ok(TransferStep::Moved(sent));
        }
        let is_there = self.hands_over && matches!(hand_over, Some(HandOver::InMemory { .. }));
        let sending = self.sending.get_or_insert_with(|| {
            if is_there {
                Sending::of_what_is_there(origin)
            } else {
                Sending::new(origin)
            }
        });
        let Some(chunk) = sending.chunk() else {
            self.at += 1;
            self.said = 0;
            self.sending = None;
            return Ok(TransferStep::Moved(0));
        };
        let (bytes, checksum) = match outgoing {
            RingPayload::Here(_, bytes) => (bytes, Checksum::Ours),
            RingPayload::HandedOn(index) => {
                let incoming = &incoming[index];
                let checksum = incoming.checksum(sending.index());
                (
                    incoming.bytes(),
                    checksum.map_or(Checksum::Awaited, Checksum::Given),
                )
            }
        };
        let len = chunk.end - chunk.start;
        let parts = sending.next(part(bytes, chunk), checksum, PIECE);
        if parts.iter().all(|part| part.is_empty()) {
            return Ok(TransferStep::Nothing);
        }
        if let Some(sent) = link.try_send(&parts).map_err(lost)? {
            let before = sending.index();
            sending.sent(sent);
            // Bytes that go through memory have moved as well.
            let through_memory = if sending.is_there() && sending.index() > before {
                usize::try_from(len).unwrap_or(0)
            } else {
                0
            };
            Ok(TransferStep::Moved(sent + through_memory))
        } else {
            self.awaits = Awaits::Room;
            Ok(TransferStep::Blocked)
        }
    }

    /// Releases the link after the last byte. The neighbour confirms later that it has everything; no thread waits for
    /// that, since only the reuse of the link depends on it.
    fn release_link(&mut self) -> Result<TransferStep, Error> {
        let Some(link) = &mut self.link else {
            return Ok(TransferStep::Nothing);
        };
        let flushed = link
            .try_flush()
            .map_err(|error| self.core.lost(self.to, error))?;
        if !flushed {
            self.awaits = Awaits::Room;
            return Ok(TransferStep::Blocked);
        }
        // Confirmations of earlier transfers need not stay in the socket.
        let works = link.try_settle().is_ok();
        if let Some(mut link) = self.link.take().filter(|_| works) {
            link.expect_word(self.call.channel);
            self.core.idle.put(link);
        }
        Ok(TransferStep::Moved(0))
    }

    /// Waits until more may be sent; forever if that does not depend on the neighbour.
    pub(super) async fn ready(&self) {
        match (&self.link, self.awaits) {
            // An error shows when sending.
            (Some(link), Awaits::Room) => drop(link.writable().await),
            _ => std::future::pending().await,
        }
    }
}

/// The part of a chunk that is there.
fn part(bytes: &[u8], chunk: std::ops::Range<u64>) -> &[u8] {
    let start = usize::try_from(chunk.start).unwrap_or(usize::MAX);
    let end = usize::try_from(chunk.end).unwrap_or(usize::MAX);
    bytes.get(start..end.min(bytes.len())).unwrap_or_default()
}
