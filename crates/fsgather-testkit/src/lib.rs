//! Support for tests of fsgather; not published.
//!
//! - [`exchange_conformance`]: what every implementation of the exchange must do. One line in an
//!   implementation's tests runs all of it.
//! - [`MemoryBoard`]: a rendezvous without files, for tests inside one process.
//! - [`MemoryPost`]: places for messages without files, with all faults that such places may have.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "checks report by panicking"
)]

pub mod exchange_conformance;
mod memory_board;
mod memory_post;

pub use memory_board::MemoryBoard;
pub use memory_post::MemoryPost;
