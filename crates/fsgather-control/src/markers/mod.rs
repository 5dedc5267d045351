//! A world without connections: messages move through a place that all ranks can read and write.
//!
//! The machines are those of the other worlds, so verdicts, failures and messages are the same. What
//! differs is the way of a message: a member leaves numbered *letters* for rank 0, and rank 0 numbered
//! *bulletins* for all (`mail`). One thread, the poller, carries them and looks for new ones (`courier`,
//! at the pace that `pace` sets), so that a file server that hangs never keeps a caller from timing out.
//! Nobody is told of the end of a process by a connection that closes: processes watch each other on
//! their host, and hosts show signs of life (`pulse`).

mod file_carrier;
mod file_node;
mod heartbeat;
mod host;
mod mail;
mod outbox;
mod poll_interval;
mod poller;
mod reorder_buffer;
mod retry_window;
mod seek;

/// Reads any bytes as what any of the files says, for fuzzers.
#[cfg(any(test, fuzzing))]
pub(crate) fn try_reading(bytes: &[u8]) {
    mail::try_reading(bytes);
    let _ = heartbeat::decode(bytes);
}

pub(crate) use file_carrier::enter;
pub(crate) use host::host;
pub(crate) use seek::{EnteredFiles, Search, Searching, search};
