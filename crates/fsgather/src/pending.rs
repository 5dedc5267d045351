//! Calls that go on while the program computes: [`Pending`].

use std::{fmt, time::Duration};
#[cfg(feature = "async")]
use std::{
    pin::Pin,
    task::{Context, Poll},
};

use fsgather_core::Error;

#[cfg(feature = "async")]
use crate::call::{awaited::Awaited, open_call::GiveUp};
use crate::call::{
    blocking::step_aside,
    open_call::OpenCall,
    open_calls::Open,
    started::{Decision, ReceivedParts, StartedCall},
};

/// Reads what a call has brought.
type Finish<R> = Box<dyn FnOnce(&StartedCall<'static>, ReceivedParts) -> Result<R, Error> + Send>;

/// A call whose result has not been handed out.
struct UntakenCall<R> {
    started: StartedCall<'static>,
    finish: Finish<R>,
    #[cfg_attr(
        not(feature = "async"),
        expect(dead_code, reason = "it is open as long as this is held")
    )]
    open: OpenCall,
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
    state: Option<UntakenCall<R>>,
    /// Somebody waits for it in the background.
    #[cfg(feature = "async")]
    awaited: Option<Awaited<R>>,
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
                open,
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

    fn look(&mut self, limit: Option<Duration>) -> Result<Option<R>, Error> {
        #[cfg(feature = "async")]
        if let Some(awaited) = &self.awaited {
            // It has been polled before: it is waited for elsewhere.
            let Some(result) = awaited.wait(limit) else {
                return Ok(None);
            };
            self.awaited = None;
            return result.map(Some);
        }
        let decided = self.decide(limit)?;
        decided.map(DecidedCall::read).transpose()
    }

    /// The call, and what gives it up, unless its result has been handed out.
    #[cfg(feature = "async")]
    pub(crate) fn started(&self) -> Result<(&StartedCall<'static>, GiveUp), Error> {
        let call = self.state.as_ref();
        let call = call.map(|call| (&call.started, call.open.give_up()));
        call.ok_or_else(taken)
    }

    /// Waits for the verdict, for `limit` at most.
    pub(crate) fn decide(
        &mut self,
        limit: Option<Duration>,
    ) -> Result<Option<DecidedCall<R>>, Error> {
        let mut call = self.state.take().ok_or_else(taken)?;
        let is_look = limit == Some(Duration::ZERO);
        if !is_look {
            call.started.guard().record_awaited(true);
        }
        let decided = call.started.decide(limit);
        if !is_look && matches!(decided, Ok(None)) {
            call.started.guard().record_awaited(false);
        }
        let Some(decision) = decided? else {
            self.state = Some(call);
            return Ok(None);
        };
        Ok(Some(DecidedCall { call, decision }))
    }
}

/// A call that has been decided, and what it brings is still to be read.
pub(crate) struct DecidedCall<R> {
    call: UntakenCall<R>,
    decision: Decision,
}

impl<R> DecidedCall<R> {
    /// Whether all that it brings is in this process's memory.
    #[cfg(feature = "async")]
    pub(crate) fn is_here(&self) -> bool {
        self.decision.is_here()
    }

    /// Reads what it brings.
    pub(crate) fn read(mut self) -> Result<R, Error> {
        let received = self.call.started.follow(self.decision)?;
        (self.call.finish)(&self.call.started, received)
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

/// Waits as [`Pending::wait`] does, without blocking the executor.
///
/// Any executor will do: one thread waits for all calls of a communicator that are awaited. Dropping the future
/// neither blocks nor fails anybody; what it would have brought is given up, and [`close`](crate::Communicator::close)
/// waits until what is being read of it has been. Starting a call does block while this rank's part is published,
/// which a current-thread tokio runtime has to leave to another thread.
///
/// A call that has been polled can still be asked for by [`wait`](Pending::wait) and the like. Small values are read on
/// the thread that waits: a `Deserialize` of yours that blocks there keeps other awaited calls waiting.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use fsgather::Communicator;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// runtime.block_on(async {
///     let communicator = Arc::new(Communicator::solo());
///     let its = Arc::clone(&communicator);
///     let started = tokio::task::spawn_blocking(move || its.start_all_gather(&7)).await??;
///     assert_eq!(started.await?, [7]);
///     Ok(())
/// })
/// # }
/// ```
#[cfg(feature = "async")]
impl<R: Send + 'static> Future for Pending<R> {
    type Output = Result<R, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.awaited.is_none() {
            let state = self.state.take().ok_or_else(taken)?;
            self.awaited = Some(Awaited::start(Self {
                state: Some(state),
                awaited: None,
            })?);
        }
        let polled = match &self.awaited {
            Some(awaited) => awaited.poll(context),
            None => Poll::Ready(Err(taken())),
        };
        if polled.is_ready() {
            // Whoever asks again gets an answer rather than none for ever.
            self.awaited = None;
        }
        polled
    }
}

#[cfg(all(test, feature = "async"))]
#[path = "pending_tests.rs"]
mod tests;
