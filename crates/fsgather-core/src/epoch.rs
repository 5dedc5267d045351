//! Which call: [`ChannelId`], [`Epoch`], [`Round`] and their product, [`Step`].

use std::fmt;

use serde::{Deserialize, Serialize};

/// One communicator's lane over the world's connections.
///
/// The world itself is [`ChannelId::WORLD`]; each group has one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChannelId(u64);

impl ChannelId {
    /// The channel of all ranks.
    pub const WORLD: Self = Self(0);

    /// Names a channel by its number.
    #[must_use]
    pub const fn new(id: u64) -> Self {
        Self(id)
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// The number of a collective call within its channel, counted from 0 in the order of starting.
///
/// All ranks must start their calls in the same order; epochs are how that is checked.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(u64);

impl Epoch {
    /// The first call.
    pub const FIRST: Self = Self(0);

    /// Names an epoch by its number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The epoch after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One exchange within a call.
///
/// Round 0 decides the call: it carries inline payloads and locators. A call whose payloads travel
/// over the control plane in pieces has further rounds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Round(u32);

impl Round {
    /// The round that decides the call.
    pub const VERDICT: Self = Self(0);

    /// Names a round by its number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The round after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The full address of one exchange: there is at most one verdict for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Step {
    /// The communicator.
    pub channel: ChannelId,
    /// The call.
    pub epoch: Epoch,
    /// The exchange within the call.
    pub round: Round,
}

impl Step {
    /// The deciding exchange of a call.
    #[must_use]
    pub const fn verdict(channel: ChannelId, epoch: Epoch) -> Self {
        Self {
            channel,
            epoch,
            round: Round::VERDICT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_order_by_channel_epoch_round() {
        let early = Step::verdict(ChannelId::WORLD, Epoch::FIRST);
        let later_round = Step {
            round: early.round.next(),
            ..early
        };
        let later_epoch = Step::verdict(ChannelId::WORLD, Epoch::FIRST.next());
        assert!(early < later_round && later_round < later_epoch);
    }
}
