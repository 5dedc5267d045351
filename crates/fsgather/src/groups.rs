//! Parts of a communicator as communicators of their own.

use std::{collections::BTreeSet, panic::Location, time::Duration};

use bytes::Bytes;
use fsgather_core::{Call, Contribution, Error, Operation, Rank, Round, Ticket};
use serde::{Deserialize, Serialize};

use crate::{
    call::blocking::step_aside, call_builder::CallBuilder, codec::Codec,
    communicator::Communicator, setup,
};

/// What a rank says when all part into groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Choice {
    color: Option<u32>,
    key: i64,
}

impl<C: Codec> Communicator<C> {
    /// Makes a communicator of some of this one's ranks, in the order given.
    ///
    /// Collective over these ranks only: all of them call it with the same list, and nobody else does. In
    /// the group they have the ranks 0, 1, ... in the order of the list; messages go on naming them by
    /// their ranks in the world.
    ///
    /// Groups are independent: several may gather at the same time, from several threads; a call that fails
    /// in one does not concern another. A process that is lost fails the groups that it is in. Groups of
    /// groups work alike. A group of one rank touches neither network nor files.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] when the list names a rank twice, one that there is not, or not this one; else those of
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
            group.exchange.exchange(call, Bytes::new())?;
            Ok(self.handle(group, self.codec.clone()))
        })
    }

    /// The same without waiting for anybody, where the members have agreed otherwise that they make it: on the list, and on
    /// a `number` that they never use twice with it. For whatever knows its own groups, as the groups of `torch.distributed`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] as for [`group`](Self::group), also when the number has been used.
    pub fn group_agreed_on(&self, ranks: &[u32], number: u64) -> Result<Self, Error> {
        let ranks = self.checked(ranks)?;
        // Those that `group` counts itself begin at 0.
        let group = self.inner.group_of_use(&ranks, number | NUMBERED)?;
        Ok(self.handle(group, self.codec.clone()))
    }

    /// Parts all ranks into groups, one for each color; `None` where this rank gave none.
    ///
    /// Collective over all ranks. Within a group ranks are ordered by `key`, and by their rank here where
    /// keys are equal, as in MPI.
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
            let table = self.inner.exchange.exchange(call, own)?;
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

    /// Its members, as ranks of the world, in the order of their ranks here. For bindings, whose messages name ranks so.
    #[doc(hidden)]
    #[must_use]
    pub fn members(&self) -> &[Rank] {
        &self.inner.members
    }

    fn checked(&self, ranks: &[u32]) -> Result<Vec<Rank>, Error> {
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

impl<C: Codec> CallBuilder<C> {
    /// Says that this rank has come to where some of the communicator's ranks meet, and waits for none of them; `number` is
    /// as for [`Communicator::group_agreed_on`]. A call of nothing, for whoever waits by other means and has to know
    /// whether it still makes sense.
    ///
    /// # Errors
    ///
    /// Those of [`Communicator::group_agreed_on`], and what has become of a rank that will not come.
    #[track_caller]
    pub fn arrive(self, ranks: &[u32], number: u64) -> Result<Arrival<C>, Error> {
        let call = self.unbounded(Operation::Meet, Location::caller())?;
        let group = self.group_agreed_on(ranks, number)?;
        Arrival::of(group, call)
    }
}

/// Marks the numbers of groups whose members have agreed on them otherwise.
const NUMBERED: u64 = 1 << 63;

/// One rank's word that it has come to a place where some ranks meet: see [`CallBuilder::arrive`]. Dropping it takes it back.
pub struct Arrival<C: Codec> {
    group: Communicator<C>,
    ticket: Ticket,
    have_all_come: bool,
}

impl<C: Codec> Arrival<C> {
    fn of(group: Communicator<C>, call: Call) -> Result<Self, Error> {
        let exchange = &group.inner.exchange;
        let ticket = exchange.begin(call)?;
        exchange.contribute(&ticket, Round::VERDICT, Contribution::default())?;
        Ok(Self {
            group,
            ticket,
            have_all_come: false,
        })
    }

    /// Whether all have come; it waits for nobody.
    ///
    /// # Errors
    ///
    /// What has become of a rank that will not come, or that nobody has come for as long as the time-out allows.
    pub fn have_all_come(&mut self) -> Result<bool, Error> {
        if !self.have_all_come {
            let exchange = &self.group.inner.exchange;
            let verdict = exchange.wait_for(&self.ticket, Round::VERDICT, Some(Duration::ZERO))?;
            self.have_all_come = verdict.is_some();
        }
        Ok(self.have_all_come)
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

    /// Looks until all have come, or one will not.
    fn wait(arrival: &mut Arrival<crate::codec::Postcard>) -> Result<(), Error> {
        loop {
            if arrival.have_all_come()? {
                return Ok(());
            }
            std::thread::yield_now();
        }
    }

    /// Ends a world from one thread: rank 0, which waits for the others, comes last.
    fn leave_in_turn(ranks: Vec<Communicator>) {
        ranks.into_iter().rev().for_each(drop);
    }

    #[test]
    fn who_waits_where_ranks_meet_learns_that_all_have_come() {
        let ranks = Communicator::threads(3).unwrap();
        let arrive = |rank: usize| ranks[rank].call().arrive(&[0, 2], 7).unwrap();
        let mut first = arrive(0);
        assert!(!first.have_all_come().unwrap());
        let mut last = arrive(2);
        wait(&mut first).unwrap();
        // It stays so, also when the others have gone on.
        drop(first);
        wait(&mut last).unwrap();
        assert!(last.have_all_come().unwrap());
    }

    #[test]
    fn who_waits_where_ranks_meet_learns_that_one_will_not_come() {
        for (leaves, reason) in [(true, "left"), (false, "out of luck")] {
            let mut ranks = Communicator::threads(3).unwrap();
            let lost = ranks.pop().unwrap();
            let mut arrival = ranks[1].call().arrive(&[1, 2], 0).unwrap();
            // What becomes of others is nothing to those who meet here.
            let mut others = ranks[1].call().arrive(&[0, 1], 0).unwrap();
            if leaves {
                lost.leave();
            } else {
                lost.leave_with("out of luck");
            }
            let error = wait(&mut arrival).unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
            assert!(error.to_string().contains("rank 2"), "{error}");
            assert!(!others.have_all_come().unwrap());
            let mut other = ranks[0].call().arrive(&[0, 1], 0).unwrap();
            wait(&mut others).unwrap();
            wait(&mut other).unwrap();
            // And those who come later learn it as well.
            let mut late = ranks[0].call().arrive(&[0, 2], 1).unwrap();
            assert!(wait(&mut late).unwrap_err().to_string().contains("rank 2"));
        }
    }

    #[test]
    fn the_root_of_a_call_of_a_group_is_told_by_its_number_in_the_world() {
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

    #[test]
    fn a_group_that_is_agreed_on_is_not_one_that_is_counted() {
        let ranks = Communicator::threads(2).unwrap();
        let gather = |rank: &Communicator| {
            let agreed = rank.group_agreed_on(&[0, 1], 0)?;
            let counted = rank.group(&[0, 1])?;
            assert!(rank.group_agreed_on(&[0, 1], 0).is_err());
            Ok::<_, Error>((agreed.all_gather(&1)?, counted.all_gather(&2)?))
        };
        let gathered = std::thread::scope(|scope| {
            let other = scope.spawn(|| gather(&ranks[1]));
            let own = gather(&ranks[0]).unwrap();
            assert_eq!(other.join().unwrap().unwrap(), own);
            own
        });
        assert_eq!(gathered, (vec![1, 1], vec![2, 2]));
        leave_in_turn(ranks);
    }
}
