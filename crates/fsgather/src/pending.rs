//! Calls that continue while the program computes: [`Pending`].

use std::{fmt, time::Duration};

use fsgather_core::{CallEvent, Error};

use crate::call::{
    blocking::step_aside,
    open_call::OpenCall,
    open_calls::Open,
    started::{ReceivedParts, StartedCall},
};

/// Reads the result of a call.
type Finish<R> = Box<dyn FnOnce(&StartedCall<'static>, ReceivedParts) -> Result<R, Error> + Send>;

/// A call whose result has not been returned.
struct UntakenCall<R> {
    started: StartedCall<'static>,
    finish: Finish<R>,
    /// Holds the call open.
    _open: OpenCall,
}

/// A call that has been started, and whose result has not been requested yet.
///
/// This rank's part has been published and announced, so the other ranks do not wait for it. Several calls of one
/// communicator may be pending. The program may wait for them in any order, but all ranks must start them in the same
/// order. Dropping one gives up its result on this rank only: the other ranks get theirs, and nothing is left behind.
///
/// In asynchronous code, wait on a thread for blocking work, such as that of `tokio::task::spawn_blocking`; `docs/guide/rust.md`
/// has an example.
///
/// # Examples
///
/// ```
/// let communicator = fsgather::Communicator::solo();
/// let first = communicator.start_all_gather(&1)?;
/// let second = communicator.start_all_gather(&2)?;
/// // ... compute ...
/// assert_eq!(second.wait()?, [2]);
/// assert_eq!(first.wait()?, [1]);
/// # Ok::<(), fsgather::Error>(())
/// ```
#[must_use = "a call whose result is not needed should not be started"]
pub struct Pending<R> {
    /// `None` once the result has been returned.
    state: Option<UntakenCall<R>>,
}

impl<R> Pending<R> {
    pub(crate) fn new(
        started: StartedCall<'static>,
        finish: impl FnOnce(&StartedCall<'static>, ReceivedParts) -> Result<R, Error> + Send + 'static,
    ) -> Self {
        let guard = started.guard();
        let open = OpenCall::new(&guard.inner, &guard.ticket, Open::Pending);
        Self {
            state: Some(UntakenCall {
                started,
                finish: Box::new(finish),
                _open: open,
            }),
        }
    }

    /// Waits for all ranks, reads their parts, and returns the result.
    ///
    /// # Errors
    ///
    /// Those of the call that was started; [`Error::Config`] if the result has been returned already.
    pub fn wait(mut self) -> Result<R, Error> {
        step_aside(|| self.look(None))?.ok_or_else(taken)
    }

    /// Returns the result if all ranks have handed in their parts, else `None`.
    ///
    /// # Errors
    ///
    /// Those of [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> Result<Option<R>, Error> {
        self.wait_timeout(Duration::ZERO)
    }

    /// Waits for all ranks, but no longer than `limit`; returns `None` if some are still missing.
    ///
    /// Nothing is lost then: the program can wait again. Reading the parts may take longer than `limit`.
    ///
    /// # Errors
    ///
    /// Those of [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, limit: Duration) -> Result<Option<R>, Error> {
        step_aside(|| self.look(Some(limit)))
    }

    /// Waits for the verdict, for `limit` at most, and reads the result.
    fn look(&mut self, limit: Option<Duration>) -> Result<Option<R>, Error> {
        let mut call = self.state.take().ok_or_else(taken)?;
        let is_look = limit == Some(Duration::ZERO);
        if !is_look {
            call.started
                .guard()
                .observe(CallEvent::Awaited { is_awaited: true });
        }
        let decided = call.started.decide(limit);
        if !is_look && matches!(decided, Ok(None)) {
            call.started
                .guard()
                .observe(CallEvent::Awaited { is_awaited: false });
        }
        let Some(decision) = decided? else {
            self.state = Some(call);
            return Ok(None);
        };
        let received = call.started.follow(decision)?;
        (call.finish)(&call.started, received).map(Some)
    }
}

fn taken() -> Error {
    Error::config("the result of this call has been handed out already")
}

impl<R> Drop for Pending<R> {
    fn drop(&mut self) {
        if let Some(state) = &mut self.state {
            state.started.abandon();
        }
    }
}

impl<R> fmt::Debug for Pending<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = self
            .state
            .as_ref()
            .map(|state| state.started.guard().ticket.to_string());
        f.debug_struct("Pending")
            .field("call", &call)
            .finish_non_exhaustive()
    }
}
