//! The thread of this process that others want to hear of: [`find`].

use std::process;

use fsgather_core::ThreadState;

use crate::{
    caller::{Thread, after_last_call, within_calls},
    python,
    thread::state_of_own,
};

/// Which thread is told of.
#[derive(Debug)]
pub(crate) struct Interest {
    /// None where all are gone that are known.
    pub(crate) thread: Option<Thread>,
    /// Whether it is in a call, and no other one is.
    pub(crate) is_only_caller: bool,
    /// Whether the process goes on without the thread that it began with.
    pub(crate) main_has_ended: bool,
}

/// The thread that came last of those that are in calls, or else that was in the last call, or else the main one, or any of Python's.
pub(crate) fn find() -> Interest {
    let first = Thread {
        id: Some(process::id()),
        handle: None,
    };
    let main = python::main_thread().unwrap_or(first);
    // A thread of a pool that waits for work has made the last call only because it was told to.
    let last = after_last_call().filter(|last| !python::is_idle(*last));
    let within: Vec<Thread> = within_calls().into_iter().filter(lives).collect();
    let candidates = within.iter().copied().chain(last).chain([main]);
    let thread = candidates.into_iter().find(lives);
    Interest {
        is_only_caller: !within.is_empty() && within.iter().all(|caller| Some(*caller) == thread),
        // The process's own main thread lives in a program that runs Python elsewhere, and waits for that.
        thread: thread
            .or_else(|| python::any_thread(lives))
            .or_else(|| Some(first).filter(lives)),
        main_has_ended: first.id.and_then(state_of_own) == Some(ThreadState::Ended),
    }
}

/// Whether a thread is still there; nobody can tell of one without a number.
fn lives(thread: &Thread) -> bool {
    let state = thread.id.map(state_of_own);
    state.is_none_or(|state| state.is_some_and(|state| state != ThreadState::Ended))
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;
    use crate::Caller;

    #[test]
    fn who_is_in_a_call_is_of_interest_then_who_was_in_the_last_one_and_then_the_main_thread() {
        let told = || find().thread.unwrap().id;
        assert_eq!(told(), Some(process::id()));
        let here = Thread::current().id;
        assert_ne!(
            here,
            Some(process::id()),
            "tests run on threads of their own"
        );
        let (tell, hear) = mpsc::channel();
        let (go, goes) = mpsc::channel::<()>();
        let outer = Caller::enter();
        let other = thread::spawn(move || {
            let inner = Caller::enter();
            tell.send(Thread::current().id).unwrap();
            goes.recv().unwrap();
            drop(inner);
            tell.send(None).unwrap();
            let _ = goes.recv();
        });
        let there = hear.recv().unwrap();
        assert_eq!(told(), there, "it came last");
        assert!(!find().is_only_caller, "this one is in a call as well");
        go.send(()).unwrap();
        hear.recv().unwrap();
        assert_eq!(told(), here);
        assert!(find().is_only_caller);
        drop(outer);
        assert!(!find().is_only_caller);
        let again = Caller::enter();
        let inner = thread::spawn(|| drop(Caller::enter()));
        inner.join().unwrap();
        drop(again);
        assert_eq!(told(), here, "it has left the last call");
        let before_last = thread::spawn(|| drop(Caller::enter()));
        before_last.join().unwrap();
        let start = std::time::Instant::now();
        while told() != Some(process::id()) {
            assert!(start.elapsed().as_secs() < 120, "it has ended");
            thread::yield_now();
        }
        assert!(!find().main_has_ended);
        drop(go);
        other.join().unwrap();
    }
}
