//! Receives from one neighbour in a ring: [`Inflow`].

use std::{
    io::{self, IoSlice},
    sync::Arc,
};

use fsgather_core::{CallId, Error, Rank};

use super::{
    TransferStep,
    attend::attend,
    core::Core,
    header::RECEIVED,
    host_memory::{HandOver, HostMemory},
    incoming::Incoming,
    link::Link,
};

/// The payloads that arrive from one neighbour in a ring.
pub(super) struct Inflow {
    core: Arc<Core>,
    call: CallId,
    from: Rank,
    /// Present once the neighbour has reached the call.
    link: Option<Link>,
    /// Indices of the incoming payloads, in the order in which they arrive; without empty ones.
    expected: Vec<usize>,
    /// Position in `expected` of the payload that is being received.
    at: usize,
    /// The hand-over before a payload, if payloads begin with one.
    hand_over: [u8; HandOver::LEN],
    heard: usize,
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
            hand_over: [0; HandOver::LEN],
            heard: 0,
        }
    }

    pub(super) const fn from(&self) -> Rank {
        self.from
    }

    /// The link, if there is one.
    pub(super) fn into_link(self) -> Option<Link> {
        self.link
    }

    /// Returns true if everything has arrived and has been verified.
    pub(super) fn is_complete(&self) -> bool {
        self.at == self.expected.len()
    }

    /// Receives data that has arrived, up to [`PIECE`](super::PIECE) bytes; `memory` is shared by members of this host.
    pub(super) fn step(
        &mut self,
        all: &mut [Incoming],
        memory: Option<&HostMemory<'_>>,
    ) -> Result<TransferStep, Error> {
        let expected = self.expected.get(self.at);
        let incoming = expected.and_then(|index| all.get_mut(*index));
        let (Some(incoming), Some(link)) = (incoming, &mut self.link) else {
            return Ok(TransferStep::Nothing);
        };
        let lost = |error| self.core.lost(self.from, error);
        let corrupt = |incoming: &Incoming, what: &dyn std::fmt::Display| {
            let reason = format!("{what} (handed on by rank {})", self.from);
            self.core.corrupt(incoming.origin().rank, reason)
        };
        let received = if incoming.is_untold() {
            let mut rest = &mut self.hand_over[self.heard..];
            let most = rest.len();
            let received = link.try_receive(&mut rest, most).map_err(lost)?;
            self.heard += received.unwrap_or(0);
            if self.heard == HandOver::LEN {
                self.heard = 0;
                let begun = match HandOver::from_bytes(&self.hand_over) {
                    Some(said) => incoming.begin(&self.core, self.call, said, memory)?,
                    None => None,
                };
                begun.ok_or_else(|| corrupt(incoming, &"it is not where it is said to be"))?;
            }
            received
        } else {
            let received = incoming.receive(link).map_err(lost)?;
            received.map_err(|fault| corrupt(incoming, &fault))?
        };
        if incoming.is_complete() {
            self.at += 1;
            if self.is_complete() {
                self.release_link();
            }
        }
        Ok(received.map_or(TransferStep::Blocked, TransferStep::Moved))
    }

    /// Confirms that everything was right, and lets the neighbour begin another transfer.
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
            crate::tcp::tasks::spawn(attend(Arc::clone(&self.core), link));
        }
    }

    /// Waits until something may have arrived; forever if nothing is expected.
    pub(super) async fn ready(&mut self) {
        if self.is_complete() {
            return std::future::pending().await;
        }
        match &self.link {
            Some(link) => {
                // An error shows when reading.
                let _ = link.readable().await;
            }
            None => self.link = Some(self.core.parked.take(self.call, self.from).await),
        }
    }
}
