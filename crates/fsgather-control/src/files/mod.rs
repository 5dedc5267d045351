//! A world without connections: messages move through a place that all ranks can read and write.
//!
//! The machines are those of the other worlds, so verdicts, failures and messages are the same. The way of a message
//! differs: a member leaves numbered *letters* for rank 0, and rank 0 numbered *bulletins* for all. One thread, the poller,
//! carries them and looks for new ones, so that a file server that hangs never keeps a caller from timing out. No
//! connection closes when a process ends: processes watch each other on their host, and hosts show signs of life.
//!
//! - `host`: forms a world on rank 0; `seek`: a member's search for one.
//! - `carrier`: moves the messages of a rank, for its exchange.
//! - `node`: the state machines of a rank, and its messages.
//! - `poller`: the thread that writes and finds marker files; `poll_interval`: its pauses.
//! - `endpoint`: letters and bulletins: numbers, order, bytes; `reorder_buffer`: sorts messages that arrive out of order.
//! - `outbox`: messages to write, which are written again until they are sure to be there.
//! - `heartbeat`: signs of life of hosts.
//! - `retry_window`: the time for which a failing call is retried.

mod carrier;
mod endpoint;
mod heartbeat;
mod host;
mod node;
mod outbox;
mod poll_interval;
mod poller;
mod reorder_buffer;
mod retry_window;
mod seek;

/// Reads any bytes as the contents of each kind of file, for fuzzers.
#[cfg(any(test, fuzzing))]
pub(crate) fn try_reading(bytes: &[u8]) {
    endpoint::try_reading(bytes);
    let _ = heartbeat::decode(bytes);
}

pub(crate) use carrier::enter;
pub(crate) use host::host;
pub(crate) use seek::{EnteredFiles, Search, Searching, search};
