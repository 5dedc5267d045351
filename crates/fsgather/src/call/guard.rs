//! One collective call from its number to its end: [`CallGuard`].

use std::{
    cell::Cell,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fsgather_core::{
    Call, CallEvent, Contribution, Error, Phase, Rank, Received, Round, Ticket, Verdict,
};

use crate::{
    group_state::GroupState,
    payload::{header::PayloadHeader, stream::OwnMoved},
};

/// Time for which nothing may move in a ring once the communicator has failed.
const LAST_BYTES: Duration = Duration::from_secs(3);

/// A call that has been numbered. If it is dropped unfinished, by a panic in the user's code or an
/// early return, the call fails on all ranks instead of leaving them waiting.
pub(crate) struct CallGuard {
    pub(crate) inner: Arc<GroupState>,
    pub(crate) ticket: Ticket,
    phase: Cell<Phase>,
    /// True if the owners of payloads wait for the message that this rank needs them no more.
    acknowledge: Cell<bool>,
    finished: Cell<bool>,
}

/// Records that bytes of a decided call have been read.
///
/// A failure of another rank is returned by the next call, because the payloads of a decided call can still be read.
/// Only an interrupt of this rank ends the reading.
pub(crate) fn record_read(inner: &GroupState, ticket: &Ticket, bytes: u64) -> Result<(), Error> {
    inner.world.observe(ticket, CallEvent::Moved { bytes });
    match inner.progress(ticket, Phase::Reading, bytes) {
        Err(failure) if inner.world.interrupt.reason().is_some() => Err(failure),
        _ => Ok(()),
    }
}

impl CallGuard {
    /// Numbers a call.
    pub(crate) fn begin(inner: &Arc<GroupState>, call: Call) -> Result<Self, Error> {
        let begun = inner.exchange.begin(call);
        let ticket = begun.inspect_err(|failure| inner.world.record_failure(failure))?;
        let ranks = inner.exchange.world_size().get();
        inner.world.observe(
            &ticket,
            CallEvent::Begun {
                ranks,
                waits: false,
            },
        );
        Ok(Self {
            ticket,
            inner: Arc::clone(inner),
            phase: Cell::new(Phase::Publishing),
            acknowledge: Cell::new(false),
            finished: Cell::new(false),
        })
    }

    /// Records that bytes have moved in the current phase. Returns an error if this rank must stop.
    pub(crate) fn moved(&self, bytes: u64) -> Result<(), Error> {
        match self.phase.get() {
            Phase::Reading => record_read(&self.inner, &self.ticket, bytes),
            phase => {
                self.observe(CallEvent::Moved { bytes });
                self.inner.progress(&self.ticket, phase, bytes)
            }
        }
    }

    /// Sends the next step of this rank to the others at once before a step that may take long, so that they know it if
    /// this rank is lost meanwhile. Waking a thread for that costs more than a short call.
    pub(crate) fn set_about(&self) -> Result<(), Error> {
        self.moved(0)?;
        self.inner.exchange.send_on();
        Ok(())
    }

    /// Records that more of this rank's input has arrived, so that the rank does not count as late. The bytes are
    /// counted elsewhere.
    pub(crate) fn came(&self, bytes: u64) -> Result<(), Error> {
        self.inner.progress(&self.ticket, self.phase.get(), bytes)
    }

    /// Records an event, for the observer.
    pub(crate) fn observe(&self, event: CallEvent<'_>) {
        self.inner.world.observe(&self.ticket, event);
    }

    /// Returns a function that records bytes moved in a ring, which all members must keep turning.
    ///
    /// After a failure the ring continues as long as bytes move, because they may be all that this rank lacks. If no
    /// more bytes arrive, it ends although the call was decided: the link on which it waits may never be made. A ring
    /// that stood still before the failure, or with the whole job, gets the same time.
    pub(crate) fn turning(&self) -> impl FnMut(u64) -> Result<(), Error> + '_ {
        let mut over_at = None;
        move |bytes| {
            // The sent bytes equal the received bytes.
            self.observe(CallEvent::Moved { bytes: bytes / 2 });
            let noted = self.inner.progress(&self.ticket, self.phase.get(), bytes);
            let Err(failure) = noted else { return Ok(()) };
            if self.inner.world.interrupt.reason().is_some() {
                return Err(failure);
            }
            let now = Instant::now();
            if bytes > 0 {
                over_at = None;
            }
            if now >= *over_at.get_or_insert(now + LAST_BYTES) {
                return Err(failure);
            }
            Ok(())
        }
    }

    /// Returns a function that records read bytes, independent of the guard.
    pub(crate) fn moving(&self) -> OwnMoved {
        let inner = Arc::clone(&self.inner);
        let ticket = self.ticket.clone();
        Box::new(move |bytes| record_read(&inner, &ticket, bytes))
    }

    /// Hands in this rank's contribution; `len` is the length of its payload, in bytes.
    pub(crate) fn contribute(&self, contribution: Contribution, len: u64) -> Result<(), Error> {
        let route = PayloadHeader::route(&contribution.body);
        self.inner
            .exchange
            .contribute(&self.ticket, Round::VERDICT, contribution)
            .map_err(|failure| self.over(failure))?;
        self.phase.set(Phase::Waiting);
        self.observe(CallEvent::HandedIn { bytes: len, route });
        Ok(())
    }

    /// Waits for the verdict, for `limit` at most.
    pub(crate) fn verdict(&self, limit: Option<Duration>) -> Result<Option<Verdict>, Error> {
        let verdict = self
            .inner
            .exchange
            .wait_for(&self.ticket, Round::VERDICT, limit)
            .map_err(|failure| self.over(failure))?;
        if let Some(verdict) = &verdict {
            let table = verdict.table.as_ref();
            let acknowledge = table.is_some_and(|table| table.acknowledge);
            self.acknowledge.set(acknowledge);
            self.phase.set(Phase::Reading);
            let received = table.map(|table| || received(&self.inner, &table.bodies));
            self.observe(CallEvent::Decided {
                last: verdict.last,
                received: received
                    .as_ref()
                    .map(|compute| compute as &dyn Fn() -> Received),
            });
        }
        Ok(verdict)
    }

    /// Gives up the data that this rank would receive: the call continues without it.
    pub(crate) fn abandon(&self) {
        if !self.finished.replace(true) {
            self.inner.exchange.abandon(&self.ticket);
            self.observe(CallEvent::GivenUp);
        }
    }

    /// Ends the call with a failure of this rank. Returns the error that all ranks agree on.
    pub(crate) fn fail(&self, cause: Error) -> Error {
        if self.finished.replace(true) {
            return cause;
        }
        let exchange = &self.inner.exchange;
        let failure = exchange.fail(&self.ticket, self.phase.get(), cause);
        self.inner.world.record_failure(&failure);
        self.observe(CallEvent::Failed(&failure));
        if self.acknowledge.get() {
            // Payloads that could not be read are not needed any more.
            exchange.done(&self.ticket);
        }
        failure
    }

    /// Records that the call has ended with an error that all ranks know.
    pub(crate) fn over(&self, failure: Error) -> Error {
        self.inner.world.record_failure(&failure);
        self.observe(CallEvent::Failed(&failure));
        self.finished.set(true);
        failure
    }

    /// Records that the call has succeeded.
    pub(crate) fn succeed(&self) {
        self.finished.set(true);
        self.observe(CallEvent::Done);
    }

    /// Records that the call has been decided successfully. The reader of its payloads records its end.
    pub(crate) fn hand_over(&self) {
        self.finished.set(true);
    }

    /// Returns an error of the user's own code or data on this rank.
    pub(crate) fn raised(&self, message: impl Into<String>) -> Error {
        let doing = self.ticket.activity(self.phase.get());
        Error::raised(self.inner.me(), doing, message)
    }
}

/// Returns the sizes of the data that this rank receives, by these announcements.
fn received(inner: &GroupState, bodies: &[Bytes]) -> Received {
    let own = inner.exchange.rank();
    let mut received = Received::default();
    for (rank, body) in (0..).map(Rank::new).zip(bodies) {
        let (bytes, is_here) = match PayloadHeader::from_body(body) {
            Some(PayloadHeader::Inline { payload, .. }) => (payload.len() as u64, true),
            Some(PayloadHeader::File(file)) => (file.locator.raw_len, false),
            Some(PayloadHeader::Relayed(relayed)) => (relayed.len, false),
            Some(PayloadHeader::Linked { len }) => (len, rank == own),
            Some(PayloadHeader::Shared(location)) => (location.len(), true),
            Some(PayloadHeader::Placed(location)) => (location.len(), inner.is_sharing(rank)),
            Some(PayloadHeader::Kept { len }) => (len, true),
            Some(PayloadHeader::TooLarge { .. }) | None => (0, true),
        };
        received.bytes = received.bytes.saturating_add(bytes);
        if !is_here {
            received.to_move = received.to_move.saturating_add(bytes);
        }
    }
    received
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if !self.finished.get() {
            let what = if std::thread::panicking() {
                "it panicked"
            } else {
                "it gave the call up"
            };
            self.fail(self.raised(what));
        }
    }
}
