//! Payloads directly between ranks, over real sockets: rings, pulls, and their failures.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod ahead;
mod bed;
mod faults;
mod host_memory;
mod meeting;
mod proxy;
mod pulls;
mod rings;
