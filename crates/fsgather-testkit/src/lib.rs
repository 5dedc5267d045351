//! Support for tests of fsgather; not published.
//!
//! - [`call_results`]: checks of the results that ranks get of one call.
//! - [`corpus`]: inputs that fuzzers have found.
//! - [`exchange_conformance`]: the requirements on every implementation of the exchange. One line in an
//!   implementation's tests runs all of it.
//! - [`explorer`]: visits every state that a machine can reach.
//! - [`MemoryBackend`]: a rendezvous without files, for tests inside one process.
//! - [`MemoryMailbox`]: places for messages without files, with all faults that such places may have.
//! - [`pace`]: the number of cases that a test tries, and its limit for a hang.
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
