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

use fsgather_core::{Neighbour, ThreadState, Whereabouts};

pub use caller::Caller;
pub use memory::{Memory, OwnMemory};

/// What this process is doing, or a neighbour: by the thread that is in a call, or that was in the last one, or by the main thread.
#[must_use]
pub fn look(neighbour: Option<&Neighbour>) -> Option<Whereabouts> {
    if let Some(neighbour) = neighbour {
        let state = thread::state_of_process(neighbour.pid, neighbour.start_time)?;
        return Some(Whereabouts::silent(Some(state)));
    }
    let interest = interest::find();
    let id = interest.thread.and_then(|thread| thread.id);
    // Functions of Python and of machine code are of one moment, or the latter are not told.
    let rest = id.and_then(thread::rest_of);
    let python = interest.thread.map(python::stack_of).unwrap_or_default();
    let state = id.and_then(thread::state_of_own);
    let mut frames = python.frames;
    if let (Some(id), Some(rest), Some(ThreadState::Waiting { .. })) = (id, rest, &state) {
        frames.extend(native::frames_of(id, rest, !frames.is_empty()));
    }
    let mut seen = Whereabouts::own(frames, state);
    seen.holds_interpreter = python.holds_lock;
    seen.main_has_ended = interest.main_has_ended;
    Some(seen)
}
