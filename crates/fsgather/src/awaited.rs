//! Pending calls as futures.
//!
//! A thread of its own waits for a call that is awaited, so that no executor is blocked and none is needed
//! in particular. It ends with the call, or soon after nobody awaits it any more.

use fsgather_core::lock;
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use fsgather_core::Error;

use crate::pending::{Pending, taken};

/// How often the thread that waits looks whether anybody still awaits the call.
const LOOK: Duration = Duration::from_millis(50);

/// What the thread that waits and the future share.
struct Slot<R> {
    result: Option<Result<R, Error>>,
    waker: Option<Waker>,
}

/// A call that a thread waits for.
pub(crate) struct Awaited<R> {
    slot: Arc<Mutex<Slot<R>>>,
}

impl<R: Send + 'static> Awaited<R> {
    fn start(pending: Pending<R>) -> Result<Self, Error> {
        let slot = Arc::new(Mutex::new(Slot {
            result: None,
            waker: None,
        }));
        let its = Arc::clone(&slot);
        thread::Builder::new()
            .name("fsgather-await".into())
            .spawn(move || {
                // The call is given up, without a word to the others, once the future is gone.
                let Some(result) = wait(pending, || Arc::strong_count(&its) > 1) else {
                    return;
                };
                let mut slot = lock(&its);
                slot.result = Some(result);
                if let Some(waker) = slot.waker.take() {
                    waker.wake();
                }
            })
            .map_err(|error| {
                Error::config(format!("cannot start a thread to wait for a call: {error}"))
            })?;
        Ok(Self { slot })
    }

    fn poll(&self, context: &Context<'_>) -> Poll<Result<R, Error>> {
        let mut slot = lock(&self.slot);
        if let Some(result) = slot.result.take() {
            return Poll::Ready(result);
        }
        slot.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Waits for a call as long as it `is_awaited`.
fn wait<R>(mut pending: Pending<R>, is_awaited: impl Fn() -> bool) -> Option<Result<R, Error>> {
    while is_awaited() {
        match pending.wait_timeout(LOOK) {
            Ok(None) => {}
            ended => return ended.transpose(),
        }
    }
    None
}

/// Waits as [`Pending::wait`] does, without blocking the executor.
///
/// Any executor will do: while it is awaited, a thread of its own waits for the call. Dropping the future
/// neither blocks nor fails anybody; what it would have brought is given up. Starting a call does block while
/// this rank's part is published, which a current-thread tokio runtime has to leave to another thread.
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
impl<R: Send + 'static> Future for Pending<R> {
    type Output = Result<R, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.awaited.is_none() {
            let started = self.take().ok_or_else(taken).and_then(Awaited::start);
            match started {
                Ok(awaited) => self.awaited = Some(awaited),
                Err(error) => return Poll::Ready(Err(error)),
            }
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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::Communicator;

    #[test]
    fn who_asks_again_after_the_result_is_told_so() {
        let mut pending = Communicator::solo().start_all_gather(&1).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let result = loop {
            match Pin::new(&mut pending).poll(&mut context) {
                Poll::Ready(result) => break result,
                Poll::Pending => thread::yield_now(),
            }
        };
        assert_eq!(result, Ok(vec![1]));
        let again = Pin::new(&mut pending).poll(&mut context);
        assert!(matches!(again, Poll::Ready(Err(Error::Config { .. }))));
    }
}
