//! The time for which a payload stays with its owner: [`Retention`].

use fsgather_core::Leaves;

/// The time for which a payload stays with its owner, which is the same on all ranks of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retention {
    /// All ranks are in the call until all of it has been received.
    Passing,
    /// Ranks continue once it is announced; it stays until its only reader has read it.
    KeptForReader,
    /// Ranks continue once it is announced; it stays until all recipients have reported that they are done.
    Kept,
}

impl Retention {
    /// Returns the rule for the removal of payload files.
    pub(crate) const fn leaves_of_files(self) -> Leaves {
        match self {
            // The only reader removes each as soon as it has been read, without a message.
            Self::KeptForReader => Leaves::ForReader,
            Self::Passing | Self::Kept => Leaves::ForOwner,
        }
    }
}
