//! The number of a call among all of a world: [`CallId`].

use crate::{ChannelId, Epoch};

/// The number of a call, for the whole world.
///
/// ```
/// use fsgather_core::{CallId, ChannelId, Epoch};
///
/// let first = CallId {
///     channel: ChannelId::WORLD,
///     epoch: Epoch::FIRST,
/// };
/// assert_eq!(first, CallId { ..first });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    /// The communicator, or group of it.
    pub channel: ChannelId,
    /// The call's number in it.
    pub epoch: Epoch,
}
