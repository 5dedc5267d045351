//! Hashes that detect damaged bytes: [`Hash64`] of pieces, [`Hash128`] of a whole.
//!
//! They are [XXH3](https://xxhash.com) without a seed, as specified, so that other programs can compute them. They detect damage, not
//! forgery: anyone can make bytes with a given hash.
//!
//! Nothing here is generic or inlined, so that the build options of this crate decide its speed. Debug builds optimize this crate;
//! otherwise hashing would take most of the time of tests.

mod hash128;
mod hash64;

pub use hash64::Hash64;
pub use hash128::Hash128;
