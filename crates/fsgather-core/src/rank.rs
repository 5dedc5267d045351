//! The participants: [`Rank`] and [`WorldSize`].

use std::{cmp::Ordering, fmt, num::NonZeroU32};

use serde::{Deserialize, Serialize};

use crate::Error;

/// The number of one process of a job, counted from 0.
///
/// A rank means something only together with the [`WorldSize`] it was checked against; [`WorldSize::rank`] is the
/// constructor that checks. Readers of ranks from elsewhere (the wire, a file name) must check them with
/// [`WorldSize::contains`].
///
/// ```
/// # use fsgather_core as fsgather;
/// use fsgather::{Rank, WorldSize};
///
/// let world = WorldSize::new(4)?;
/// assert_eq!(world.rank(3)?, Rank::new(3));
/// assert!(world.rank(4).is_err());
/// # Ok::<(), fsgather_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rank(u32);

impl Rank {
    /// Rank 0, which coordinates the world.
    pub const ZERO: Self = Self(0);

    /// Names a rank without checking it against a world size.
    #[must_use]
    pub const fn new(rank: u32) -> Self {
        Self(rank)
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number as an index into a table with one entry for each rank.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl From<u32> for Rank {
    fn from(rank: u32) -> Self {
        Self(rank)
    }
}

impl PartialEq<u32> for Rank {
    fn eq(&self, number: &u32) -> bool {
        self.0 == *number
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Rank> for u32 {
    fn from(rank: Rank) -> Self {
        rank.0
    }
}

impl From<Rank> for u64 {
    fn from(rank: Rank) -> Self {
        rank.0.into()
    }
}

impl From<Rank> for usize {
    fn from(rank: Rank) -> Self {
        rank.index()
    }
}

impl PartialOrd<u32> for Rank {
    fn partial_cmp(&self, other: &u32) -> Option<Ordering> {
        self.0.partial_cmp(other)
    }
}

/// The number of ranks of a world or group: at least 1, at most [`WorldSize::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorldSize(NonZeroU32);

impl WorldSize {
    /// A world of one rank.
    pub const ONE: Self = Self(NonZeroU32::MIN);

    /// The largest world: file names hold five digits of rank.
    pub const MAX: u32 = 99_999;

    /// Checks a number of ranks.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for 0 and for more than [`WorldSize::MAX`].
    pub fn new(ranks: u32) -> Result<Self, Error> {
        match NonZeroU32::new(ranks) {
            Some(size) if ranks <= Self::MAX => Ok(Self(size)),
            _ => Err(Error::config(format!(
                "world size {ranks} is not between 1 and {}",
                Self::MAX
            ))),
        }
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// The number as the length of a table with one entry for each rank.
    #[must_use]
    pub const fn count(self) -> usize {
        self.0.get() as usize
    }

    /// Returns true if this is a world of one, which needs no communication.
    #[must_use]
    pub const fn is_solo(self) -> bool {
        self.0.get() == 1
    }

    /// Returns true if `rank` is a member of a world of this size.
    #[must_use]
    pub const fn contains(self, rank: Rank) -> bool {
        rank.0 < self.0.get()
    }

    /// Checks a rank against this size.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] when `rank` is not below the world size.
    pub fn rank(self, rank: u32) -> Result<Rank, Error> {
        if rank < self.get() {
            Ok(Rank(rank))
        } else {
            Err(Error::config(format!(
                "rank {rank} is outside a world of {self} ranks (0 to {})",
                self.get() - 1
            )))
        }
    }

    /// All ranks, in order.
    pub fn ranks(self) -> impl ExactSizeIterator<Item = Rank> + DoubleEndedIterator + Clone {
        (0..self.get()).map(Rank)
    }
}

impl PartialEq<u32> for WorldSize {
    fn eq(&self, other: &u32) -> bool {
        self.get() == *other
    }
}

impl PartialOrd<u32> for WorldSize {
    fn partial_cmp(&self, other: &u32) -> Option<Ordering> {
        self.get().partial_cmp(other)
    }
}

impl fmt::Display for WorldSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn world_sizes_are_bounded() {
        assert!(WorldSize::new(0).is_err());
        assert!(WorldSize::new(WorldSize::MAX).is_ok());
        assert!(WorldSize::new(WorldSize::MAX + 1).is_err());
    }

    #[test]
    fn ranks_run_from_zero_to_below_the_world_size() {
        let world = WorldSize::new(3).unwrap();
        let ranks: Vec<u32> = world.ranks().map(Rank::get).collect();
        assert_eq!(ranks, [0, 1, 2]);
        assert_eq!((world.get(), world.count()), (3, 3));
        assert!(WorldSize::ONE.is_solo() && !world.is_solo());
        assert_eq!(world.rank(2).unwrap(), Rank::new(2));
        assert!(world.rank(7).is_err());
        assert!(world.contains(Rank::new(2)));
        assert!(!world.contains(Rank::new(3)));
        let message = world.rank(3).unwrap_err().to_string();
        assert!(
            message.contains("rank 3") && message.contains("3 ranks"),
            "{message}"
        );
    }

    #[test]
    fn a_rank_is_its_number() {
        let rank = Rank::from(7);
        assert_eq!((rank.get(), rank.index()), (7, 7));
        assert!(rank == 7 && rank != 8);
    }
}
