//! Names the call that a transfer belongs to: [`CallId`].

use std::fmt;

use fsgather_core::{ChannelId, Epoch};

/// The number of a call, for the whole world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    /// The communicator.
    pub channel: ChannelId,
    /// The call within it.
    pub epoch: Epoch,
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call #{}", self.epoch)
    }
}
