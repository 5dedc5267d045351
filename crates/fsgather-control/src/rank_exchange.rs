//! One rank's place in a world or group: [`RankExchange`], the exchange over any [`Carrier`].

use std::{
    fmt,
    sync::{
        Arc, Mutex, Once,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use fsgather_core::{
    Call, ChannelId, Contribution, Departure, Error, Exchange, Interrupt, Onlooker, Operation,
    Peer, Phase, Rank, RankNames, ReclaimSink, Round, Site, Ticket, Verdict, WorldSize, lock,
    sys::clock,
};

use crate::{
    carrier::Carrier,
    group_members::chosen,
    member::{Farewell, Member},
    onlooker::CoordinatorEyes,
    waiting::wait_asking,
};

/// Maximum time that rank 0 takes to decide on a failure that a member reports. A report of one member about another waits
/// for that one's own.
const FAILURE_LIMIT: Duration = Duration::from_secs(20);

/// Time for which a failing call waits until the others have received the failure.
const SETTLE_LIMIT: Duration = Duration::from_millis(500);

/// Time for which rank 0 waits for the others when its communicator is dropped.
const DEPARTURE_LIMIT: Duration = Duration::from_secs(5);

/// The same after a failure, when all ranks leave.
const FAILED_DEPARTURE_LIMIT: Duration = Duration::from_secs(1);

/// Shared state of a rank's places in the world and in groups.
struct World<D> {
    /// Its number in the world.
    rank: Rank,
    /// Limit for all contributions to one exchange together, in bytes.
    table_limit: Option<usize>,
    ended: AtomicBool,
    /// True if a call was ever begun here, except for a meeting of ranks.
    is_used: AtomicBool,
    /// State of the rank's leftovers, once its world has ended.
    departure: Mutex<Departure>,
    /// Polled by threads that wait or work for long.
    interrupt: Interrupt,
    carrier: D,
}

impl<D> World<D> {
    /// The carrier of messages, as long as the world has not ended.
    fn carrier(&self) -> Option<&D> {
        let has_ended = self.ended.load(Ordering::Relaxed);
        (!has_ended).then_some(&self.carrier)
    }
}

/// The exchange as one rank sees it.
pub(crate) struct RankExchange<D: Carrier> {
    channel: ChannelId,
    rank: Rank,
    size: WorldSize,
    /// By their numbers here, each with its number in the world.
    peers: Vec<Peer>,
    /// True if a failure has been returned to the caller already.
    reported: AtomicBool,
    /// Done when the others have received a failure, or had the time for it.
    told: Once,
    /// True if this rank has left the group.
    retired: AtomicBool,
    world: Arc<World<D>>,
}

impl<D: Carrier> RankExchange<D> {
    /// Creates the place in a world; `table_limit` bounds all contributions to one exchange together, in bytes. `interrupt`
    /// is set up already to end its calls.
    pub(crate) fn new(
        rank: Rank,
        size: WorldSize,
        peers: Vec<Peer>,
        table_limit: Option<usize>,
        interrupt: Interrupt,
        carrier: D,
    ) -> Self {
        Self {
            channel: ChannelId::WORLD,
            rank,
            size,
            peers,
            reported: AtomicBool::new(false),
            told: Once::new(),
            retired: AtomicBool::new(false),
            world: Arc::new(World {
                rank,
                table_limit,
                ended: AtomicBool::new(false),
                is_used: AtomicBool::new(false),
                departure: Mutex::default(),
                interrupt,
                carrier,
            }),
        }
    }

    /// Turns the place of a rank that is alone into one in a group.
    pub(crate) fn into_group(mut self, channel: ChannelId) -> Result<Self, Error> {
        self.carrier()
            .act(|member, now| member.open(channel, vec![self.world.rank], now))?;
        self.channel = channel;
        Ok(self)
    }

    fn carrier(&self) -> &D {
        &self.world.carrier
    }

    /// Waits on the carrier, and polls now and then whether the wait must end.
    fn wait_until<R>(
        &self,
        limit: Option<Duration>,
        mut ready: impl FnMut(&mut Member) -> Option<R>,
    ) -> Option<R> {
        let World {
            ended,
            interrupt,
            carrier,
            ..
        } = &*self.world;
        let is_over = || ended.load(Ordering::Relaxed);
        wait_asking(interrupt, limit, is_over, |slice| {
            carrier.wait_until(slice, &mut ready)
        })
    }

    fn is_group(&self) -> bool {
        self.channel != ChannelId::WORLD
    }

    fn me(&self) -> Peer {
        self.peers
            .get(self.rank.index())
            .cloned()
            .unwrap_or_else(|| Peer {
                rank: self.world.rank,
                host: String::new(),
                pid: 0,
            })
    }

    fn check(&self) -> Result<(), Error> {
        if self.carrier().is_foreign() {
            return Err(Error::config(
                "this communicator belongs to the parent process; a forked child cannot use it",
            ));
        }
        if self.world.ended.load(Ordering::Relaxed) || self.retired.load(Ordering::Relaxed) {
            return Err(Error::closed());
        }
        Ok(())
    }

    /// Notes that the caller learns of a failure, after making sure that the others do.
    fn report(&self, failure: Error) -> Error {
        self.reported.store(true, Ordering::Relaxed);
        // Once: each of many calls that fail together would wait for a rank that does not respond.
        self.told.call_once(|| self.carrier().settle(SETTLE_LIMIT));
        failure
    }

    /// The same for a failure that may have been reported before.
    fn report_again(&self, failure: Error) -> Error {
        if self.reported.load(Ordering::Relaxed) {
            failure.poisoned()
        } else {
            self.report(failure)
        }
    }

    /// Marks the world as ended, and returns true if this call did so in the process that owns it.
    fn end(&self) -> bool {
        !self.world.ended.swap(true, Ordering::Relaxed) && !self.carrier().is_foreign()
    }

    /// Leaves a group.
    fn retire(&self, cause: Option<Error>) {
        let is_over = self.check().is_err();
        if self.retired.swap(true, Ordering::Relaxed) || is_over {
            return;
        }
        let (me, channel) = (self.me(), self.channel);
        self.carrier().act(|member, now| {
            if let Some(cause) = cause
                && member.failure(channel).is_none()
            {
                let activity = member.doing();
                let cause = Error::raised(me, activity.clone(), cause.to_string());
                member.fail(channel, cause, activity);
            }
            member.retire(channel, now);
        });
    }

    fn close_group(&self, site: Site) -> Result<(), Error> {
        let call = Call::new(Operation::Close, site);
        let closed = self.exchange(call, Bytes::new()).map(drop);
        self.retire(None);
        closed
    }

    fn close_world(&self, site: Site) -> Result<(), Error> {
        let carrier = self.carrier();
        let failed = carrier.act(|member, now| {
            let failure = member.failure(ChannelId::WORLD).cloned();
            if failure.is_none() {
                member.close(site, now);
            }
            failure
        });
        let outcome = match failed {
            Some(failure) => Err(failure),
            None => self
                .wait_until(None, |member| match member.farewell() {
                    Some(Farewell::Orderly) => Some(Ok(())),
                    _ => member.failure(ChannelId::WORLD).cloned().map(Err),
                })
                .unwrap_or(Ok(())),
        };
        match outcome {
            Ok(()) => {
                if self.end() {
                    let in_good_hands = carrier.shut_down();
                    self.record_departure(Departure {
                        in_good_hands,
                        undecided: Vec::new(),
                    });
                }
                Ok(())
            }
            Err(failure) => {
                let failure = self.report_again(failure);
                self.leave_world(None);
                Err(failure)
            }
        }
    }

    fn leave_world(&self, cause: Option<Error>) -> Departure {
        let World {
            rank,
            interrupt,
            departure,
            ..
        } = &*self.world;
        if !self.end() {
            return lock(departure).clone();
        }
        let carrier = self.carrier();
        let failed = carrier.act(|member, now| {
            let failed = member.failure(ChannelId::WORLD).is_some() || cause.is_some();
            if interrupt.reason().is_none() {
                member.stay(cause, *rank == Rank::ZERO, now);
            } else {
                member.leave(cause);
            }
            failed
        });
        carrier.settle(SETTLE_LIMIT);
        // An interrupt can still end this wait.
        wait_asking(
            interrupt,
            None,
            || interrupt.reason().is_some(),
            |slice| carrier.wait_until(slice, |member| (!member.is_needed()).then_some(())),
        );
        let deserted = carrier.act(|member, _| {
            member.end_stay();
            member.has_lost_coordinator() || member.farewell() == Some(Farewell::Disorderly)
        });
        let limit = if !self.world.is_used.load(Ordering::Relaxed) {
            // Nothing was decided without this rank, so nothing is left behind.
            Duration::ZERO
        } else if failed || interrupt.reason().is_some() {
            FAILED_DEPARTURE_LIMIT
        } else {
            DEPARTURE_LIMIT
        };
        let is_well = if *rank == Rank::ZERO {
            carrier.wait_for_departures(limit)
        } else {
            !deserted
        };
        let is_well = carrier.shut_down() && is_well;
        // Only now no more decisions follow.
        let undecided = carrier.act(|member, _| member.undecided(*rank == Rank::ZERO));
        self.record_departure(Departure {
            in_good_hands: is_well,
            undecided,
        })
    }

    fn record_departure(&self, departure: Departure) -> Departure {
        lock(&self.world.departure).clone_from(&departure);
        departure
    }
}

impl<D: Carrier> Exchange for RankExchange<D> {
    fn onlooker(&self) -> Option<Arc<dyn Onlooker>> {
        let is_asked = self.world.rank == Rank::ZERO && !self.is_group();
        is_asked.then(|| Arc::new(CoordinatorEyes::new(&self.world, World::carrier)) as _)
    }

    fn channel(&self) -> ChannelId {
        self.channel
    }

    fn rank(&self) -> Rank {
        self.rank
    }

    fn world_size(&self) -> WorldSize {
        self.size
    }

    fn peers(&self) -> &[Peer] {
        &self.peers
    }

    fn body_limit(&self) -> usize {
        let table_limit = self.world.table_limit;
        table_limit.map_or(usize::MAX, |limit| limit / self.size.count())
    }

    fn has_failed(&self) -> bool {
        let channel = self.channel;
        self.carrier()
            .act(|member, _| member.failure(channel).is_some())
    }

    fn begin(&self, call: Call) -> Result<Ticket, Error> {
        self.check()?;
        if call.operation != Operation::Meet {
            self.world.is_used.store(true, Ordering::Relaxed);
        }
        let channel = self.channel;
        self.carrier().act(|member, _| {
            let failure = member.failure(channel).cloned();
            match failure {
                // This call is one of those that differ, and recorded as such. It fails when it contributes.
                Some(Error::Desync { .. }) if !self.reported.load(Ordering::Relaxed) => {
                    member.begin_despite(channel, call)
                }
                // A failure between two calls is reported as it is, and once.
                Some(failure) if !self.reported.swap(true, Ordering::Relaxed) => Err(failure),
                _ => member.begin(channel, call),
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
        let limit = self.body_limit();
        if contribution.body.len() > limit {
            return Err(Error::config(format!(
                "a contribution of {} bytes exceeds the limit of {limit}",
                contribution.body.len(),
            )));
        }
        self.carrier()
            .act_and_wait_later(|member, now| member.contribute(ticket, round, contribution, now))
            .map_err(|failure| self.report(failure))
    }

    fn wait_for(
        &self,
        ticket: &Ticket,
        round: Round,
        limit: Option<Duration>,
    ) -> Result<Option<Verdict>, Error> {
        self.check()?;
        let step = ticket.step(round);
        match self.wait_until(limit, |member| member.take_verdict(step)) {
            Some(Ok(verdict)) => {
                if self.world.rank == Rank::ZERO {
                    // The process may end right after this: the others' verdict must be under way.
                    self.carrier().settle(SETTLE_LIMIT);
                }
                Ok(Some(verdict))
            }
            Some(Err(failure)) => Err(self.report(failure)),
            None if limit.is_some() => Ok(None),
            None => Err(Error::closed()),
        }
    }

    fn abandon(&self, ticket: &Ticket) {
        if self.check().is_err() {
            return;
        }
        let doing = ticket.activity(Phase::Publishing);
        let cause = Error::raised(self.me(), doing, "it gave the call up");
        self.carrier()
            .act(|member, now| member.abandon(ticket, cause, now));
    }

    fn fail(&self, ticket: &Ticket, phase: Phase, cause: Error) -> Error {
        if self.check().is_err() {
            return cause;
        }
        let activity = ticket.activity(phase);
        let cause = cause.raised_by(&self.me(), activity.clone());
        let channel = ticket.channel;
        let carrier = self.carrier();
        carrier.act(|member, _| {
            if member.failure(channel).is_none() {
                member.fail(channel, cause.clone(), activity);
            }
        });
        let agreed = self.wait_until(Some(FAILURE_LIMIT), |member| {
            member.failure(channel).cloned()
        });
        let agreed = agreed.unwrap_or_else(|| {
            carrier.act(|member, _| member.give_up(channel, &cause));
            cause
        });
        self.report(agreed)
    }

    fn progress(&self, ticket: &Ticket, phase: Phase, bytes: u64) -> Result<(), Error> {
        self.check()?;
        self.world.interrupt.poll_if_due(clock::now());
        let doing = ticket.activity(phase);
        // The report goes with the next message, or soon: to wake a thread for it would cost more than the rest of a small call.
        let timeout = ticket.call.timeout;
        self.carrier()
            .act(|member, now| member.progress(ticket.channel, doing, bytes, timeout, now))
    }

    fn send_on(&self) {
        if self.check().is_ok() {
            self.carrier().nudge();
        }
    }

    fn stalled(&self, ticket: &Ticket, waits_for: &[Rank], idle: Duration) {
        if self.check().is_err() {
            return;
        }
        let doing = ticket.activity(Phase::Reading);
        let time = (idle, ticket.call.timeout);
        let carrier = self.carrier();
        carrier.act(|member, now| member.stalled(ticket.channel, doing, waits_for, time, now));
        carrier.nudge();
    }

    fn done(&self, ticket: &Ticket) {
        if self.check().is_ok() {
            self.carrier()
                .act(|member, _| member.done(ticket.channel, ticket.epoch));
        }
    }

    fn name_ranks(&self, names: &RankNames) {
        let carrier = self.carrier();
        carrier.act(|member, _| member.name_ranks(names));
        carrier.coordinate(|coordinator, _| coordinator.name_ranks(names));
    }

    fn set_reclaim_sink(&self, sink: ReclaimSink) {
        self.carrier().set_reclaim_sink(sink);
    }

    fn interrupt(&self, cause: Error) {
        if self.check().is_err() {
            return;
        }
        let (me, channel) = (self.me(), self.channel);
        self.carrier().act(|member, _| {
            let cause = cause.raised_by(&me, member.doing());
            if channel == ChannelId::WORLD {
                member.interrupt(&cause);
            } else {
                member.interrupt_channel(channel, &cause);
            }
        });
    }

    fn group(&self, channel: ChannelId, members: &[Rank]) -> Result<Box<dyn Exchange>, Error> {
        self.check()?;
        let peers = chosen(&self.peers, members)?;
        let own = members.iter().position(|member| *member == self.rank);
        let Some(place) = own.and_then(|place| u32::try_from(place).ok()) else {
            return Err(Error::config(format!(
                "rank {} cannot make a group without itself",
                self.rank
            )));
        };
        let size = WorldSize::new(u32::try_from(peers.len()).unwrap_or(u32::MAX))?;
        let ranks = peers.iter().map(|peer| peer.rank).collect();
        self.carrier()
            .act(|member, now| member.open(channel, ranks, now))?;
        Ok(Box::new(Self {
            channel,
            rank: Rank::new(place),
            size,
            peers,
            reported: AtomicBool::new(false),
            told: Once::new(),
            retired: AtomicBool::new(false),
            world: Arc::clone(&self.world),
        }))
    }

    fn close(&self, site: Site) -> Result<(), Error> {
        self.check()?;
        if self.is_group() {
            self.close_group(site)
        } else {
            self.close_world(site)
        }
    }

    fn leave(&self, cause: Option<Error>) -> Departure {
        if self.is_group() {
            self.retire(cause);
            Departure {
                in_good_hands: true,
                undecided: Vec::new(),
            }
        } else {
            self.leave_world(cause)
        }
    }
}

impl<D: Carrier> Drop for RankExchange<D> {
    fn drop(&mut self) {
        if self.is_group() {
            self.retire(None);
        } else {
            self.leave_world(None);
        }
    }
}

impl<D: Carrier> fmt::Debug for RankExchange<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RankExchange")
            .field("channel", &self.channel)
            .field("rank", &self.rank)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}
