//! How payloads get from one rank to the others.
//!
//! A call follows one path through this module: a [`session`] starts it, [`outgoing`] takes the rank's
//! bytes and decides how they travel, an [`announcement`] says so to the others, [`relay`] moves what
//! neither fits into the announcement nor lies in a file, and [`incoming`] hands out what arrived.

pub(crate) mod announcement;
pub(crate) mod incoming;
pub(crate) mod outgoing;
pub(crate) mod relay;
pub(crate) mod session;
