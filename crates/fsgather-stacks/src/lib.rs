//! Tells what the threads of this process are doing, for ranks that wait for it.
//!
//! Nothing is stopped, no signal is sent, no lock is waited for: memory is read through the kernel, so that a pointer that leads
//! nowhere is an error, and what has changed while it was read is read again or not told.
//!
//! - [`look`]: what rank 0 is told; [`Caller`]: which thread that is about.
//! - [`python`]: the functions that a thread of Python is in.
//! - `thread`: what the kernel does with a thread; `memory`: reading.

mod caller;
mod memory;
mod thread;

pub mod python;

use fsgather_core::{Neighbour, Whereabouts};

pub use caller::Caller;
pub use memory::{Memory, OwnMemory};

/// What this process is doing, or a neighbour: by the thread that is in a call, or else by the main thread.
#[must_use]
pub fn look(neighbour: Option<&Neighbour>) -> Option<Whereabouts> {
    if let Some(neighbour) = neighbour {
        let state = thread::state_of_process(neighbour.pid, neighbour.start_time)?;
        return Some(Whereabouts::silent(Some(state)));
    }
    let thread = caller::thread_of_interest();
    let python = python::stack_of(thread);
    let state = thread::state_of_own(thread.id);
    let mut seen = Whereabouts::own(python.frames, state);
    seen.holds_interpreter = python.holds_lock;
    Some(seen)
}
