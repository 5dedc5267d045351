//! Sends to the right neighbour in a ring: [`Outflow`].

use std::{io::IoSlice, sync::Arc};

use fsgather_core::{Error, Rank};

use super::{
    CallId, PIECE, TransferStep,
    core::Core,
    header::{Header, RECEIVED, TransferKind},
    inflow::Incoming,
    link::Link,
    stream::{Checksum, Sending, StreamOrigin},
};

/// What is sent, one after the other.
#[derive(Clone, Copy)]
pub(super) enum RingPayload {
    /// This rank's payload.
    Own(StreamOrigin),
    /// Another one's, by its index among what comes in.
    HandedOn(usize),
}

/// What has to happen before more can be done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaits {
    /// Bytes from the left neighbour, or nothing at all.
    Nothing,
    /// The neighbour has to take what was sent.
    Room,
    /// The neighbour has to say that everything was right.
    LastWord,
}

/// The sending side of a ring.
pub(super) struct Outflow<'a> {
    core: Arc<Core>,
    to: Rank,
    own: &'a [u8],
    /// Gone once it is not needed any more.
    link: Option<Link>,
    header: [u8; Header::LEN],
    /// How much of the header is sent.
    begun: usize,
    /// In the order in which they go; without empty ones.
    outgoing: Vec<RingPayload>,
    /// Which of them is being sent,
    at: usize,
    /// and how far.
    sending: Option<Sending>,
    awaits: Awaits,
}

impl<'a> Outflow<'a> {
    pub(super) fn new(
        core: Arc<Core>,
        call: CallId,
        to: Rank,
        own: &'a [u8],
        outgoing: Vec<RingPayload>,
    ) -> Self {
        let header = Header {
            kind: TransferKind::Ring,
            from: core.rank,
            call,
        };
        Self {
            core,
            to,
            own,
            link: None,
            header: header.to_bytes(),
            begun: 0,
            outgoing,
            at: 0,
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

    /// Does not wait any longer for the neighbour to say that everything was right. The link ends; what
    /// is on its way arrives all the same.
    pub(super) fn give_up_last_word(&mut self) {
        if self.awaits == Awaits::LastWord {
            self.link = None;
        }
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
            return self.hear_last_word();
        };
        let origin = match outgoing {
            RingPayload::Own(origin) => origin,
            RingPayload::HandedOn(index) => incoming[index].origin(),
        };
        let sending = self.sending.get_or_insert_with(|| Sending::new(origin));
        let Some(chunk) = sending.chunk() else {
            self.at += 1;
            self.sending = None;
            return Ok(TransferStep::Moved(0));
        };
        let (bytes, checksum) = match outgoing {
            RingPayload::Own(_) => (self.own, Checksum::Ours),
            RingPayload::HandedOn(index) => {
                let incoming = &incoming[index];
                let checksum = incoming.checksum(sending.index());
                (
                    incoming.bytes(),
                    checksum.map_or(Checksum::Awaited, Checksum::Given),
                )
            }
        };
        let parts = sending.next(part(bytes, chunk), checksum, PIECE);
        if parts.iter().all(|part| part.is_empty()) {
            return Ok(TransferStep::Nothing);
        }
        if let Some(sent) = link.try_send(&parts).map_err(lost)? {
            sending.sent(sent);
            Ok(TransferStep::Moved(sent))
        } else {
            self.awaits = Awaits::Room;
            Ok(TransferStep::Blocked)
        }
    }

    /// After the last byte.
    fn hear_last_word(&mut self) -> Result<TransferStep, Error> {
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
        let mut word = [0; 1];
        match link.try_receive(&mut word.as_mut_slice(), 1) {
            Ok(None) => {
                self.awaits = Awaits::LastWord;
                return Ok(TransferStep::Blocked);
            }
            Ok(Some(_)) if word == [RECEIVED] => {
                if let Some(link) = self.link.take() {
                    self.core.idle.put(link);
                }
            }
            // All we had to do is done; the neighbour's trouble is its own.
            Ok(Some(_)) | Err(_) => self.link = None,
        }
        Ok(TransferStep::Moved(0))
    }

    /// Waits until more may be sent; for ever when it does not depend on the neighbour.
    pub(super) async fn ready(&self) {
        // What is wrong shows when sending.
        match (&self.link, self.awaits) {
            (Some(link), Awaits::Room) => {
                let _ = link.writable().await;
            }
            (Some(link), Awaits::LastWord) => {
                let _ = link.readable().await;
            }
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
