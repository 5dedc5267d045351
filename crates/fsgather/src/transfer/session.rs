//! One collective call from its number to its end: [`Session`].

use std::{cell::Cell, sync::PoisonError};

use fsgather_core::{Call, Contribution, Error, PeerFailure, Phase, Round, Ticket, Verdict};

use crate::inner::Inner;

/// A call that has been numbered. If it is dropped unfinished, by a panic in the user's code or an
/// early return, the call fails on all ranks instead of leaving them waiting.
pub(crate) struct Session<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) ticket: Ticket,
    phase: Cell<Phase>,
    finished: Cell<bool>,
}

impl<'a> Session<'a> {
    /// Numbers a call.
    pub(crate) fn begin(inner: &'a Inner, call: Call) -> Result<Self, Error> {
        Ok(Self {
            ticket: inner.exchange.begin(call)?,
            inner,
            phase: Cell::new(Phase::Publishing),
            finished: Cell::new(false),
        })
    }

    /// Notes that bytes have moved in the current phase.
    pub(crate) fn moved(&self, bytes: u64) -> Result<(), Error> {
        self.inner
            .exchange
            .progress(&self.ticket, self.phase.get(), bytes)
    }

    /// Hands in this rank's contribution and waits for the verdict.
    pub(crate) fn decide(&self, contribution: Contribution) -> Result<Verdict, Error> {
        let exchange = &self.inner.exchange;
        let verdict = exchange
            .contribute(&self.ticket, Round::VERDICT, contribution)
            .and_then(|()| exchange.wait(&self.ticket, Round::VERDICT))
            .map_err(|failure| self.over(failure))?;
        self.phase.set(Phase::Reading);
        let mut decided = self
            .inner
            .decided
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *decided = (*decided).max(Some(self.ticket.epoch));
        Ok(verdict)
    }

    /// Ends the call with a failure of this rank; the error that all ranks agree on.
    pub(crate) fn fail(&self, cause: Error) -> Error {
        if self.finished.replace(true) {
            return cause;
        }
        self.inner
            .exchange
            .fail(&self.ticket, self.phase.get(), cause)
    }

    /// Notes that the call has ended with an error that all ranks know.
    pub(crate) fn over(&self, failure: Error) -> Error {
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

impl Drop for Session<'_> {
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
