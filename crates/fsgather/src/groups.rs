//! Parts of a communicator as communicators of their own.

use std::{collections::BTreeSet, panic::Location};

use fsgather_core::{Error, Operation, Rank};
use serde::{Deserialize, Serialize};

use crate::{call::blocking::step_aside, codec::Codec, communicator::Communicator, setup};

/// The choice of a rank when all ranks split into groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Choice {
    color: Option<u32>,
    key: i64,
}

impl<C: Codec> Communicator<C> {
    /// Makes a communicator of some of this one's ranks, in the order given.
    ///
    /// Collective over these ranks only: all of them call it with the same list, and no other rank does. In the group
    /// they have the ranks 0, 1, ... in the order of the list. Messages still name them by their ranks in the world.
    ///
    /// Groups are independent: several may gather at the same time, from several threads. A call that fails in one
    /// group does not affect the others. If a process is lost, all groups that it is in fail. Groups of groups work
    /// alike. A group of one rank touches neither network nor files.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the list names a rank twice, a rank that does not exist, or not this rank; else those of
    /// [`barrier`](Self::barrier).
    ///
    /// # Examples
    ///
    /// ```
    /// let communicator = fsgather::Communicator::solo();
    /// let group = communicator.group(&[0])?;
    /// assert_eq!(group.all_gather(&7)?, [7]);
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    #[track_caller]
    pub fn group(&self, ranks: &[u32]) -> Result<Self, Error> {
        let call = self.unbounded(Operation::Group, Location::caller())?;
        let ranks = self.checked(ranks)?;
        step_aside(|| {
            let group = self.inner.group(&ranks)?;
            group.pass(call)?;
            Ok(self.handle(group, self.codec.clone()))
        })
    }

    /// Splits all ranks into groups, one for each color. Returns `None` if this rank gave no color.
    ///
    /// Collective over all ranks. Within a group, ranks are ordered by `key`, and by their rank here if keys are equal,
    /// as in MPI.
    ///
    /// # Errors
    ///
    /// Those of [`all_gather`](Self::all_gather).
    ///
    /// # Examples
    ///
    /// ```
    /// let communicator = fsgather::Communicator::solo();
    /// let host = communicator.split(Some(7), 0)?.expect("a color was given");
    /// assert_eq!(host.world_size().get(), 1);
    /// assert!(communicator.split(None, 0)?.is_none());
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    #[track_caller]
    pub fn split(&self, color: Option<u32>, key: i64) -> Result<Option<Self>, Error> {
        let call = self.unbounded(Operation::Split, Location::caller())?;
        step_aside(|| {
            let own = setup::encode(&Choice { color, key })?;
            let table = self.inner.exchange(call, own)?;
            let bodies = table.map(|table| table.bodies).unwrap_or_default();
            let choices: Vec<Choice> = bodies
                .iter()
                .map(|body| setup::decode(Some(body)))
                .collect::<Result<_, _>>()?;
            let Some(color) = color else {
                return Ok(None);
            };
            let group = self.inner.group(&members(&choices, color))?;
            Ok(Some(self.handle(group, self.codec.clone())))
        })
    }

    pub(crate) fn checked(&self, ranks: &[u32]) -> Result<Vec<Rank>, Error> {
        let world_size = self.world_size();
        let ranks: Vec<Rank> = ranks
            .iter()
            .map(|rank| world_size.rank(*rank))
            .collect::<Result<_, _>>()?;
        let mut seen = BTreeSet::new();
        if let Some(twice) = ranks.iter().find(|rank| !seen.insert(**rank)) {
            return Err(Error::config(format!(
                "a group cannot have rank {twice} twice"
            )));
        }
        if !seen.contains(&self.rank()) {
            return Err(Error::config(format!(
                "this rank, {}, is not in the list of the group that it makes; only its members call group",
                self.rank()
            )));
        }
        Ok(ranks)
    }
}

/// The ranks of one color, in the order of their keys.
fn members(choices: &[Choice], color: u32) -> Vec<Rank> {
    let mut members: Vec<(i64, Rank)> = (0..)
        .map(Rank::new)
        .zip(choices)
        .filter(|(_, choice)| choice.color == Some(color))
        .map(|(rank, choice)| (choice.key, rank))
        .collect();
    members.sort_unstable();
    members.into_iter().map(|(_, rank)| rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_ordered_by_key_and_then_by_rank() {
        let choices = [(1, 5), (0, 0), (1, -3), (1, 5), (2, 0)].map(|(color, key)| Choice {
            color: Some(color),
            key,
        });
        let ranks = |color| -> Vec<u32> {
            let members = members(&choices, color);
            members.into_iter().map(Rank::get).collect()
        };
        assert_eq!(ranks(1), [2, 0, 3]);
        assert_eq!(ranks(0), [1]);
        assert_eq!(ranks(9), [0; 0]);
    }

    /// Ends a world from one thread: rank 0, which waits for the others, leaves last.
    fn leave_in_turn(ranks: Vec<Communicator>) {
        ranks.into_iter().rev().for_each(drop);
    }

    #[test]
    fn group_desync_errors_name_roots_by_world_rank() {
        let ranks = Communicator::threads(3).unwrap();
        let gather = |rank: usize, root: u32| {
            let group = ranks[rank].group(&[2, 0])?;
            group.gather(&rank, root).map(drop)
        };
        let error = std::thread::scope(|scope| {
            let other = scope.spawn(|| gather(2, 0));
            let own = gather(0, 1).unwrap_err();
            assert_eq!(other.join().unwrap().unwrap_err(), own);
            own
        });
        let Error::Desync {
            one_call,
            other_call,
            ..
        } = error
        else {
            unreachable!("{error}");
        };
        assert!(one_call.contains("to rank 0 at"), "{one_call}");
        assert!(other_call.contains("to rank 2 at"), "{other_call}");
        leave_in_turn(ranks);
    }
}
