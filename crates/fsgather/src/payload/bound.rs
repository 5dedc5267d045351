//! The bound of a call on each payload, and the part of a payload that counts: [`Bound`]. Pure.

use fsgather_core::{Error, Peer};

/// The maximum length of a payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    /// The maximum that the call allows, in bytes of the program's own.
    allowed: Option<u64>,
    /// The number of leading bytes that are not the program's own.
    uncounted: u64,
}

impl Bound {
    pub(crate) const fn new(allowed: Option<u64>, uncounted: u64) -> Self {
        Self { allowed, uncounted }
    }

    /// Returns true if a payload of `len` bytes, counted or not, is too long.
    pub(crate) fn is_exceeded_by(self, len: u64) -> bool {
        self.check(len).is_some()
    }

    /// Returns the error of a rank that hands in a payload of `len` bytes, if it is too long.
    pub(crate) fn problem(self, len: u64, peer: impl FnOnce() -> Peer) -> Option<Error> {
        self.check(len)
            .map(|(size, bound)| Error::too_large(peer(), size, bound))
    }

    fn check(self, len: u64) -> Option<(u64, u64)> {
        let counted = len.saturating_sub(self.uncounted);
        let allowed = self.allowed?;
        (counted > allowed).then_some((counted, allowed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fills_it_is_allowed_and_a_byte_more_is_not() {
        let bound = Bound::new(Some(100), 0);
        assert!(!bound.is_exceeded_by(100));
        assert!(bound.is_exceeded_by(101));
        assert!(!Bound::new(None, 0).is_exceeded_by(u64::MAX));
    }

    #[test]
    fn a_header_is_neither_counted_nor_told() {
        let bound = Bound::new(Some(100), 16);
        assert!(!bound.is_exceeded_by(7));
        assert!(!bound.is_exceeded_by(116));
        assert_eq!(bound.check(117), Some((101, 100)));
        assert!(!Bound::new(Some(u64::MAX), 16).is_exceeded_by(u64::MAX));
    }
}
