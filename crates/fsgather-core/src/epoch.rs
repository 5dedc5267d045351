//! The numbers of calls: [`ChannelId`], [`Epoch`], [`Round`] and their product, [`Step`].

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::Rank;

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

    /// Returns the channel of a group: the same for all its members without communication.
    ///
    /// `members` are ranks of the world in the group's order, `use_number` is the number of groups of this list that
    /// this process has made before on this parent.
    ///
    /// ```
    /// use fsgather_core::{ChannelId, Rank};
    ///
    /// let pair = [Rank::new(3), Rank::new(1)];
    /// let first = ChannelId::of_group(ChannelId::WORLD, &pair, 0);
    /// assert_eq!(first, ChannelId::of_group(ChannelId::WORLD, &pair, 0));
    /// assert_ne!(first, ChannelId::of_group(ChannelId::WORLD, &pair, 1));
    /// ```
    #[must_use]
    pub fn of_group(parent: Self, members: &[Rank], use_number: u64) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(b"fsgather group 1");
        hasher.update(parent.0.to_le_bytes());
        hasher.update(use_number.to_le_bytes());
        for member in members {
            hasher.update(member.get().to_le_bytes());
        }
        let digest = hasher.finalize();
        let number = u64::from_be_bytes(digest.first_chunk().copied().unwrap_or_default());
        // 0 is the world.
        Self(number.max(1))
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// The number of an exchange that ranks start within a channel, counted from 0: the program's calls, and the exchanges
/// that prepare and end them.
///
/// All ranks must start their calls in the same order; epochs allow checking that. Messages name calls by
/// [`Call::number`](crate::Call::number).
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
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn parent_members_their_order_and_the_use_make_a_channel() {
        let ranks = |ranks: &[u32]| ranks.iter().copied().map(Rank::new).collect::<Vec<_>>();
        let lists: [&[u32]; 6] = [&[], &[0], &[0, 1], &[1, 0], &[0, 1, 2], &[256]];
        let mut channels = BTreeSet::from([ChannelId::WORLD]);
        let mut parents = vec![ChannelId::WORLD];
        for depth in 0..2 {
            for parent in std::mem::take(&mut parents) {
                for list in lists {
                    for use_number in 0..3 {
                        let channel = ChannelId::of_group(parent, &ranks(list), use_number);
                        assert!(channels.insert(channel), "{depth} {parent:?} {list:?}");
                        parents.push(channel);
                    }
                }
            }
        }
    }

    #[test]
    fn the_channel_of_a_group_does_not_change_between_builds() {
        let members = [Rank::new(3), Rank::new(1)];
        let channel = ChannelId::of_group(ChannelId::WORLD, &members, 0);
        assert_eq!(channel.get(), 10_336_053_562_096_648_532);
    }

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

    #[test]
    fn numbers_are_those_that_were_given() {
        assert_eq!(ChannelId::new(7).get(), 7);
        assert_eq!((Epoch::new(7).get(), Epoch::new(7).next().get()), (7, 8));
        assert_eq!((Round::new(7).get(), Round::new(7).next().get()), (7, 8));
    }
}
