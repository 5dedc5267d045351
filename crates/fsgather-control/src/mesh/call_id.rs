//! Names the call that a transfer belongs to: [`CallId`].

use fsgather_core::{ChannelId, Epoch};

/// The number of a call, for the whole world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    /// The communicator.
    pub channel: ChannelId,
    /// The call within it.
    pub epoch: Epoch,
}
