//! A payload of another member of a ring, as it arrives: [`Incoming`].

use std::io;

use fsgather_arena::{Filling, Following, Leased, Location};
use fsgather_core::{Activity, CallId, Error, Phase, Rank, StorageCause, room_for};

use super::{
    PIECE,
    core::Core,
    host_memory::{HandOver, HostMemory},
    link::Link,
    stream::{Fault, Receiving, StreamOrigin, Wanted},
};

/// A payload that has arrived through a ring.
#[derive(Debug)]
pub enum Passed {
    /// In memory of its own; empty for an empty payload, for this rank's own, and for one that ranks of this host have
    /// placed in shared memory.
    Bytes(Vec<u8>),
    /// In memory that members of the host share.
    Shared(Leased),
}

impl Passed {
    /// The payload in memory of its own, copied if it is shared.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Shared(leased) => leased.to_vec(),
        }
    }
}

/// The payload of another member.
pub(super) struct Incoming {
    /// Its rank's place in the group.
    pub(super) place: usize,
    origin: StreamOrigin,
    arriving: Arriving,
    /// Checksums of its chunks that have arrived whole, in their order.
    checksums: Vec<u64>,
    receiving: Receiving,
}

/// Destination of its bytes.
enum Arriving {
    /// Unknown until the member that hands it on announces it.
    Untold,
    /// Memory of this rank's own.
    Bytes(Vec<u8>),
    /// Memory of this rank that others of its host read.
    Filling(Filling),
    /// Memory of another rank of its host.
    Following(Rank, Location, Following),
}

impl Incoming {
    /// A payload that arrives as bytes, in memory of this host if there is `room` for it.
    pub(super) fn new(
        core: &Core,
        place: usize,
        origin: StreamOrigin,
        room: Option<Filling>,
    ) -> Result<Self, Error> {
        let arriving = match room {
            Some(filling) => Arriving::Filling(filling),
            None => Arriving::Bytes(self::room(core, origin.rank, origin.len)?),
        };
        let receiving = Receiving::new(origin);
        Ok(Self::arriving(place, origin, arriving, receiving))
    }

    /// A payload that arrives as a member of this host [announces](Self::begin).
    pub(super) fn untold(place: usize, origin: StreamOrigin) -> Self {
        Self::arriving(place, origin, Arriving::Untold, Receiving::new(origin))
    }

    const fn arriving(
        place: usize,
        origin: StreamOrigin,
        arriving: Arriving,
        receiving: Receiving,
    ) -> Self {
        Self {
            place,
            origin,
            arriving,
            checksums: Vec::new(),
            receiving,
        }
    }

    /// Returns true if its way has not been announced yet.
    pub(super) const fn is_untold(&self) -> bool {
        matches!(self.arriving, Arriving::Untold)
    }

    /// Sets its way; `None` if it is not at the announced place.
    pub(super) fn begin(
        &mut self,
        core: &Core,
        call: CallId,
        hand_over: HandOver,
        memory: Option<&HostMemory<'_>>,
    ) -> Result<Option<()>, Error> {
        self.arriving = match hand_over {
            HandOver::Bytes => Arriving::Bytes(room(core, self.origin.rank, self.origin.len)?),
            HandOver::InMemory { owner, location } => {
                let is_right = location.len() == self.origin.len;
                let memory = memory.filter(|_| is_right);
                let found = memory.and_then(|memory| memory.follow(owner, &location, call));
                let Some(found) = found else { return Ok(None) };
                self.receiving = Receiving::of_what_is_there(self.origin);
                Arriving::Following(owner, location, found)
            }
        };
        Ok(Some(()))
    }

    /// Way in which it is handed over to another member of this host, once that is known.
    pub(super) fn hand_over(&self, me: Rank) -> Option<HandOver> {
        let in_memory = |owner, location| HandOver::InMemory { owner, location };
        match &self.arriving {
            Arriving::Untold => None,
            Arriving::Bytes(_) => Some(HandOver::Bytes),
            Arriving::Filling(filling) => Some(in_memory(me, *filling.location())),
            Arriving::Following(owner, location, _) => Some(in_memory(*owner, *location)),
        }
    }

    pub(super) const fn origin(&self) -> StreamOrigin {
        self.origin
    }

    /// The bytes that have arrived, verified or not.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.arriving {
            Arriving::Untold => &[],
            Arriving::Bytes(bytes) => bytes,
            Arriving::Filling(filling) => filling.filled(),
            Arriving::Following(_, _, payload) => {
                let next = self.origin.chunk(self.receiving.verified());
                payload.beginning(next.start)
            }
        }
    }

    /// The checksum of a chunk, once that has been verified.
    pub(super) fn checksum(&self, chunk: u64) -> Option<u64> {
        let index = usize::try_from(chunk).ok()?;
        self.checksums.get(index).copied()
    }

    /// Returns true if all of it has arrived and is verified.
    pub(super) fn is_complete(&self) -> bool {
        self.receiving.wanted() == Wanted::Nothing
    }

    /// Receives data that has arrived, up to [`PIECE`] bytes, and returns the number of bytes, if any can be received now.
    pub(super) fn receive(&mut self, link: &mut Link) -> io::Result<Result<Option<usize>, Fault>> {
        Ok(match self.receiving.wanted() {
            Wanted::Chunk(rest) => Ok(self.receive_chunk(link, rest.min(PIECE))?),
            Wanted::Tail => {
                let chunk = self.origin.chunk(self.receiving.verified());
                let mut tail = self.receiving.tail();
                let most = tail.len();
                let received = link.try_receive(&mut tail, most)?;
                let verified = match self.receiving.took_tail(received.unwrap_or(0)) {
                    Ok(verified) => verified,
                    Err(fault) => return Ok(Err(fault)),
                };
                self.checksums.extend(verified);
                // Bytes that have come through memory have moved as well.
                let through_memory = match self.arriving {
                    Arriving::Following(..) if verified.is_some() => chunk.end - chunk.start,
                    _ => 0,
                };
                let through_memory = usize::try_from(through_memory).unwrap_or(0);
                Ok(received.map(|received| received + through_memory))
            }
            Wanted::Nothing => Ok(Some(0)),
        })
    }

    fn receive_chunk(&mut self, link: &mut Link, most: usize) -> io::Result<Option<usize>> {
        match &mut self.arriving {
            Arriving::Bytes(bytes) => {
                let before = bytes.len();
                let received = link.try_receive(bytes, most)?;
                self.receiving.took(&bytes[before..]);
                Ok(received)
            }
            Arriving::Filling(filling) => {
                let mut room = filling.room();
                let received = link.try_receive(&mut room, most)?;
                let came = received.unwrap_or(0);
                self.receiving.took(&filling.room()[..came]);
                filling.came(came);
                Ok(received)
            }
            // No bytes are wanted of a chunk that is there, or of a payload that is not announced.
            Arriving::Following(..) | Arriving::Untold => Ok(Some(0)),
        }
    }

    /// The payload itself; `None` if it has gone from shared memory, or has not arrived.
    pub(super) fn into_passed(
        self,
        core: &Core,
        memory: Option<&HostMemory<'_>>,
    ) -> Option<Passed> {
        Some(match self.arriving {
            Arriving::Untold => return None,
            Arriving::Bytes(bytes) => Passed::Bytes(bytes),
            Arriving::Filling(filling) => {
                let location = filling.location();
                Passed::Shared(memory?.lease(core.rank, location, self.origin.call)?)
            }
            Arriving::Following(_, _, payload) => Passed::Shared(payload.whole()),
        })
    }
}

/// Memory for a whole payload, which is not touched before bytes arrive.
pub(super) fn room(core: &Core, from: Rank, len: u64) -> Result<Vec<u8>, Error> {
    if let Some(room) = room_for(len) {
        return Ok(room);
    }
    let what = format!("the payload of rank {from}");
    let cause = StorageCause::described(format!("no memory for {len} bytes"));
    let doing = Activity::outside(Phase::Reading);
    Err(Error::storage("receive", what, cause).raised_by(&core.peer(core.rank), doing))
}
