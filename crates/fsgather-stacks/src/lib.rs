//! Reports what threads of this process are doing, for ranks that wait for it.
//!
//! Nothing is stopped, no signal is sent, no lock is waited for: memory is read through the kernel, so that a pointer that leads
//! nowhere is an error, and what has changed while it was read is read again or not told.
//!
//! - [`look`]: the report; `interest`: which thread it is about; [`Caller`]: the threads that are in calls.
//! - [`python`]: the functions that a thread of Python is in.
//! - `thread`: the state of a thread in the kernel; `object`: the file or address that it waits for; `memory`: reading memory.

mod caller;
mod interest;
mod memory;
mod object;
mod thread;

pub mod python;

use fsgather_core::{Neighbour, Whereabouts};

pub use caller::Caller;
pub use memory::{Memory, OwnMemory};

/// Reports what this process is doing, or a neighbour: by the thread that is in a call, or that was in the last one, or by the main
/// thread.
#[must_use]
pub fn look(neighbour: Option<&Neighbour>) -> Option<Whereabouts> {
    if let Some(neighbour) = neighbour {
        let state = thread::state_of_process(neighbour.pid, neighbour.start_time)?;
        return Some(Whereabouts::silent(Some(state)));
    }
    let interest = interest::find();
    let python = interest.thread.map(python::stack_of).unwrap_or_default();
    let id = interest.thread.and_then(|thread| thread.id);
    let mut seen = Whereabouts::own(python.frames, id.and_then(thread::state_of_own));
    seen.holds_interpreter = python.holds_lock;
    seen.main_has_ended = interest.main_has_ended;
    seen.is_only_caller = interest.is_only_caller;
    Some(seen)
}
