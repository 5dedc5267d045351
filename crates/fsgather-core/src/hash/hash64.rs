//! 64 bits of XXH3: [`Hash64`].

use std::{fmt, hash::Hasher};

use twox_hash::XxHash3_64;

/// The hash of bytes that arrive in pieces, XXH3 of 64 bits.
///
/// The boundaries of the pieces make no difference.
///
/// ```
/// use fsgather_core::hash::Hash64;
///
/// let mut hash = Hash64::new();
/// hash.write(b"what ");
/// hash.write(b"is handed in");
/// assert_eq!(hash.finish(), Hash64::of(b"what is handed in"));
/// ```
#[derive(Clone, Default)]
pub struct Hash64(XxHash3_64);

impl Hash64 {
    /// Returns the hash of no bytes.
    #[must_use]
    #[inline(never)]
    pub fn new() -> Self {
        Self(XxHash3_64::new())
    }

    /// Returns the hash of `bytes`.
    #[must_use]
    #[inline(never)]
    pub fn of(bytes: &[u8]) -> u64 {
        XxHash3_64::oneshot(bytes)
    }

    /// Adds more bytes.
    #[inline(never)]
    pub fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// Returns the hash of all bytes so far; more may follow.
    #[must_use]
    #[inline(never)]
    pub fn finish(&self) -> u64 {
        self.0.finish()
    }
}

impl fmt::Debug for Hash64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash64({:x})", self.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_others_compute() {
        // By the reference implementation in C.
        assert_eq!(Hash64::of(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(Hash64::of(b"fsgather"), 0x7492_ad8a_9ff6_1ae8);
        let long: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        assert_eq!(Hash64::of(&long), 0x42c2_3aee_ad96_750d);
        let mut hash = Hash64::new();
        for piece in long.chunks(777) {
            hash.write(piece);
        }
        assert_eq!(hash.finish(), 0x42c2_3aee_ad96_750d);
    }
}
