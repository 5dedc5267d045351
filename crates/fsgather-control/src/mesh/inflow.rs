//! Receives from one neighbour in a ring: [`Inflow`].

use std::{
    io::{self, IoSlice},
    sync::Arc,
};

use fsgather_core::{Activity, Error, Phase, Rank, StorageCause, room_for};

use super::{
    CallId, PIECE, TransferStep,
    attend::attend,
    core::Core,
    header::RECEIVED,
    link::Link,
    stream::{Receiving, StreamOrigin, Wanted},
};

/// One payload of the others.
pub(super) struct Incoming {
    /// Its rank's place in the group.
    pub(super) place: usize,
    origin: StreamOrigin,
    /// What has arrived.
    bytes: Vec<u8>,
    /// Of its chunks that have arrived whole, as they came.
    checksums: Vec<u64>,
    receiving: Receiving,
}

impl Incoming {
    /// Makes room for a payload.
    pub(super) fn new(core: &Core, place: usize, origin: StreamOrigin) -> Result<Self, Error> {
        Ok(Self {
            place,
            origin,
            bytes: room(core, origin.rank, origin.len)?,
            checksums: Vec::new(),
            receiving: Receiving::new(origin),
        })
    }

    pub(super) const fn origin(&self) -> StreamOrigin {
        self.origin
    }

    /// What has arrived, verified or not.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The checksum of a chunk, once that has been verified.
    pub(super) fn checksum(&self, chunk: u64) -> Option<u64> {
        let index = usize::try_from(chunk).ok()?;
        self.checksums.get(index).copied()
    }

    /// The payload itself.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
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

/// What comes from one neighbour in a ring.
pub(super) struct Inflow {
    core: Arc<Core>,
    call: CallId,
    from: Rank,
    /// Once the neighbour has come to the call.
    link: Option<Link>,
    /// Which of all that comes in, in the order in which they come; without empty ones.
    expected: Vec<usize>,
    /// Which of them is being received.
    at: usize,
}

impl Inflow {
    pub(super) const fn new(
        core: Arc<Core>,
        call: CallId,
        from: Rank,
        expected: Vec<usize>,
    ) -> Self {
        Self {
            core,
            call,
            from,
            link: None,
            expected,
            at: 0,
        }
    }

    pub(super) const fn from(&self) -> Rank {
        self.from
    }

    /// The link, if there is one.
    pub(super) fn into_link(self) -> Option<Link> {
        self.link
    }

    /// Whether everything has arrived and is right.
    pub(super) fn is_complete(&self) -> bool {
        self.at == self.expected.len()
    }

    /// Receives what has arrived, up to [`PIECE`] bytes.
    pub(super) fn step(&mut self, all: &mut [Incoming]) -> Result<TransferStep, Error> {
        let expected = self.expected.get(self.at);
        let incoming = expected.and_then(|index| all.get_mut(*index));
        let (Some(incoming), Some(link)) = (incoming, &mut self.link) else {
            return Ok(TransferStep::Nothing);
        };
        let Incoming {
            origin,
            bytes,
            checksums,
            receiving,
            ..
        } = incoming;
        let lost = |error| self.core.lost(self.from, error);
        let received = match receiving.wanted() {
            Wanted::Chunk(rest) => {
                let before = bytes.len();
                let received = link.try_receive(bytes, rest.min(PIECE)).map_err(lost)?;
                receiving.took(&bytes[before..]);
                received
            }
            Wanted::Tail => {
                let mut tail = receiving.tail();
                let most = tail.len();
                let received = link.try_receive(&mut tail, most).map_err(lost)?;
                let verified = receiving
                    .took_tail(received.unwrap_or(0))
                    .map_err(|fault| {
                        let reason = format!("{fault} (handed on by rank {})", self.from);
                        self.core.corrupt(origin.rank, reason)
                    })?;
                checksums.extend(verified);
                received
            }
            Wanted::Nothing => Some(0),
        };
        if receiving.wanted() == Wanted::Nothing {
            self.at += 1;
            if self.is_complete() {
                self.release_link();
            }
        }
        Ok(received.map_or(TransferStep::Blocked, TransferStep::Moved))
    }

    /// Says that everything was right, and lets the neighbour begin another transfer.
    fn release_link(&mut self) {
        let Some(mut link) = self.link.take() else {
            return;
        };
        let mut say = || -> io::Result<bool> {
            let said = link.try_send(&[IoSlice::new(&[RECEIVED])])?;
            Ok(said.is_some() && link.try_flush()?)
        };
        // If that fails the neighbour makes another link next time.
        if matches!(say(), Ok(true)) {
            tokio::spawn(attend(Arc::clone(&self.core), link));
        }
    }

    /// Waits until something may have arrived; for ever when nothing is expected.
    pub(super) async fn ready(&mut self) {
        if self.is_complete() {
            return std::future::pending().await;
        }
        match &self.link {
            Some(link) => {
                // What is wrong shows when reading.
                let _ = link.readable().await;
            }
            None => self.link = Some(self.core.parked.take(self.call, self.from).await),
        }
    }
}
