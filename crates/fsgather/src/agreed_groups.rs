//! Groups and meetings whose members have agreed on them by other means, for callers that know their own groups, such
//! as the groups of `torch.distributed`: [`group_agreed_on`], [`Arrival`].

use std::{panic::Location, time::Duration};

use fsgather_core::{Call, Contribution, Error, Operation, Round, Ticket};

use crate::{codec::Codec, communicator::Communicator};

/// Marks the numbers on which members of a group have agreed by other means.
const NUMBERED: u64 = 1 << 63;

/// Makes a communicator of some ranks as [`Communicator::group`] does, but without waiting for any rank: the members
/// have agreed that they make it, on the list, and on a `number` that they never use twice with it.
///
/// # Errors
///
/// [`Error::Config`] as for [`Communicator::group`], also if the number has been used.
pub fn group_agreed_on<C: Codec>(
    communicator: &Communicator<C>,
    ranks: &[u32],
    number: u64,
) -> Result<Communicator<C>, Error> {
    let ranks = communicator.checked(ranks)?;
    // The numbers that `group` assigns begin at 0.
    let group = communicator.inner.group_of_use(&ranks, number | NUMBERED)?;
    Ok(communicator.handle(group, communicator.codec.clone()))
}

/// One rank's announcement that it has arrived where some ranks meet. Dropping it withdraws the announcement.
#[derive(Debug)]
pub struct Arrival<C: Codec> {
    group: Communicator<C>,
    ticket: Ticket,
    have_all_come: bool,
}

impl<C: Codec> Arrival<C> {
    /// Announces that this rank has arrived where these ranks meet, without waiting for them; `number` is as for
    /// [`group_agreed_on`]. For callers that wait by other means and need to know if waiting still makes sense.
    ///
    /// # Errors
    ///
    /// Those of [`group_agreed_on`], and the failure of a rank that will not arrive.
    #[track_caller]
    pub fn at(communicator: &Communicator<C>, ranks: &[u32], number: u64) -> Result<Self, Error> {
        let call = communicator.unbounded(Operation::Meet, Location::caller())?;
        let group = group_agreed_on(communicator, ranks, number)?;
        Self::of(group, call)
    }

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

    /// Returns true if all ranks have arrived. It does not block.
    ///
    /// # Errors
    ///
    /// The failure of a rank that will not arrive, or a time-out if no rank arrives for as long as it allows.
    pub fn have_all_come(&mut self) -> Result<bool, Error> {
        if !self.have_all_come {
            let exchange = &self.group.inner.exchange;
            let verdict = exchange.wait_for(&self.ticket, Round::VERDICT, Some(Duration::ZERO))?;
            self.have_all_come = verdict.is_some();
        }
        Ok(self.have_all_come)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks until all have come, or one will not.
    fn wait(arrival: &mut Arrival<crate::codec::Postcard>) -> Result<(), Error> {
        loop {
            if arrival.have_all_come()? {
                return Ok(());
            }
            std::thread::yield_now();
        }
    }

    /// Ends a world from one thread: rank 0, which waits for the others, leaves last.
    fn leave_in_turn(ranks: Vec<Communicator>) {
        ranks.into_iter().rev().for_each(drop);
    }

    #[test]
    fn who_waits_where_ranks_meet_learns_that_all_have_come() {
        let ranks = Communicator::threads(3).unwrap();
        let arrive = |rank: usize| Arrival::at(&ranks[rank], &[0, 2], 7).unwrap();
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
            let mut arrival = Arrival::at(&ranks[1], &[1, 2], 0).unwrap();
            // Failures of other ranks do not concern the ranks that meet here.
            let mut others = Arrival::at(&ranks[1], &[0, 1], 0).unwrap();
            if leaves {
                lost.leave();
            } else {
                lost.leave_with("out of luck");
            }
            let error = wait(&mut arrival).unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
            assert!(error.to_string().contains("rank 2"), "{error}");
            assert!(!others.have_all_come().unwrap());
            let mut other = Arrival::at(&ranks[0], &[0, 1], 0).unwrap();
            wait(&mut others).unwrap();
            wait(&mut other).unwrap();
            // Ranks that arrive later get the error as well.
            let mut late = Arrival::at(&ranks[0], &[0, 2], 1).unwrap();
            assert!(wait(&mut late).unwrap_err().to_string().contains("rank 2"));
        }
    }

    #[test]
    fn a_group_that_is_agreed_on_is_not_one_that_is_counted() {
        let ranks = Communicator::threads(2).unwrap();
        let gather = |rank: &Communicator| {
            let agreed = group_agreed_on(rank, &[0, 1], 0)?;
            let counted = rank.group(&[0, 1])?;
            assert!(group_agreed_on(rank, &[0, 1], 0).is_err());
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
