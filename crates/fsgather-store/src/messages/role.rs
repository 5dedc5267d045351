//! The part that a rank has in a directory for messages: [`Role`].

use fsgather_core::Rank;

/// Who uses a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Rank 0.
    Coordinator,
    /// Another rank, and which of the processes that say they are it.
    Member { rank: Rank, sender: u64 },
}

impl Role {
    /// Which rank it is.
    pub(crate) const fn rank(self) -> Rank {
        match self {
            Self::Coordinator => Rank::ZERO,
            Self::Member { rank, .. } => rank,
        }
    }
}
