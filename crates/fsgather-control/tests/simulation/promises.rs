//! Promises that must hold in every run, checked as it goes: [`Ledger`].
//!
//! The ledger sees all messages and results. It keeps a model of its own of the arrivals and the last movement, and
//! compares the machines with it.

mod endings;
mod failures;
mod lanes;
mod payloads;
mod releases;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use fsgather_control::message::{
    CallReply, CallRequest, EndReply, EndRequest, GroupRequest, Probe, ToCoordinator, ToMember,
};
use fsgather_core::{
    Call, ChannelId, Contribution, Epoch, Error, PeerFailure, Rank, Step, Verdict,
};
use fsgather_testkit::call_results::check_verdict;

use self::{
    failures::Failure,
    lanes::Lane,
    payloads::{CallId, Payloads},
};
use crate::rank::HEARING;

/// Maximum time that last messages may take after the end of a process has been reported.
const LAST_MESSAGES_TIME: Duration = Duration::from_millis(500);

/// A promise that was not kept.
#[derive(Debug)]
pub(crate) struct Broken(pub(crate) String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The outcome of a check.
pub(crate) type Checked = Result<(), Broken>;

/// Fails with a message unless the promise is kept.
macro_rules! promise {
    ($kept:expr, $($message:tt)+) => {
        if !$kept {
            return Err($crate::promises::Broken(format!($($message)+)));
        }
    };
}
pub(crate) use promise;

/// After a failure every call ends with an error that wraps it.
pub(crate) fn is_poisoned(rank: Rank, first: &Error, again: Option<&Error>) -> Checked {
    promise!(
        again == Some(&first.poisoned()),
        "P3: rank {rank} has failed with \"{first}\", and its next call ends with {again:?}"
    );
    Ok(())
}

/// One exchange, as the ledger knows it.
#[derive(Clone, Debug, Default)]
struct Exchange {
    handed_in: BTreeMap<Rank, (Call, Contribution)>,
    arrived: BTreeSet<Rank>,
    last_progress: Duration,
    released: bool,
    /// Ranks that were sent the release.
    told: BTreeSet<Rank>,
}

impl Exchange {
    /// The calls and contributions that have arrived at rank 0.
    fn taken_part(&self) -> impl Iterator<Item = &(Call, Contribution)> {
        let arrived = self.arrived.iter();
        arrived.filter_map(|rank| self.handed_in.get(rank))
    }
}

/// The coordinator's view of which ranks are connected.
pub(crate) type Connected<'a> = &'a dyn Fn(Rank) -> bool;

/// Everything that has happened in one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    ranks: u32,
    lanes: BTreeMap<ChannelId, Lane>,
    exchanges: BTreeMap<Step, Exchange>,
    payloads: BTreeMap<CallId, Payloads>,
    /// Calls whose results these ranks do not want.
    abandoned_calls: BTreeSet<(Rank, ChannelId, Epoch)>,
    /// Time of the last movement.
    pub(crate) last_progress: Duration,
    /// Time at which rank 0 last said that it is there; a rank that asked continues to wait for its decision.
    pub(crate) answered: Duration,
    /// Time at which rank 0 last asked a rank to keep waiting.
    pub(crate) kept_waiting: Duration,
    bytes: BTreeMap<(ChannelId, Rank), u64>,
    /// Time at which each rank last contributed or moved bytes.
    moved: BTreeMap<Rank, Duration>,
    /// Times at which any rank did.
    movements: BTreeSet<Duration>,
    /// Ranks that were interrupted and have not reported it.
    interrupted: BTreeSet<Rank>,
    /// Ranks whose end another process of their host has reported, and the time of the report.
    reported: BTreeMap<Rank, Duration>,
    closing: Option<Duration>,
    came_to_close: BTreeSet<Rank>,
    /// Ranks that things were done to: a failure has to name one of them.
    culprits: BTreeSet<Rank>,
    /// Ranks that may fail by themselves or know less than the others.
    excused: BTreeSet<Rank>,
    /// True if rank 0 was out of order at some time, so that clocks prove nothing.
    rank_0_was_disturbed: bool,
    /// True if rank 0 left without waiting for the others.
    pub(crate) abandoned: bool,
    goodbyes: BTreeMap<Rank, bool>,
    pub(crate) closed: BTreeSet<Rank>,
    /// The failures of each rank in their order. Two worlds do not differ by which rank came first.
    pub(crate) failures: BTreeMap<(Rank, usize), Failure>,
    pub(crate) releases: usize,
    /// Releases on other channels after the world has failed.
    late_releases: usize,
    /// Calls that have failed when no rank was left to notify, of which rank 0 has had payloads removed.
    given_up: BTreeSet<CallId>,
    /// Ranks that make no more calls and have stayed, each with true if a payload was to be read then.
    stayed: BTreeMap<Rank, bool>,
    stays_to_the_end: usize,
    stays_given_up: usize,
    reclaims: usize,
    reclaims_for_others: usize,
    reclaims_of_abandoned: usize,
}

impl Ledger {
    pub(crate) fn new(ranks: u32) -> Self {
        let world = Lane::world((0..ranks).map(Rank::new));
        Self {
            ranks,
            lanes: BTreeMap::from([(ChannelId::WORLD, world)]),
            ..Self::default()
        }
    }

    fn all(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.ranks).map(Rank::new)
    }

    /// Notes that something was done to this rank that may make the world fail.
    pub(crate) fn suspects(&mut self, rank: Rank) {
        self.culprits.insert(rank);
    }

    /// Notes that this rank may fail by itself, or not learn all that the others learn.
    pub(crate) fn excuses(&mut self, rank: Rank) {
        self.excused.insert(rank);
    }

    /// Notes that rank 0 is out of order: all are excused, and times prove nothing.
    pub(crate) fn disturbs_rank_0(&mut self) {
        self.rank_0_was_disturbed = true;
        self.excused.extend(self.all());
    }

    /// Notes that rank 0 runs again after it was stopped. It reports that now, and reads messages that have arrived before
    /// it decides.
    pub(crate) fn rank_0_goes_on(&mut self, now: Duration) {
        self.last_progress = now;
        for reported in self.reported.values_mut() {
            *reported = now + HEARING;
        }
    }

    // Actions and results of ranks.

    pub(crate) fn hands_in(
        &mut self,
        rank: Rank,
        step: Step,
        call: &Call,
        contribution: Contribution,
    ) -> Checked {
        let exchange = self.exchanges.entry(step).or_default();
        let before = exchange
            .handed_in
            .insert(rank, (call.clone(), contribution));
        promise!(
            before.is_none(),
            "simulation: rank {rank} repeats itself in {step:?}"
        );
        Ok(())
    }

    pub(crate) fn interrupts(&mut self, rank: Rank) {
        self.suspects(rank);
        self.excuses(rank);
        self.interrupted.insert(rank);
    }

    pub(crate) fn learns(&mut self, rank: Rank, step: Step, verdict: &Verdict) -> Checked {
        let exchange = self.exchanges.entry(step).or_default();
        promise!(
            exchange.released && exchange.told.contains(&rank),
            "P1: rank {rank} learns a release of {step:?} that rank 0 has not sent it"
        );
        self.check_table(
            step,
            &[rank],
            verdict.table.as_ref().map(|table| &table.bodies),
        )?;
        let needed = self.exchanges.get(&step).map_or(0, |exchange| {
            let of_all = exchange.taken_part().map(|(_, part)| part.further_rounds);
            of_all.max().unwrap_or(0)
        });
        promise!(
            verdict.further_rounds == needed,
            "P2: rank {rank} is told of {} further rounds of {step:?}, {needed} are needed",
            verdict.further_rounds
        );
        Ok(())
    }

    pub(crate) fn fails(
        &mut self,
        rank: Rank,
        channel: ChannelId,
        step: Option<Step>,
        failure: &Error,
    ) -> Checked {
        if let Some(step) = step {
            let released = self.exchanges.get(&step).is_some_and(|e| e.released);
            let failed = (!self.excused.contains(&rank)).then_some((rank, failure));
            check_verdict(released.then_some(Rank::ZERO), failed)
                .map_err(|wrong| Broken(format!("P1: {step:?}: {wrong}")))?;
        }
        let own = self.failures.range((rank, 0)..=(rank, usize::MAX));
        let number = own.count();
        let error = failure.clone();
        let failed = Failure {
            channel,
            step,
            error,
        };
        self.failures.insert((rank, number), failed);
        if self.excused.contains(&rank) {
            return Ok(());
        }
        let agreed = self.abort_of(channel).map(Error::root_cause);
        let rank_0_left = matches!(
            failure.root_cause(),
            Error::PeerFailed { peer, failure: PeerFailure::Departed { .. }, .. } if peer.rank == Rank::ZERO
        );
        // Rank 0 has failed with the world and has left, which ends groups that the failure does not concern.
        let is_of_world = self.abort().map(Error::root_cause) == Some(failure.root_cause());
        promise!(
            agreed == Some(failure.root_cause())
                || (self.abandoned && (rank_0_left || is_of_world)),
            "P3: rank {rank} learns \"{failure}\", but rank 0 has decided on {agreed:?}"
        );
        Ok(())
    }

    pub(crate) fn closes(&mut self, rank: Rank) -> Checked {
        self.closed.insert(rank);
        promise!(
            self.abort().is_none(),
            "P5: rank {rank} closes in good order, but the world has failed: {:?}",
            self.abort()
        );
        Ok(())
    }

    // Messages and orders of rank 0.

    /// Notes a message that the coordinator is about to receive from a rank that is connected.
    pub(crate) fn coordinator_hears(
        &mut self,
        from: Rank,
        message: &ToCoordinator,
        now: Duration,
        connected: Connected<'_>,
    ) -> Checked {
        match message {
            ToCoordinator::Group(GroupRequest::Open { channel, members }) => {
                self.opens(from, *channel, members, connected);
            }
            ToCoordinator::Group(GroupRequest::Retire { channel }) => self.retires(from, *channel),
            ToCoordinator::Call(CallRequest::Contribute {
                step,
                call,
                contribution,
            }) if self.abort_of(step.channel).is_none() => {
                let is_abandoned = self.is_abandoned(from, *step);
                let exchange = self.exchanges.entry(*step).or_default();
                exchange.arrived.insert(from);
                self.moved.insert(from, now);
                self.movements.insert(now);
                if is_abandoned && !exchange.handed_in.contains_key(&from) {
                    let body = &contribution.body;
                    promise!(body.is_empty(), "P2: rank {from} hands in {body:?} unasked");
                    let nothing = Contribution::default();
                    exchange.handed_in.insert(from, (call.clone(), nothing));
                }
                exchange.last_progress = now;
                self.last_progress = now;
            }
            ToCoordinator::Call(CallRequest::Status { channel, bytes, .. }) => {
                let before = self.bytes.entry((*channel, from)).or_default();
                if *bytes > *before {
                    *before = *bytes;
                    self.moved.insert(from, now);
                    self.movements.insert(now);
                    self.moves(*channel, now);
                }
            }
            ToCoordinator::Call(CallRequest::Done { channel, epoch }) => {
                if let Some(payloads) = self.payloads.get_mut(&(*channel, *epoch)) {
                    payloads.done.insert(from);
                }
                self.last_progress = now;
            }
            ToCoordinator::End(EndRequest::SiblingExited { rank }) => {
                self.reported.entry(*rank).or_insert(now);
            }
            ToCoordinator::Call(CallRequest::Fail { channel, .. }) => {
                self.interrupted.remove(&from);
                if let Some(lane) = self.lanes.get_mut(channel) {
                    lane.has_to_fail = true;
                }
            }
            ToCoordinator::End(EndRequest::Leave { cause } | EndRequest::Stay { cause }) => {
                if cause.is_some() {
                    self.breaks_all_of(from);
                }
                if matches!(message, ToCoordinator::End(EndRequest::Stay { .. })) {
                    self.stays_on(from, connected);
                }
                promise!(
                    !self.interrupted.contains(&from)
                        || self.abort().is_some()
                        || self.rank_0_was_disturbed,
                    "P3: rank {from} was interrupted, and leaves without a word about it"
                );
            }
            ToCoordinator::Call(CallRequest::AbortSeen { channel }) => {
                if let Some(lane) = self.lanes.get_mut(channel) {
                    lane.untold.remove(&from);
                }
            }
            ToCoordinator::End(EndRequest::Close { .. }) => {
                self.came_to_close.insert(from);
                self.closing = Some(now);
                self.last_progress = now;
            }
            _ => {}
        }
        Ok(())
    }

    /// Notes that rank 0 notices the end of a connection.
    pub(crate) fn loses(&mut self, rank: Rank, connected: Connected<'_>) {
        if connected(rank) && !self.came_to_close.contains(&rank) {
            self.breaks_all_of(rank);
        }
    }

    fn moves(&mut self, channel: ChannelId, now: Duration) {
        self.last_progress = now;
        for (step, exchange) in &mut self.exchanges {
            if step.channel == channel && !exchange.arrived.is_empty() {
                exchange.last_progress = now;
            }
        }
        if let Some(closing) = &mut self.closing {
            *closing = now;
        }
    }

    pub(crate) fn coordinator_says(
        &mut self,
        to: &[Rank],
        message: &ToMember,
        now: Duration,
        connected: Connected<'_>,
    ) -> Checked {
        for rank in to {
            promise!(
                !self.goodbyes.contains_key(rank),
                "P5: rank {rank} is told {message:?} after goodbye"
            );
        }
        match message {
            ToMember::Call(CallReply::Release { step, verdict }) => {
                self.releases(to, *step, verdict.table.as_ref(), connected)
            }
            ToMember::Call(CallReply::Abort { channel, cause }) => {
                self.aborts(to, *channel, cause, now, connected)
            }
            ToMember::Call(CallReply::Reclaim { channel, epoch }) => {
                for owner in to {
                    // If several ranks are lost at the same time, later ones may still be asked.
                    promise!(
                        connected(*owner) || self.reported.contains_key(owner),
                        "P4: rank {owner}, which is gone, is asked to remove its payload"
                    );
                    self.reclaims((*channel, *epoch), *owner, connected)?;
                }
                Ok(())
            }
            ToMember::End(EndReply::Needed { by }) if by.is_empty() => to
                .iter()
                .try_for_each(|rank| self.may_go(*rank, now, connected)),
            ToMember::Call(CallReply::KeepWaiting { .. } | CallReply::Notice { .. }) => {
                self.kept_waiting = now;
                Ok(())
            }
            ToMember::Probe(Probe::Here) => {
                self.answered = now;
                Ok(())
            }
            ToMember::End(EndReply::Bye { orderly }) => {
                for rank in to {
                    self.goodbyes.insert(*rank, *orderly);
                }
                promise!(
                    !(*orderly && self.abort().is_some()),
                    "P5: an orderly goodbye in a failed world"
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Checks, when time has passed, that no rank counts as alive for long after its end was reported.
    pub(crate) fn check_reports(&self, now: Duration, connected: Connected<'_>) -> Checked {
        for (rank, reported) in &self.reported {
            promise!(
                now <= *reported + LAST_MESSAGES_TIME || !connected(*rank),
                "P6: the end of rank {rank} was reported at {reported:?}, and it counts as alive"
            );
        }
        Ok(())
    }

    /// Checks, whenever rank 0 has nothing more to do, that it knows which ranks know of failures, and that nothing that
    /// could go is still there.
    pub(crate) fn check_rest(
        &self,
        all_told: bool,
        channels: usize,
        connected: Connected<'_>,
    ) -> Checked {
        self.check_lanes(all_told, channels, connected)?;
        for (step, exchange) in &self.exchanges {
            let lane = self.lanes.get(&step.channel);
            let is_undecided = !exchange.released && !exchange.arrived.is_empty();
            let Some(lane) = lane.filter(|lane| is_undecided && lane.abort.is_none()) else {
                continue;
            };
            let mut missing = lane
                .members
                .iter()
                .filter(|rank| !exchange.arrived.contains(rank));
            let never = missing.find(|rank| {
                !connected(**rank) || self.came_to_close.contains(rank) || lane.left.contains(rank)
            });
            // A rank that has left, perhaps because it had waited for too long, gets no answer.
            let is_heard = !lane.listeners(connected).is_empty();
            promise!(
                never.is_none() || !is_heard,
                "P6: {step:?} waits for rank {never:?}, which has left or come to the end"
            );
            let is_complete = exchange.arrived.len() == lane.members.len();
            promise!(
                !is_complete || !is_heard || self.is_read(step.channel, connected),
                "P6: {step:?} has all it needs and is not released"
            );
        }
        for (call, payloads) in &self.payloads {
            let left = payloads.owners.difference(&payloads.reclaimed);
            let is_gone = |owner: &Rank| payloads.keepers.contains(owner) && !connected(*owner);
            let left: Vec<_> = left.filter(|owner| !is_gone(owner)).collect();
            promise!(
                left.is_empty() || !self.readers(*call, connected).is_empty(),
                "P4: nobody reads call {call:?} any more, but the payloads of {left:?} stay; {payloads:?}"
            );
        }
        Ok(())
    }
}
