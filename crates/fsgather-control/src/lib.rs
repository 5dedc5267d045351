//! The control plane of fsgather: how ranks meet, agree and part.
//!
//! # Architecture
//!
//! - [`coordinator`] and [`member`]: the protocol, as two state machines without I/O. Events and the
//!   time go in, actions come out. Everything that decides is here.
//! - [`message`], [`wire`], [`record`], [`noise`]: what is said, as bytes, and how it is protected.
//! - `seat`: the [`Exchange`](fsgather_core::Exchange) over anything that moves messages.
//! - [`threads()`]: messages moved between threads of one process.
//! - [`tcp`]: messages moved over TCP. `transport` alone knows sockets, `hub` connects sockets and
//!   machines, `baton` decides which thread does the work, `join` brings ranks together.
//!
//! Nothing here knows files; where rank 0 leaves word for the others is somebody else's business
//! ([`Noticeboard`](fsgather_core::Noticeboard)).

pub mod message;
pub mod noise;
pub mod record;
pub mod wire;

pub mod coordinator;
pub mod member;

mod driver;
mod seat;
mod threads;

mod addresses;
mod baton;
mod gate;
mod hub;
mod join;
mod line;
mod siblings;
pub mod tcp;
mod transport;

pub use addresses::InterfaceFilter;
pub use siblings::IsRunning;
pub use threads::threads;
