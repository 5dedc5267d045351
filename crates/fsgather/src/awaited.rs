//! Pending calls as futures.
//!
//! A thread of its own waits for a call that is awaited, so that no executor is blocked and none is needed
//! in particular. It ends with the call, also when nobody awaits it any more.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    thread,
};

use fsgather_core::Error;

use crate::{
    inner::lock,
    pending::{Pending, taken},
};

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
                let result = pending.wait();
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

/// Waits as [`Pending::wait`] does, without blocking the executor.
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
        match &self.awaited {
            Some(awaited) => awaited.poll(context),
            None => Poll::Ready(Err(taken())),
        }
    }
}
