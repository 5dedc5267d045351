//! One collective call from its number to its end.
//!
//! - [`guard`]: numbers a call, and fails it on all ranks if it is dropped unfinished.
//! - [`started`]: takes this rank's payload, waits for the verdict, and reads the payloads of the others.
//! - [`open_calls`]: calls whose results have not been taken; [`open_call`] holds one open.
//! - [`nesting`]: refuses a call inside another one.
//! - [`blocking`]: blocks inside of the caller's runtime.

pub(crate) mod blocking;
pub(crate) mod guard;
pub(crate) mod nesting;
pub(crate) mod open_call;
pub(crate) mod open_calls;
pub(crate) mod started;
