//! The control plane of fsgather: how ranks meet, agree and part.
//!
//! # Architecture
//!
//! - [`coordinator`] and [`member`]: the protocol, as two state machines without I/O. Events and the
//!   time go in, actions come out. Everything that decides is here.
//! - [`message`], [`wire`], [`record`], [`noise`]: what is said, as bytes, and how it is protected.
//! - `rank_exchange`: the [`Exchange`](fsgather_core::Exchange) over anything that moves messages.
//! - `node`: the state machines of a process under one lock, for all carriers.
//! - [`threads()`], [`solo`]: messages moved between threads of one process.
//! - [`meet`]: how a world of several processes comes together, whatever carries its messages.
//! - `tcp`: messages moved over TCP. `transport` alone knows sockets, `tcp_node` connects sockets and
//!   machines, `caller_runtime` decides which thread does the work, `join` and `attempt` find rank 0.
//! - `markers`: messages moved through a shared place.
//! - [`mesh`]: payloads moved over TCP directly between ranks.
//! - [`reach`]: whether ranks can reach rank 0, tried out beside a world.
//!
//! Nothing here knows files; where rank 0 leaves word for the others
//! ([`RendezvousBackend`](fsgather_core::RendezvousBackend)) and where messages are left
//! ([`Mailbox`](fsgather_core::Mailbox)) is somebody else's business.

pub mod bond;
pub mod message;
pub mod noise;
pub mod record;
pub mod wire;

pub mod coordinator;
pub mod member;

mod carrier;
mod expecting;
mod machines;
mod node;
mod rank_exchange;
mod threads;
mod waiting;

mod accept;
mod addresses;
mod aside;
mod attempt;
mod caller_runtime;
mod config;
mod descriptors;
mod door;
mod findings;
mod forked;
mod join;
mod join_event;
mod objecting;
mod random;
mod records;
mod refusal;
mod search;
mod siblings;
mod tcp;
mod tcp_carrier;
mod tcp_node;
mod tend;
mod transport;

mod markers;

pub mod meet;
pub mod mesh;
pub mod reach;

#[cfg(any(test, fuzzing))]
pub mod fuzzing;

pub use addresses::{InterfaceFilter, means_loopback_only};
pub use descriptors::descriptors_needed;
pub use random::fresh;
pub use siblings::IsRunning;
pub use threads::{solo, solo_group, threads};
