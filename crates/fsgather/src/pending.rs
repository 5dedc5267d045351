//! Calls that go on while the program computes: [`Pending`].

use std::{fmt, time::Duration};

use fsgather_core::Error;

use crate::{
    blocking::step_aside,
    collective::{Received, Started},
    open_call::OpenCall,
    open_calls::Open,
};

/// Reads what a call has brought.
type Finish<R> = Box<dyn FnOnce(&Started<'static>, Received) -> Result<R, Error> + Send>;

/// A call whose result has not been handed out.
struct State<R> {
    started: Started<'static>,
    finish: Finish<R>,
    _open: OpenCall,
}

/// A call that has been started, and whose result has not been asked for yet.
///
/// This rank's part has been published and announced, so that the others need not wait for it any more.
/// Several calls of one communicator may be pending; they may be waited for in any order, but all ranks
/// have to start them in the same order. Dropping one gives up its result on this rank only: the
/// others get theirs, and nothing is left behind.
///
/// With the feature `async` it is a [`Future`] as well, for any executor.
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
#[must_use = "a pending call whose result nobody asks for had better not be started"]
pub struct Pending<R> {
    /// Gone once the result has been handed out.
    state: Option<State<R>>,
    /// Somebody waits for it in the background.
    #[cfg(feature = "async")]
    pub(crate) awaited: Option<crate::awaited::Awaited<R>>,
}

impl<R> Pending<R> {
    pub(crate) fn new(
        started: Started<'static>,
        finish: impl FnOnce(&Started<'static>, Received) -> Result<R, Error> + Send + 'static,
    ) -> Self {
        let session = started.session();
        let open = OpenCall::new(&session.inner, &session.ticket, Open::Pending);
        Self {
            state: Some(State {
                started,
                finish: Box::new(finish),
                _open: open,
            }),
            #[cfg(feature = "async")]
            awaited: None,
        }
    }

    /// Waits for all ranks, reads what they have handed over, and returns it.
    ///
    /// # Errors
    ///
    /// Those of the call that was started; [`Error::Config`] when the result has been handed out already.
    pub fn wait(mut self) -> Result<R, Error> {
        step_aside(|| self.look(None))?.ok_or_else(taken)
    }

    /// The result, if all ranks have handed in their parts; `None` if somebody is still waited for.
    ///
    /// # Errors
    ///
    /// Those of [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> Result<Option<R>, Error> {
        self.wait_timeout(Duration::ZERO)
    }

    /// Waits for all ranks, but no longer than `limit`; `None` if somebody is still waited for.
    ///
    /// Nothing is lost then: it can be asked for again. Reading what has been handed over may take longer.
    ///
    /// # Errors
    ///
    /// Those of [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, limit: Duration) -> Result<Option<R>, Error> {
        step_aside(|| self.look(Some(limit)))
    }

    /// The same call as a value of its own, to be waited for elsewhere.
    #[cfg(feature = "async")]
    pub(crate) fn take(&mut self) -> Option<Self> {
        let state = self.state.take()?;
        Some(Self {
            state: Some(state),
            awaited: None,
        })
    }

    fn look(&mut self, limit: Option<Duration>) -> Result<Option<R>, Error> {
        let mut state = self.state.take().ok_or_else(taken)?;
        let Some(received) = state.started.receive(limit)? else {
            self.state = Some(state);
            return Ok(None);
        };
        (state.finish)(&state.started, received).map(Some)
    }
}

pub(crate) fn taken() -> Error {
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
            .map(|state| state.started.session().ticket.to_string());
        f.debug_struct("Pending")
            .field("call", &call)
            .finish_non_exhaustive()
    }
}
