//! Payloads directly between ranks, over real sockets: rings, pulls, and what goes wrong with them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bed;
mod pulls;
mod rings;
