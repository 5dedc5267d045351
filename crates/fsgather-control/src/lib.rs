//! The control plane of fsgather: ranks meet, agree and part.
//!
//! # Architecture
//!
//! - [`coordinator`] and [`member`]: the protocol, as two state machines without I/O. Events and the time go in, actions
//!   come out. All decisions are made here.
//! - [`message`], [`wire`], [`record`], [`noise`]: the messages, as bytes, and their protection.
//! - `rank_exchange`: the [`Exchange`](fsgather_core::Exchange) over any `carrier` of messages.
//! - `node`: the state machines of a process under one lock, for all carriers; `machines` moves messages between them.
//! - [`join`]: the meeting of a world of several processes, for every carrier.
//! - [`threads()`], [`solo`]: messages moved between threads of one process.
//! - `tcp`: messages moved over TCP.
//! - `files`: messages moved through a shared place.
//! - [`mesh`]: payloads moved over TCP directly between ranks.
//! - [`host_addresses`]: the addresses of this host.
//!
//! This crate does not use files itself: the caller provides the place for rank 0's record
//! ([`RendezvousBackend`](fsgather_core::RendezvousBackend)) and the place for messages
//! ([`Mailbox`](fsgather_core::Mailbox)).

pub mod coordinator;
pub mod member;
pub mod message;
pub mod wire;

pub mod host_addresses;
pub mod join;
pub mod mesh;

mod carrier;
mod files;
mod group_members;
mod machines;
mod node;
mod onlooker;
mod rank_exchange;
mod tcp;
mod threads;

mod forked;
mod siblings;
mod thread_call;
mod waiting;

#[cfg(test)]
mod fixtures;

#[cfg(any(test, fuzzing))]
pub mod fuzzing;

pub use fsgather_core::sys::random::fresh;
pub use join::{
    addresses::{InterfaceFilter, means_loopback_only},
    job_credentials, record,
};
pub use tcp::{descriptors::descriptors_needed, noise};
pub use threads::{solo, solo_group, threads};
