//! The role of a rank in a directory for messages: [`Role`].

use fsgather_core::Rank;

/// The user of a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Rank 0.
    Coordinator,
    /// Another rank, with the number that identifies its process among all that claim to be this rank.
    Member { rank: Rank, sender: u64 },
}

impl Role {
    /// Rank of the user.
    pub(crate) const fn rank(self) -> Rank {
        match self {
            Self::Coordinator => Rank::ZERO,
            Self::Member { rank, .. } => rank,
        }
    }
}
