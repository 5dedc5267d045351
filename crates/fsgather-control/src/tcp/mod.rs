//! A world whose messages go over TCP: every member has a connection to rank 0.
//!
//! - `host`: forms a world on rank 0, and takes a member's place in one.
//! - `carrier`: moves the messages of a rank, for its exchange.
//! - `node`: the state machines of a rank, and the queues of its connections.
//! - `runtime`: the network runtime, run by the thread that waits.
//! - `tasks`: tasks of that runtime whose panics are reported.
//! - `server`: lets members in on rank 0, and refuses other processes.
//! - `acceptor`: accepts connections, and limits how many may be unauthenticated.
//! - `attempt`: a member's try to be accepted.
//! - `connection`: one connection: preamble, handshake, frames. No other file opens sockets.
//! - `noise`: the handshake and the encryption; `unsealing`: takes encrypted records apart as they arrive.
//! - `descriptors`: checks that this process may open as many files as it needs.
//! - `interfaces`: the addresses of this host.

pub(crate) mod acceptor;
pub(crate) mod attempt;
mod carrier;
pub(crate) mod connection;
pub(crate) mod descriptors;
pub(crate) mod host;
pub(crate) mod interfaces;
mod node;
pub mod noise;
pub(crate) mod runtime;
mod server;
pub(crate) mod tasks;
pub(crate) mod unsealing;
