//! Tells what the threads of this process are doing, for ranks that wait for it.
//!
//! Nothing is stopped, no signal is sent, no lock is waited for: memory is read through the kernel, so that a pointer that leads
//! nowhere is an error, and what has changed while it was read is read again or not told.
//!
//! - [`look`]: what rank 0 is told; `interest`: which thread that is about; [`Caller`]: who makes calls.
//! - [`python`]: the functions that a thread of Python is in.
//! - `native`: the functions of machine code that a thread waits in.
//! - `thread`: what the kernel does with a thread; `object`: the file or address that it waits for; `memory`: reading.

mod caller;
mod interest;
mod memory;
mod native;
mod object;
mod thread;

pub mod python;

use std::time::Duration;

use fsgather_core::{Neighbour, StackFrame, ThreadState, Whereabouts};
use fsgather_system::clock;

use caller::Thread;

pub use caller::Caller;
pub use memory::{Memory, OwnMemory};

/// How often a thread of no Python is looked at that does not rest, and how long it has in between.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(2);

/// What this process is doing, or a neighbour: by the thread that is in a call, or that was in the last one, or by the main thread.
#[must_use]
pub fn look(neighbour: Option<&Neighbour>) -> Option<Whereabouts> {
    if let Some(neighbour) = neighbour {
        let state = thread::state_of_process(neighbour.pid, neighbour.start_time)?;
        return Some(Whereabouts::silent(Some(state)));
    }
    let interest = interest::find();
    let (frames, state, holds_lock) = interest.thread.map(look_at).unwrap_or_default();
    let mut seen = Whereabouts::own(frames, state);
    seen.holds_interpreter = holds_lock;
    seen.main_has_ended = interest.main_has_ended;
    seen.is_only_caller = interest.is_only_caller;
    Some(seen)
}

/// The functions that a thread is in, what the kernel does with it, and whether it holds the interpreter's lock.
///
/// Functions of machine code are of the same moment as the others, or they are not told. A thread that is to wait may just not do so
/// yet, above all the one that has had this look made.
fn look_at(thread: Thread) -> (Vec<StackFrame>, Option<ThreadState>, bool) {
    let mut left = TRIES;
    loop {
        let rest = thread.id.and_then(thread::rest_of);
        let python = python::stack_of(thread);
        let state = thread.id.and_then(thread::state_of_own);
        let of_python = !python.frames.is_empty();
        let machine = match (thread.id, rest, &state) {
            (Some(id), Some(rest), Some(ThreadState::Waiting { .. })) => {
                native::frames_of(id, rest, of_python)
            }
            _ => None,
        };
        left -= 1;
        if machine.is_some() || of_python || left == 0 || thread.id.is_none() {
            let mut frames = python.frames;
            frames.extend(machine.unwrap_or_default());
            return (frames, state, python.holds_lock);
        }
        clock::sleep(PAUSE);
    }
}
