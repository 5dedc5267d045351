//! Messages about the members of groups: [`GroupRequest`].

use fsgather_core::{ChannelId, Rank};
use serde::{Deserialize, Serialize};

/// A message of a member that joins or leaves a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupRequest {
    /// The member takes part in a group from here on.
    Open {
        /// The communicator.
        channel: ChannelId,
        /// The members in the group's order, by their ranks in the world.
        members: Vec<Rank>,
    },
    /// The member takes part in a group no more.
    Retire {
        /// The communicator.
        channel: ChannelId,
    },
}
