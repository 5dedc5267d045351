//! Support for tests of fsgather; not published.
//!
//! - [`call_results`]: what ranks may get of one call.
//! - [`corpus`]: inputs that fuzzers have kept.
//! - [`exchange_conformance`]: what every implementation of the exchange must do. One line in an
//!   implementation's tests runs all of it.
//! - [`explorer`]: every state that a machine can come to.
//! - [`MemoryBackend`]: a rendezvous without files, for tests inside one process.
//! - [`MemoryMailbox`]: places for messages without files, with all faults that such places may have.
//! - [`pace`]: how many cases a test tries, and how long it waits before it gives up a hang.
//! - [`process`]: processes that tests start, with a limit and with the signals of a terminal.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "checks report by panicking, and by saying why something was ended"
)]

pub mod call_results;
pub mod corpus;
pub mod exchange_conformance;
pub mod explorer;
mod memory_backend;
mod memory_mailbox;
pub mod pace;
pub mod process;

pub use memory_backend::MemoryBackend;
pub use memory_mailbox::MemoryMailbox;
