//! The events of a run: [`Event`]. The threads of a run send them to the main thread.

use std::io;

use rustix::process::Signal;

/// An event during a run.
#[derive(Debug)]
pub(super) enum Event {
    /// At least one child process may have ended.
    ChildEnded,
    /// This process received a signal that ends the job.
    Signal(Signal),
    /// Standard output has failed.
    OutputFailed(io::Error),
    /// All ranks have closed their output, and it is delivered.
    Drained,
    /// The relay has delivered everything and has ended.
    RelayEnded,
}
