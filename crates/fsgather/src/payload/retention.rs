//! Says how long a payload stays with its owner: [`Retention`].

use fsgather_core::Leaves;

/// How long a payload stays with its owner, which is the same on all ranks of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retention {
    /// All ranks are in the call until all of it has been received.
    Passing,
    /// Ranks go on once it is announced; it stays until its only reader has read it.
    KeptForReader,
    /// Ranks go on once it is announced; it stays until all recipients have said that they are done.
    Kept,
}

impl Retention {
    /// Who removes payload files.
    pub(crate) const fn leaves_of_files(self) -> Leaves {
        match self {
            // The only reader removes each as soon as it has been read, without a message.
            Self::KeptForReader => Leaves::ForReader,
            Self::Passing | Self::Kept => Leaves::ForOwner,
        }
    }
}
