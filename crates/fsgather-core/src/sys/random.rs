//! Random numbers: [`fresh`].

use rand::{
    RngExt,
    distr::{Distribution, StandardUniform},
    rand_core::UnwrapErr,
    rngs::SysRng,
};

/// Draws a secret, a nonce or any other number that must never repeat, from the system's generator. A generator of the
/// process itself would give a forked child the same numbers as its parent.
///
/// # Panics
///
/// If the system has no random numbers: no secret would be possible.
#[must_use]
pub fn fresh<T>() -> T
where
    StandardUniform: Distribution<T>,
{
    crate::sys::ask_model!(model => crate::sys::model::Drawing(model).random());
    UnwrapErr(SysRng).random()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_drawn_twice() {
        let drawn: [[u8; 32]; 2] = [fresh(), fresh()];
        assert_ne!(drawn[0], drawn[1]);
    }
}
