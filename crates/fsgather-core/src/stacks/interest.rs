//! Chooses the thread of this process to report: [`find`].

use std::process;

use crate::{MOST_FRAMES, ThreadState, process_state::state_of_own};

use super::caller::{Thread, after_last_call, within_calls};
use super::interpreter::{self, InterpreterThread};

/// The thread to report.
#[derive(Debug)]
pub(crate) struct Interest {
    /// None if all known threads have ended.
    pub(crate) thread: Option<Thread>,
    /// True if it is in a call, and no other thread is.
    pub(crate) is_only_caller: bool,
    /// True if the process continues without its first thread.
    pub(crate) main_has_ended: bool,
}

/// Finds the thread that entered last of those in calls; else the thread of the last call; else the main thread; else
/// any other thread of the interpreter. `known` are the threads of the interpreter.
pub(crate) fn find(known: &[InterpreterThread]) -> Interest {
    let first = Thread {
        id: Some(process::id()),
        handle: None,
    };
    // An idle thread of a pool made the last call only on behalf of another thread.
    let last = after_last_call().filter(|last| !is_idle(*last, known));
    let within: Vec<Thread> = within_calls().into_iter().filter(lives).collect();
    let main = interpreter::main_thread(known).unwrap_or(first);
    let candidates = within.iter().copied().chain(last).chain([main]);
    let thread = candidates.into_iter().find(lives);
    Interest {
        is_only_caller: !within.is_empty() && within.iter().all(|caller| Some(*caller) == thread),
        // The process's own main thread is alive if the program runs Python on another thread and waits for that.
        thread: thread
            .or_else(|| any_other(main, known))
            .or_else(|| Some(first).filter(lives)),
        main_has_ended: first.id.and_then(state_of_own) == Some(ThreadState::Ended),
    }
}

/// Returns true if a thread is only in functions of libraries.
fn is_idle(thread: Thread, known: &[InterpreterThread]) -> bool {
    let known = known.iter().find(|known| known.thread.is(thread));
    known.is_some_and(|known| {
        let frames = &known.frames;
        // The program's functions may be the outer ones of a deeper stack.
        (1..MOST_FRAMES).contains(&frames.len()) && !frames.iter().any(|frame| frame.is_own)
    })
}

/// Returns a thread of the interpreter that is not the main thread, preferably one in functions of the program.
fn any_other(main: Thread, known: &[InterpreterThread]) -> Option<Thread> {
    let others = known
        .iter()
        .filter(|known| !known.thread.is(main) && lives(&known.thread));
    let is_own = |known: &&InterpreterThread| known.frames.iter().any(|frame| frame.is_own);
    others.max_by_key(is_own).map(|known| known.thread)
}

/// Returns true if a thread still exists; a thread without a number is assumed to exist.
fn lives(thread: &Thread) -> bool {
    let state = thread.id.map(state_of_own);
    state.is_none_or(|state| state.is_some_and(|state| state != ThreadState::Ended))
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;
    use crate::stacks::caller::Caller;

    #[test]
    fn threads_in_calls_come_first_then_last_caller_then_main() {
        let told = || find(&[]).thread.unwrap().id;
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
        assert!(!find(&[]).is_only_caller, "this one is in a call as well");
        go.send(()).unwrap();
        hear.recv().unwrap();
        assert_eq!(told(), here);
        assert!(find(&[]).is_only_caller);
        drop(outer);
        assert!(!find(&[]).is_only_caller);
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
        assert!(!find(&[]).main_has_ended);
        drop(go);
        other.join().unwrap();
    }
}
