//! Waits for a call in the background: [`Awaited`].
//!
//! A thread of its own waits for a call that is awaited, so that no executor is blocked and none is needed
//! in particular. It ends with the call, or soon after nobody awaits it any more.

use fsgather_core::lock;
use std::{
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use fsgather_core::Error;

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
    /// Waits with `wait`, for as long as it is given each time, until there is a result.
    pub(crate) fn start(
        wait: impl FnMut(Duration) -> Result<Option<R>, Error> + Send + 'static,
    ) -> Result<Self, Error> {
        let slot = Arc::new(Mutex::new(Slot {
            result: None,
            waker: None,
        }));
        let its = Arc::clone(&slot);
        thread::Builder::new()
            .name("fsgather-await".into())
            .spawn(move || {
                // The call is given up, without a word to the others, once the future is gone.
                let Some(result) = until_over(wait, || Arc::strong_count(&its) > 1) else {
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

    /// The result, once there is one.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<R, Error>> {
        let mut slot = lock(&self.slot);
        if let Some(result) = slot.result.take() {
            return Poll::Ready(result);
        }
        slot.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Waits for a call as long as it `is_awaited`.
fn until_over<R>(
    mut wait: impl FnMut(Duration) -> Result<Option<R>, Error>,
    is_awaited: impl Fn() -> bool,
) -> Option<Result<R, Error>> {
    while is_awaited() {
        match wait(LOOK) {
            Ok(None) => {}
            ended => return ended.transpose(),
        }
    }
    None
}
