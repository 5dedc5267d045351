//! Support for tests of fsgather; not published.
//!
//! - [`exchange_conformance`]: what every implementation of the exchange must do. One line in an
//!   implementation's tests runs all of it.
//! - [`MemoryBoard`]: a rendezvous without files, for tests inside one process.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "checks report by panicking"
)]

pub mod exchange_conformance;
mod memory_board;

pub use memory_board::MemoryBoard;
