//! One collective call from its number to its end: [`Session`].

use std::{cell::Cell, sync::Arc, time::Duration};

use fsgather_core::{Call, Contribution, Error, PeerFailure, Phase, Round, Ticket, Verdict};

#[cfg(feature = "ndarray")]
use super::stream::OwnMoved;
use crate::inner::Inner;

/// A call that has been numbered. If it is dropped unfinished, by a panic in the user's code or an
/// early return, the call fails on all ranks instead of leaving them waiting.
pub(crate) struct Session {
    pub(crate) inner: Arc<Inner>,
    pub(crate) ticket: Ticket,
    phase: Cell<Phase>,
    finished: Cell<bool>,
}

impl Session {
    /// Numbers a call.
    pub(crate) fn begin(inner: &Arc<Inner>, call: Call) -> Result<Self, Error> {
        let begun = inner.exchange.begin(call);
        let ticket = begun.inspect_err(|failure| inner.world.note_failed(failure))?;
        inner.world.note_begun(ticket.channel);
        Ok(Self {
            ticket,
            inner: Arc::clone(inner),
            phase: Cell::new(Phase::Publishing),
            finished: Cell::new(false),
        })
    }

    /// Notes that bytes have moved in the current phase.
    pub(crate) fn moved(&self, bytes: u64) -> Result<(), Error> {
        self.inner.progress(&self.ticket, self.phase.get(), bytes)
    }

    /// Notes that bytes have been read, wherever the session is meanwhile.
    #[cfg(feature = "ndarray")]
    pub(crate) fn moving(&self) -> OwnMoved {
        let inner = Arc::clone(&self.inner);
        let ticket = self.ticket.clone();
        Box::new(move |bytes| inner.progress(&ticket, Phase::Reading, bytes))
    }

    /// Hands in this rank's contribution.
    pub(crate) fn contribute(&self, contribution: Contribution) -> Result<(), Error> {
        self.inner
            .exchange
            .contribute(&self.ticket, Round::VERDICT, contribution)
            .map_err(|failure| self.over(failure))?;
        self.phase.set(Phase::Waiting);
        Ok(())
    }

    /// Waits for the verdict, for `limit` at most.
    pub(crate) fn verdict(&self, limit: Option<Duration>) -> Result<Option<Verdict>, Error> {
        let verdict = self
            .inner
            .exchange
            .wait_for(&self.ticket, Round::VERDICT, limit)
            .map_err(|failure| self.over(failure))?;
        if verdict.is_some() {
            self.phase.set(Phase::Reading);
            let Ticket { channel, epoch, .. } = self.ticket;
            self.inner.world.note_decided(channel, epoch);
        }
        Ok(verdict)
    }

    /// Gives up what this rank would receive: the call goes on without it.
    pub(crate) fn abandon(&self) {
        if !self.finished.replace(true) {
            self.inner.exchange.abandon(&self.ticket);
        }
    }

    /// Ends the call with a failure of this rank; the error that all ranks agree on.
    pub(crate) fn fail(&self, cause: Error) -> Error {
        if self.finished.replace(true) {
            return cause;
        }
        let exchange = &self.inner.exchange;
        let failure = exchange.fail(&self.ticket, self.phase.get(), cause);
        self.inner.world.note_failed(&failure);
        failure
    }

    /// Notes that the call has ended with an error that all ranks know.
    pub(crate) fn over(&self, failure: Error) -> Error {
        self.inner.world.note_failed(&failure);
        self.finished.set(true);
        failure
    }

    /// Notes that the call has ended well.
    pub(crate) fn succeed(&self) {
        self.finished.set(true);
    }

    /// An error of the user's own code or data on this rank.
    pub(crate) fn raised(&self, message: impl Into<String>) -> Error {
        Error::PeerFailed {
            peer: self.inner.me(),
            activity: self.ticket.activity(self.phase.get()),
            failure: PeerFailure::Raised {
                message: message.into(),
            },
        }
    }
}

impl Drop for Session {
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
