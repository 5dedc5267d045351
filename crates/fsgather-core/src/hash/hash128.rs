//! 128 bits of XXH3: [`Hash128`].

use std::fmt;

use twox_hash::XxHash3_128;

/// The hash of bytes that arrive in pieces, XXH3 of 128 bits.
///
/// The boundaries of the pieces make no difference.
///
/// ```
/// use fsgather_core::hash::Hash128;
///
/// let mut hash = Hash128::new();
/// hash.write(b"what ");
/// hash.write(b"is handed in");
/// assert_eq!(hash.finish(), Hash128::of(b"what is handed in"));
/// ```
#[derive(Clone, Default)]
pub struct Hash128(XxHash3_128);

impl Hash128 {
    /// Returns the hash of no bytes.
    #[must_use]
    #[inline(never)]
    pub fn new() -> Self {
        Self(XxHash3_128::new())
    }

    /// Returns the hash of `bytes`.
    #[must_use]
    #[inline(never)]
    pub fn of(bytes: &[u8]) -> u128 {
        XxHash3_128::oneshot(bytes)
    }

    /// Adds more bytes.
    #[inline(never)]
    pub fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// Returns the hash of all bytes so far; more may follow.
    #[must_use]
    #[inline(never)]
    pub fn finish(&self) -> u128 {
        self.0.finish_128()
    }
}

impl fmt::Debug for Hash128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash128({:x})", self.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_others_compute() {
        // By the reference implementation in C.
        assert_eq!(Hash128::of(b""), 0x99aa_06d3_0147_98d8_6001_c324_468d_497f);
        assert_eq!(
            Hash128::of(b"fsgather"),
            0xefdb_ee11_d829_6c36_8880_fd92_4a9c_3602
        );
        let long: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        assert_eq!(
            Hash128::of(&long),
            0x5418_2c58_bbb1_337c_42c2_3aee_ad96_750d
        );
        let mut hash = Hash128::new();
        for piece in long.chunks(777) {
            hash.write(piece);
        }
        assert_eq!(hash.finish(), 0x5418_2c58_bbb1_337c_42c2_3aee_ad96_750d);
    }
}
