//! One collective call from its number to its end.
//!
//! - [`guard`]: numbers a call, and fails it on all ranks if it is dropped unfinished.
//! - [`started`]: takes this rank's payload, waits for the verdict, and reads what the others have handed in.
//! - [`open_calls`]: those of which something is still to be had; [`open_call`] holds one open.
//! - [`blocking`]: waits inside of somebody else's runtime.

pub(crate) mod blocking;
pub(crate) mod guard;
pub(crate) mod open_call;
pub(crate) mod open_calls;
pub(crate) mod started;
