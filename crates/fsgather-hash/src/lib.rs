//! The hashes by which fsgather knows damaged bytes: [`Hash64`] of pieces, [`Hash128`] of a whole.
//!
//! They are [XXH3](https://xxhash.com) without a seed, as that is specified, so that others can compute them. They find damage and no
//! forgery: whoever wants to can make bytes that have a given hash.
//!
//! Nothing here is generic or inlined, so that this crate alone decides how fast it is: it is optimized where the others are built to be
//! looked into, without which hashing would take most of the time of tests.

mod hash128;
mod hash64;

pub use hash64::Hash64;
pub use hash128::Hash128;
