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
    /// Whether the owners of payloads wait to be told that this rank needs them no more.
    acknowledge: Cell<bool>,
    finished: Cell<bool>,
}

/// Notes that bytes of a decided call have been read.
///
/// What others do wrong meanwhile is told at the next call; what is decided can be read, unless it was this
/// rank itself that was told to stop.
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

    /// Notes that bytes have moved in the current phase; an error if this rank is to stop.
    pub(crate) fn moved(&self, bytes: u64) -> Result<(), Error> {
        match self.phase.get() {
            Phase::Reading => record_read(&self.inner, &self.ticket, bytes),
            phase => {
                self.observe(CallEvent::Moved { bytes });
                self.inner.progress(&self.ticket, phase, bytes)
            }
        }
    }

    /// Tells the others at once what this rank is about to do, which may take long: if it is lost meanwhile they know. To wake
    /// a thread for that costs more than a short call.
    pub(crate) fn set_about(&self) -> Result<(), Error> {
        self.moved(0)?;
        self.inner.exchange.send_on();
        Ok(())
    }

    /// Notes that more of what this rank hands in has come, so that it is not too late; it is counted elsewhere.
    pub(crate) fn came(&self, bytes: u64) -> Result<(), Error> {
        self.inner.progress(&self.ticket, self.phase.get(), bytes)
    }

    /// Notes what has happened, for those who show it.
    pub(crate) fn observe(&self, event: CallEvent<'_>) {
        self.inner.world.observe(&self.ticket, event);
    }

    /// What notes that bytes have moved in a ring, which all members have to keep turning.
    ///
    /// After a failure it goes on as long as it turns: what comes may be all that this rank lacks. Where nothing
    /// comes any more it is over, although the call was decided; the link on which it waits may never be made.
    /// What stood still before the failure, or with the whole job, has as long as the rest.
    pub(crate) fn turning(&self) -> impl FnMut(u64) -> Result<(), Error> + '_ {
        let mut over_at = None;
        move |bytes| {
            // As much goes out as comes in.
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

    /// Notes that bytes have been read, wherever the guard is meanwhile.
    pub(crate) fn moving(&self) -> OwnMoved {
        let inner = Arc::clone(&self.inner);
        let ticket = self.ticket.clone();
        Box::new(move |bytes| record_read(&inner, &ticket, bytes))
    }

    /// Hands in this rank's contribution; `len` is how long its payload is, in bytes.
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

    /// Gives up what this rank would receive: the call goes on without it.
    pub(crate) fn abandon(&self) {
        if !self.finished.replace(true) {
            self.inner.exchange.abandon(&self.ticket);
            self.observe(CallEvent::GivenUp);
        }
    }

    /// Ends the call with a failure of this rank; the error that all ranks agree on.
    pub(crate) fn fail(&self, cause: Error) -> Error {
        if self.finished.replace(true) {
            return cause;
        }
        let exchange = &self.inner.exchange;
        let failure = exchange.fail(&self.ticket, self.phase.get(), cause);
        self.inner.world.record_failure(&failure);
        self.observe(CallEvent::Failed(&failure));
        if self.acknowledge.get() {
            // What could not be read is not needed any more.
            exchange.done(&self.ticket);
        }
        failure
    }

    /// Notes that the call has ended with an error that all ranks know.
    pub(crate) fn over(&self, failure: Error) -> Error {
        self.inner.world.record_failure(&failure);
        self.observe(CallEvent::Failed(&failure));
        self.finished.set(true);
        failure
    }

    /// Notes that the call has ended well.
    pub(crate) fn succeed(&self) {
        self.finished.set(true);
        self.observe(CallEvent::Done);
    }

    /// Notes that the call has been decided well; what it brings is read by somebody else, who notes its end.
    pub(crate) fn hand_over(&self) {
        self.finished.set(true);
    }

    /// An error of the user's own code or data on this rank.
    pub(crate) fn raised(&self, message: impl Into<String>) -> Error {
        let doing = self.ticket.activity(self.phase.get());
        Error::raised(self.inner.me(), doing, message)
    }
}

/// The sizes of what this rank receives, by these announcements.
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
