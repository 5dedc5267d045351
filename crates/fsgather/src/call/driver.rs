//! Waits for all calls of a communicator that are awaited: [`Driver`].
//!
//! One thread waits for all of them, so that no executor is blocked and none is needed in particular. It is there
//! while any is pending. Results that are here already it hands out itself. Reading others takes longer, and may need
//! ranks that read theirs in another order: then a second thread goes on waiting, and this one ends when it has read.

use std::{
    collections::BTreeMap,
    io,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Mutex},
    thread,
};

use fsgather_core::{Epoch, Exchange, IsDecided, lock};

/// A call that somebody awaits.
pub(crate) trait AwaitedCall: Send {
    /// Whether nothing of it has to be waited for: it is decided, or nobody awaits it any more.
    fn is_due(&self, is_decided: &IsDecided<'_>) -> bool;

    /// Looks for its verdict.
    fn look(self: Box<Self>) -> Looked;
}

/// What a look at an awaited call has led to.
pub(crate) enum Looked {
    /// It is not decided after all.
    Undecided(Box<dyn AwaitedCall>),
    /// Nobody awaits it any more.
    GivenUp,
    /// It is decided.
    Decided {
        /// Whether reading it takes no time to speak of.
        is_here: bool,
        /// Reads it, and returns what hands the result over.
        read: Box<dyn FnOnce() -> HandOver>,
    },
}

/// Gives the result of a call to who awaits it.
pub(crate) type HandOver = Box<dyn FnOnce()>;

/// What calls are waited for in.
pub(crate) trait Driven: Send + Sync + 'static {
    /// Where they are decided.
    fn exchange(&self) -> &dyn Exchange;

    /// Those that are awaited.
    fn driver(&self) -> &Driver;
}

/// The calls of a communicator that are awaited.
#[derive(Default)]
pub(crate) struct Driver {
    state: Mutex<AwaitedCalls>,
}

#[derive(Default)]
struct AwaitedCalls {
    calls: BTreeMap<Epoch, Box<dyn AwaitedCall>>,
    /// Whether a thread waits for them.
    is_driven: bool,
}

impl Driver {
    /// Has a call of a group waited for, which has the number `epoch` in it.
    pub(crate) fn add(
        group: &Arc<impl Driven>,
        epoch: Epoch,
        call: Box<dyn AwaitedCall>,
    ) -> io::Result<()> {
        let mut state = lock(&group.driver().state);
        state.calls.insert(epoch, call);
        if state.is_driven {
            drop(state);
            group.exchange().wake();
            return Ok(());
        }
        // Under the lock, so that nobody takes a thread for granted that does not come.
        let started = Self::start(group);
        state.is_driven = started.is_ok();
        let refused = started.is_err().then(|| std::mem::take(&mut state.calls));
        drop(state);
        // Giving a call up takes locks of its own.
        drop(refused);
        started
    }

    /// Starts a thread that waits for all calls of a group.
    fn start(group: &Arc<impl Driven>) -> io::Result<()> {
        let group = Arc::clone(group);
        let driving = move || Self::drive(group);
        let started = thread::Builder::new().name("fsgather-await".into());
        started.spawn(driving).map(drop)
    }

    /// Waits for all calls of a group, until none is left or another thread does.
    fn drive(group: Arc<impl Driven>) {
        while let Some((epoch, call)) = group.driver().next_due(group.exchange()) {
            match unharmed(|| call.look()) {
                None | Some(Looked::GivenUp) => {}
                Some(Looked::Undecided(call)) => {
                    lock(&group.driver().state).calls.insert(epoch, call);
                }
                Some(Looked::Decided { is_here, read }) => {
                    let is_replaced = !is_here && Self::replace(&group);
                    let hand_over = read();
                    if is_replaced || group.driver().is_idle() {
                        // Who has the result may drop the communicator and end the process: leaving is for them.
                        drop(group);
                        return hand_over();
                    }
                    unharmed(hand_over);
                }
            }
        }
    }

    /// Has another thread wait for the calls that are left; whether this one need not.
    fn replace(group: &Arc<impl Driven>) -> bool {
        group.driver().is_idle() || Self::start(group).is_ok()
    }

    /// Whether there is nothing to wait for; then nobody does any more.
    fn is_idle(&self) -> bool {
        let mut state = lock(&self.state);
        state.is_driven = !state.calls.is_empty();
        !state.is_driven
    }

    /// Waits for the next call that is due, and takes it; nothing once there are none.
    fn next_due(&self, exchange: &dyn Exchange) -> Option<(Epoch, Box<dyn AwaitedCall>)> {
        loop {
            let mut due = None;
            exchange.watch(&mut |is_decided| {
                let calls = &lock(&self.state).calls;
                let mut numbered = calls.iter();
                due = numbered.find_map(|(epoch, call)| call.is_due(is_decided).then_some(*epoch));
                due.is_some() || calls.is_empty()
            });
            if self.is_idle() {
                return None;
            }
            let taken = due.and_then(|epoch| lock(&self.state).calls.remove_entry(&epoch));
            if taken.is_some() {
                return taken;
            }
        }
    }
}

/// Does what may run code of the user, such as a waker; nothing if that panics, of which the panic's own message tells.
/// Others are waited for on this thread.
fn unharmed<T>(act: impl FnOnce() -> T) -> Option<T> {
    panic::catch_unwind(AssertUnwindSafe(act)).ok()
}
