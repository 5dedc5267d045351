//! The transfer of payloads from one rank to the others.
//!
//! - [`input`]: a rank's payload, before it is taken and while its call is under way.
//! - [`writer`]: takes it, within the [`bound`] of its call, and chooses its transport.
//! - [`header`]: announces it to the others.
//! - [`origin`]: binds a payload to its rank and its call.
//! - [`retention`]: the time for which it stays with its owner.
//! - [`relay`]: moves payloads without another path through rank 0; [`mesh`]: from rank to rank, in a [`ring_order`].
//! - [`part`]: one rank's payload as it has arrived, whole or as a [`stream`].
//! - [`ahead`]: fetches parts of other hosts before they are requested.
//! - [`host_reading`]: ranks of a host read files for each other, by [`reading_turns`].
//! - [`own_part`]: payloads that only their owners receive.
//! - [`spool`]: a stream too long to be held, in a nameless local file.
//! - [`path`]: the path of payloads; [`path_request`]: the request of a call; [`known_paths`]: the paths that a group
//!   has found.
//! - [`shared_memory`]: payloads in memory of all ranks of a host; [`placing`] announces them.
//! - [`directories`]: the gather directories of this process; [`links`]: its connections to other ranks.

pub(crate) mod ahead;
pub(crate) mod bound;
pub(crate) mod directories;
pub(crate) mod header;
pub(crate) mod host_reading;
pub(crate) mod input;
pub(crate) mod known_paths;
pub(crate) mod links;
pub(crate) mod mesh;
mod origin;
mod own_part;
pub(crate) mod part;
pub(crate) mod path;
pub(crate) mod path_request;
mod placing;
mod reading_turns;
pub(crate) mod relay;
pub(crate) mod retention;
pub(crate) mod ring_order;
pub(crate) mod shared_memory;
mod spool;
pub(crate) mod stream;
pub(crate) mod writer;
