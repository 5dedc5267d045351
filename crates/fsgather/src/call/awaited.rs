//! Hands the result of a call over to who awaits it: [`Awaited`].

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use fsgather_core::{Error, IsDecided, Round, Step, lock};

use crate::{
    call::{
        driver::{AwaitedCall, Driver, Looked},
        guard::CallGuard,
        open_call::GiveUp,
    },
    group_state::GroupState,
    pending::Pending,
};

/// A call that is waited for elsewhere.
pub(crate) struct Awaited<R> {
    group: Arc<GroupState>,
    handover: Arc<Handover<R>>,
    give_up: GiveUp,
    /// The process in which it is waited for.
    process: u32,
}

/// What those who wait for a call and the future share.
struct Handover<R> {
    slot: Mutex<Slot<R>>,
    /// Told when there is an outcome.
    has_come: Condvar,
    /// Nobody awaits it any more.
    is_given_up: AtomicBool,
}

/// The result of a call, or the panic that reading it has ended in.
type Outcome<R> = thread::Result<Result<R, Error>>;

struct Slot<R> {
    outcome: Option<Outcome<R>>,
    has_ended: bool,
    waker: Option<Waker>,
}

impl<R: Send + 'static> Awaited<R> {
    /// Has a call waited for whose result has not been handed out.
    pub(crate) fn start(call: Pending<R>) -> Result<Self, Error> {
        let (started, give_up) = call.started()?;
        let CallGuard { inner, ticket, .. } = started.guard();
        let (group, epoch) = (Arc::clone(inner), ticket.epoch);
        let step = (!started.is_decided()).then(|| ticket.step(Round::VERDICT));
        let slot = Slot {
            outcome: None,
            has_ended: false,
            waker: None,
        };
        let handover = Arc::new(Handover {
            slot: Mutex::new(slot),
            has_come: Condvar::new(),
            is_given_up: AtomicBool::new(false),
        });
        let awaited = WatchedCall {
            call,
            step,
            handover: Arc::clone(&handover),
        };
        let started = if group.world.is_foreign() {
            // The thread of the parent is not here, and locks that it held may never be free.
            let thread = thread::Builder::new().name("fsgather-await".into());
            thread.spawn(|| awaited.wait()).map(drop)
        } else {
            Driver::add(&group, epoch, Box::new(awaited))
        };
        started.map_err(|error| {
            Error::config(format!("cannot start a thread to wait for a call: {error}"))
        })?;
        Ok(Self {
            group,
            handover,
            give_up,
            process: std::process::id(),
        })
    }
}

impl<R> Awaited<R> {
    /// The result, once there is one.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<R, Error>> {
        if self.is_foreign() {
            return Poll::Ready(Err(foreign()));
        }
        // A waker is the user's code: no lock is held while it is cloned or dropped.
        let waker = context.waker().clone();
        let mut slot = lock(&self.handover.slot);
        let outcome = slot.outcome.take();
        let former = if outcome.is_none() {
            slot.waker.replace(waker)
        } else {
            None
        };
        drop(slot);
        drop(former);
        outcome.map_or(Poll::Pending, |outcome| Poll::Ready(unwound(outcome)))
    }

    /// Waits for the result on this thread, for `limit` at most. Whoever has polled is woken as before.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> Option<Result<R, Error>> {
        if self.is_foreign() {
            return Some(Err(foreign()));
        }
        let is_missing = |slot: &mut Slot<R>| slot.outcome.is_none();
        let (slot, has_come) = (lock(&self.handover.slot), &self.handover.has_come);
        let waited = match limit {
            None => has_come.wait_while(slot, is_missing),
            Some(limit) => {
                let waited = has_come.wait_timeout_while(slot, limit, is_missing);
                Ok(waited.unwrap_or_else(PoisonError::into_inner).0)
            }
        };
        let mut slot = waited.unwrap_or_else(PoisonError::into_inner);
        let outcome = slot.outcome.take();
        drop(slot);
        outcome.map(unwound)
    }

    /// Whether this process is a forked child of the one in which the call is waited for.
    fn is_foreign(&self) -> bool {
        self.process != std::process::id()
    }
}

impl<R> Drop for Awaited<R> {
    fn drop(&mut self) {
        if self.is_foreign() {
            return;
        }
        let mut slot = lock(&self.handover.slot);
        let (has_ended, waker, outcome) = (slot.has_ended, slot.waker.take(), slot.outcome.take());
        drop(slot);
        // Both are the user's, and are dropped where the future is.
        drop((waker, outcome));
        if !has_ended {
            self.give_up.give_up(&self.group);
            self.handover.is_given_up.store(true, Ordering::SeqCst);
            self.group.exchange.wake();
        }
    }
}

/// What a forked child is told of a call that its parent awaits.
fn foreign() -> Error {
    Error::config("this call is awaited in the parent process; a forked child cannot await it")
}

/// The result, or the panic that reading it has ended in.
fn unwound<R>(outcome: Outcome<R>) -> Result<R, Error> {
    outcome.unwrap_or_else(|panicked| panic::resume_unwind(panicked))
}

impl<R> Handover<R> {
    /// Hands over what reading a call has given.
    fn settle(&self, outcome: Outcome<R>) {
        let waker = {
            let mut slot = lock(&self.slot);
            slot.outcome = Some(outcome);
            slot.has_ended = true;
            slot.waker.take()
        };
        self.has_come.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Reads a call. A panic in the user's code belongs to who awaits it; other calls are waited for on this thread.
fn caught<R>(read: impl FnOnce() -> Result<R, Error>) -> Outcome<R> {
    panic::catch_unwind(AssertUnwindSafe(read))
}

/// A call, and who gets its result.
struct WatchedCall<R> {
    call: Pending<R>,
    /// The step whose verdict is waited for, unless it has come already.
    step: Option<Step>,
    handover: Arc<Handover<R>>,
}

impl<R> WatchedCall<R> {
    /// Waits for the result on this thread.
    fn wait(self) {
        let Self { call, handover, .. } = self;
        handover.settle(caught(|| call.wait()));
    }

    fn is_given_up(&self) -> bool {
        self.handover.is_given_up.load(Ordering::SeqCst)
    }
}

impl<R: Send + 'static> AwaitedCall for WatchedCall<R> {
    fn is_due(&self, is_decided: &IsDecided<'_>) -> bool {
        self.step.is_none_or(is_decided) || self.is_given_up()
    }

    fn look(mut self: Box<Self>) -> Looked {
        if self.is_given_up() {
            return Looked::GivenUp;
        }
        let decided = match self.call.decide(Some(Duration::ZERO)) {
            Ok(None) => return Looked::Undecided(self),
            decided => decided,
        };
        let handover = self.handover;
        Looked::Decided {
            is_here: !matches!(&decided, Ok(Some(decided)) if !decided.is_here()),
            read: Box::new(move || {
                let outcome = caught(|| decided?.ok_or_else(Error::closed)?.read());
                Box::new(move || handover.settle(outcome))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Communicator;

    /// As a forked child does, which has no thread that waits for all.
    #[test]
    fn a_call_that_a_thread_of_its_own_waits_for_is_handed_over() {
        let handover = Arc::new(Handover {
            slot: Mutex::new(Slot {
                outcome: None,
                has_ended: false,
                waker: None,
            }),
            has_come: Condvar::new(),
            is_given_up: AtomicBool::new(false),
        });
        let watched = WatchedCall {
            call: Communicator::solo().start_all_gather(&7).unwrap(),
            step: None,
            handover: Arc::clone(&handover),
        };
        watched.wait();
        let slot = lock(&handover.slot);
        assert!(matches!(&slot.outcome, Some(Ok(Ok(all))) if *all == [7]));
        assert!(slot.has_ended);
    }
}
