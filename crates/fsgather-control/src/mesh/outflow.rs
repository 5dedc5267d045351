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

/// What is sent, one after the other.
#[derive(Clone, Copy)]
pub(super) enum RingPayload<'a> {
    /// One that is here: this rank's, or one that another rank of its host has placed.
    Here(StreamOrigin, &'a [u8]),
    /// Another one's, by its index among what comes in.
    HandedOn(usize),
}

/// What has to happen before more can be done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaits {
    /// Bytes that others send, or nothing at all.
    Nothing,
    /// The neighbour has to take what was sent.
    Room,
}

/// This rank's own payload on its way to a neighbour in a ring of which it is not decided yet whether it will turn.
///
/// It holds nothing but the link; dropping it ends that.
#[must_use = "what was sent is in vain when it is dropped"]
pub struct Begun {
    link: Link,
    /// Part of the header that is sent,
    header: usize,
    /// whether all of the payload is,
    is_sent: bool,
    /// and how far it is otherwise.
    sending: Option<Sending>,
}

impl Begun {
    /// To whom it goes.
    pub(super) const fn to(&self) -> Rank {
        self.link.peer
    }

    /// Whether its link still works: the network may have cut it meanwhile. Where all has been sent, the neighbour may have
    /// said that it has got it.
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

/// What goes to one neighbour in a ring.
pub(super) struct Outflow<'a> {
    core: Arc<Core>,
    call: CallId,
    to: Rank,
    /// Whether the neighbour shares memory with this rank, so that each payload begins with how it goes on.
    hands_over: bool,
    /// Gone once it is not needed any more.
    link: Option<Link>,
    header: [u8; Header::LEN],
    /// Part of the header that is sent.
    begun: usize,
    /// In the order in which they go; without empty ones.
    outgoing: Vec<RingPayload<'a>>,
    /// Which of them is being sent,
    at: usize,
    /// how much of what is said of it before,
    said: usize,
    /// and how far it is itself.
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

    /// Whether a link is needed that is not there.
    pub(super) fn lacks_link(&self) -> bool {
        self.link.is_none() && !self.is_sent()
    }

    pub(super) fn send_over(&mut self, link: Link) {
        self.link = Some(link);
    }

    /// Goes on with what was begun before, which is the first that is to be sent.
    pub(super) fn go_on(&mut self, begun: Begun) {
        self.link = Some(begun.link);
        self.begun = begun.header;
        self.at = usize::from(begun.is_sent);
        self.sending = begun.sending;
    }

    /// Sends what can be sent without waiting; nothing if the link has ended.
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

    /// Whether everything has been sent.
    pub(super) fn is_sent(&self) -> bool {
        self.at == self.outgoing.len()
    }

    /// Whether nothing more is to be done.
    pub(super) fn is_complete(&self) -> bool {
        self.is_sent() && self.link.is_none()
    }

    /// Whether the neighbour has to take what was sent before more can be.
    pub(super) fn awaits_room(&self) -> bool {
        self.awaits == Awaits::Room
    }

    /// Sends up to [`PIECE`] bytes of what has come.
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
            // What goes through memory moves as well.
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

    /// After the last byte. That the neighbour has got everything it says when it has; nobody waits for that, since only
    /// whether the link can be used again depends on it.
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
        // What has come of earlier words need not lie in the socket.
        let works = link.try_settle().is_ok();
        if let Some(mut link) = self.link.take().filter(|_| works) {
            link.expect_word(self.call.channel);
            self.core.idle.put(link);
        }
        Ok(TransferStep::Moved(0))
    }

    /// Waits until more may be sent; for ever when it does not depend on the neighbour.
    pub(super) async fn ready(&self) {
        match (&self.link, self.awaits) {
            // What is wrong shows when sending.
            (Some(link), Awaits::Room) => drop(link.writable().await),
            _ => std::future::pending().await,
        }
    }
}

/// As much of a chunk as is there.
fn part(bytes: &[u8], chunk: std::ops::Range<u64>) -> &[u8] {
    let start = usize::try_from(chunk.start).unwrap_or(usize::MAX);
    let end = usize::try_from(chunk.end).unwrap_or(usize::MAX);
    bytes.get(start..end.min(bytes.len())).unwrap_or_default()
}
