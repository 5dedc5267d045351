//! Takes payloads from one rank to the others.
//!
//! A call follows one path through this module: a [`session`] starts it, [`outgoing`] takes the rank's
//! [`source`] and decides how it travels, an [`announcement`] says so to the others, [`relay`] moves what
//! neither fits into the announcement nor lies in a file nor has connections to go over, and [`incoming`]
//! hands out what arrived, whole or as a [`stream`]. An [`origin`] is what binds a payload to its rank and its call.

pub(crate) mod announcement;
pub(crate) mod incoming;
pub(crate) mod manner;
mod origin;
pub(crate) mod outgoing;
pub(crate) mod relay;
pub(crate) mod session;
pub(crate) mod source;
pub(crate) mod spool;
pub(crate) mod stream;
