//! One rank's place in a world: [`Seat`], the exchange over any [`Driver`].

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use fsgather_core::{
    Call, ChannelId, Contribution, Error, Exchange, Peer, Phase, Rank, ReclaimSink, Round, Site,
    Ticket, Verdict, WorldSize,
};

use crate::{driver::Driver, member::Farewell};

/// How long rank 0 takes to decide on a failure that a member reports, at most.
const FAILURE_LIMIT: Duration = Duration::from_secs(10);

/// How long a failing call waits until the others know.
const SETTLE_LIMIT: Duration = Duration::from_millis(500);

/// How long rank 0 waits for the others when its communicator is dropped.
const DEPARTURE_LIMIT: Duration = Duration::from_secs(5);

/// The same after a failure, when everybody is leaving.
const FAILED_DEPARTURE_LIMIT: Duration = Duration::from_secs(1);

/// The exchange as one rank sees it.
pub(crate) struct Seat<D: Driver> {
    rank: Rank,
    world_size: WorldSize,
    peers: Vec<Peer>,
    body_limit: usize,
    /// Whether a failure has been returned to the caller already.
    told: AtomicBool,
    ended: AtomicBool,
    /// Whether it ended with rank 0 there and, on rank 0, all others gone.
    in_good_hands: AtomicBool,
    driver: D,
}

impl<D: Driver> Seat<D> {
    pub(crate) fn new(
        rank: Rank,
        world_size: WorldSize,
        peers: Vec<Peer>,
        body_limit: usize,
        driver: D,
    ) -> Self {
        Self {
            rank,
            world_size,
            peers,
            body_limit,
            told: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            in_good_hands: AtomicBool::new(true),
            driver,
        }
    }

    fn me(&self) -> Peer {
        self.peers
            .get(self.rank.index())
            .cloned()
            .unwrap_or_else(|| Peer {
                rank: self.rank,
                host: String::new(),
                pid: 0,
            })
    }

    fn check(&self) -> Result<(), Error> {
        if self.driver.is_foreign() {
            return Err(Error::config(
                "this communicator belongs to the parent process; a forked child cannot use it",
            ));
        }
        if self.ended.load(Ordering::Relaxed) {
            return Err(Error::config("this communicator is closed"));
        }
        Ok(())
    }

    /// Notes that the caller learns of a failure, after making sure that the others do.
    fn tell(&self, failure: Error) -> Error {
        self.told.store(true, Ordering::Relaxed);
        self.driver.settle(SETTLE_LIMIT);
        failure
    }

    fn end(&self) -> bool {
        !self.ended.swap(true, Ordering::Relaxed) && !self.driver.is_foreign()
    }
}

impl<D: Driver> Exchange for Seat<D> {
    fn channel(&self) -> ChannelId {
        ChannelId::WORLD
    }

    fn rank(&self) -> Rank {
        self.rank
    }

    fn world_size(&self) -> WorldSize {
        self.world_size
    }

    fn peers(&self) -> &[Peer] {
        &self.peers
    }

    fn body_limit(&self) -> usize {
        self.body_limit
    }

    fn begin(&self, call: Call) -> Result<Ticket, Error> {
        self.check()?;
        self.driver.act(|member, _| {
            let failure = member.failure(ChannelId::WORLD).cloned();
            match failure {
                // A failure that came between two calls is told as it is, and once.
                Some(failure) if !self.told.swap(true, Ordering::Relaxed) => Err(failure),
                _ => member.begin(ChannelId::WORLD, call),
            }
        })
    }

    fn contribute(
        &self,
        ticket: &Ticket,
        round: Round,
        contribution: Contribution,
    ) -> Result<(), Error> {
        self.check()?;
        if contribution.body.len() > self.body_limit {
            return Err(Error::config(format!(
                "a contribution of {} bytes exceeds the limit of {}",
                contribution.body.len(),
                self.body_limit
            )));
        }
        self.driver
            .act_and_wait_later(|member, now| member.contribute(ticket, round, contribution, now))
            .map_err(|failure| self.tell(failure))
    }

    fn wait_for(
        &self,
        ticket: &Ticket,
        round: Round,
        limit: Option<Duration>,
    ) -> Result<Option<Verdict>, Error> {
        self.check()?;
        let step = ticket.step(round);
        match self
            .driver
            .wait_until(limit, |member| member.take_verdict(step))
        {
            Some(Ok(verdict)) => {
                if self.rank == Rank::ZERO {
                    // The process may end right after this: the others' verdict must be under way.
                    self.driver.settle(SETTLE_LIMIT);
                }
                Ok(Some(verdict))
            }
            Some(Err(failure)) => Err(self.tell(failure)),
            None if limit.is_some() => Ok(None),
            None => Err(Error::config("this communicator is closed")),
        }
    }

    fn abandon(&self, ticket: &Ticket) {
        if self.check().is_ok() {
            self.driver.act(|member, _| member.abandon(ticket));
        }
    }

    fn fail(&self, ticket: &Ticket, phase: Phase, cause: Error) -> Error {
        if self.check().is_err() {
            return cause;
        }
        let activity = ticket.activity(phase);
        let cause = cause.raised_by(&self.me(), activity);
        let channel = ticket.channel;
        self.driver.act(|member, _| {
            if member.failure(channel).is_none() {
                member.fail(channel, Some(ticket.epoch), cause.clone(), activity);
            }
        });
        let agreed = self.driver.wait_until(Some(FAILURE_LIMIT), |member| {
            member.failure(channel).cloned()
        });
        let agreed = agreed.unwrap_or_else(|| {
            self.driver.act(|member, _| member.give_up(channel, &cause));
            cause
        });
        self.tell(agreed)
    }

    fn progress(&self, ticket: &Ticket, phase: Phase, bytes: u64) -> Result<(), Error> {
        self.check()?;
        let doing = ticket.activity(phase);
        let progress = self
            .driver
            .act(|member, now| member.progress(ticket.channel, doing, bytes, now));
        self.driver.nudge();
        progress
    }

    fn done(&self, ticket: &Ticket) {
        if self.check().is_ok() {
            self.driver
                .act(|member, _| member.done(ticket.channel, ticket.epoch));
        }
    }

    fn set_reclaim_sink(&self, sink: ReclaimSink) {
        self.driver.set_reclaim_sink(sink);
    }

    fn interrupt(&self, cause: Error) {
        if self.check().is_ok() {
            self.driver.act(|member, _| {
                let cause = cause.raised_by(&self.me(), member.doing());
                member.interrupt(&cause);
            });
        }
    }

    fn group(&self, channel: ChannelId, members: &[Rank]) -> Result<Box<dyn Exchange>, Error> {
        self.check()?;
        Err(Error::config(format!(
            "no groups yet: {channel:?} {members:?}"
        )))
    }

    fn close(&self, site: Site) -> Result<(), Error> {
        self.check()?;
        let failed = self.driver.act(|member, now| {
            let failure = member.failure(ChannelId::WORLD).cloned();
            if failure.is_none() {
                member.close(site, now);
            }
            failure
        });
        let outcome = match failed {
            Some(failure) => Err(failure),
            None => self
                .driver
                .wait_until(None, |member| match member.farewell() {
                    Some(Farewell::Orderly) => Some(Ok(())),
                    _ => member.failure(ChannelId::WORLD).cloned().map(Err),
                })
                .unwrap_or(Ok(())),
        };
        let outcome = outcome.map_err(|failure| {
            if self.told.load(Ordering::Relaxed) {
                failure.poisoned()
            } else {
                self.tell(failure)
            }
        });
        match outcome {
            Ok(()) => {
                if self.end() {
                    let in_good_hands = self.driver.shut_down();
                    self.in_good_hands.store(in_good_hands, Ordering::Relaxed);
                }
                Ok(())
            }
            Err(failure) => {
                self.leave(None);
                Err(failure)
            }
        }
    }

    fn leave(&self, cause: Option<Error>) -> bool {
        if !self.end() {
            return self.in_good_hands.load(Ordering::Relaxed);
        }
        let abrupt = cause.is_some();
        let (failed, deserted) = self.driver.act(|member, _| {
            let failed = member.failure(ChannelId::WORLD).is_some();
            member.leave(cause);
            let deserted =
                member.has_lost_coordinator() || member.farewell() == Some(Farewell::Disorderly);
            (failed, deserted)
        });
        self.driver.settle(SETTLE_LIMIT);
        let limit = if failed || abrupt {
            FAILED_DEPARTURE_LIMIT
        } else {
            DEPARTURE_LIMIT
        };
        let in_good_hands = if self.rank == Rank::ZERO {
            self.driver.wait_for_departures(limit)
        } else {
            !deserted
        };
        let in_good_hands = self.driver.shut_down() && in_good_hands;
        self.in_good_hands.store(in_good_hands, Ordering::Relaxed);
        in_good_hands
    }
}

impl<D: Driver> Drop for Seat<D> {
    fn drop(&mut self) {
        self.leave(None);
    }
}

impl<D: Driver> fmt::Debug for Seat<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat")
            .field("rank", &self.rank)
            .field("world_size", &self.world_size)
            .finish_non_exhaustive()
    }
}
