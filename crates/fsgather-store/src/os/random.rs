//! Random numbers: [`fresh`].

use rand::{
    RngExt,
    distr::{Distribution, StandardUniform},
    rand_core::UnwrapErr,
    rngs::SysRng,
};

/// Draws a nonce from the system's generator. A generator of the process's own would give a forked child what it gives
/// its parent.
///
/// # Panics
///
/// Where the system has no random numbers.
pub(crate) fn fresh<T>() -> T
where
    StandardUniform: Distribution<T>,
{
    UnwrapErr(SysRng).random()
}
