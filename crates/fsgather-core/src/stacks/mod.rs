//! Reports the activity of threads of this process, for ranks that wait for it.
//!
//! No thread is stopped, no signal is sent, and no wait for a lock of the program is longer than a second.
//!
//! - [`look`]: the report; `interest`: the thread that it is about; [`Caller`]: the threads in calls.
//! - [`interpreter`]: the functions of threads of Python.

mod caller;
mod interest;

pub mod interpreter;

use std::time::Duration;

use crate::{LockHolder, Neighbour, Whereabouts, process_state, sys::clock};
use rustix::param::clock_ticks_per_second;

use interpreter::InterpreterThread;

pub use caller::{Caller, Thread};

/// Reports the activity of this process, or of a neighbour: that of the thread in a call, else of the thread of the
/// last call, else of the main thread.
#[must_use]
pub fn look(neighbour: Option<&Neighbour>) -> Option<Whereabouts> {
    if let Some(neighbour) = neighbour {
        let state = process_state::state_of_process(neighbour.pid, neighbour.start_time)?;
        let mut seen = Whereabouts::silent(Some(state));
        seen.cpu_time = process_state::cpu_time_of_process(
            neighbour.pid,
            neighbour.start_time,
            clock_ticks_per_second(),
        );
        return Some(seen);
    }
    // This is read first, because the look adds to it.
    let cpu_time = process_state::cpu_time(clock_ticks_per_second());
    let (cpu_times, asked) = (process_state::cpu_times(), clock::now());
    let answer = interpreter::ask();
    let known = answer.as_deref().unwrap_or_default();
    let interest = interest::find(known);
    let state = || process_state::state_of_own(interest.thread?.id?);
    let mut seen = match answer {
        Ok(_) => {
            let is_it = |one: &&InterpreterThread| {
                interest.thread.is_some_and(|thread| one.thread.is(thread))
            };
            let frames = known.iter().find(is_it).map(|one| one.frames.clone());
            Whereabouts::own(frames.unwrap_or_default(), state())
        }
        Err(held_for) => {
            let (busiest, ticks) = process_state::busiest_since(&cpu_times).unzip();
            let used = ticks.unwrap_or_default() * 1000 / clock_ticks_per_second();
            let percent = u128::from(used) * 100 / asked.elapsed().as_millis().max(1);
            let mut seen = Whereabouts::own(Vec::new(), busiest.or_else(state));
            seen.lock_holder = Some(LockHolder {
                held_for: Duration::from_secs(held_for.as_secs()),
                cpu_percent: u32::try_from(percent).unwrap_or(u32::MAX),
            });
            seen
        }
    };
    seen.main_has_ended = interest.main_has_ended;
    seen.is_only_caller = interest.is_only_caller;
    seen.cpu_time = cpu_time;
    Some(seen)
}
