//! A world that all ranks have joined: [`OpenStage`].
//!
//! # Why it cannot give two verdicts
//!
//! It decides a step in one place: `OpenStage::decide` (in `calls`) removes the step's round before it releases, and
//! `OpenStage::fail_channel` removes all of a channel's rounds before it aborts and leaves a failure behind, after which no round
//! is made for that channel any more. A round that is gone cannot be decided again. Connections deliver in order, so no
//! member learns a release after the abort that followed it.

mod calls;
mod channel;
mod disagreement;
mod disputes;
mod ending;
mod groups;
mod hearsay;
mod patience;
mod probes;
mod reports;
mod round;
mod stalls;
mod staying;
mod timers;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use fsgather_core::{ChannelId, Error, Rank, RankNames, Step};

use self::{
    channel::Channel,
    round::{Clock, Round},
};
use super::{
    action::{Action, ActionQueue},
    admission::{self, Objection, text_of},
    roster::Roster,
    world::World,
};
use crate::message::{CallReply, Join, JoinReply, RefusalReason, ToCoordinator, Welcome};

/// A world that all ranks have joined. It has failed once its own channel has.
#[derive(Clone, Debug)]
pub(super) struct OpenStage {
    pub(super) roster: Roster,
    pub(super) queue: ActionQueue,
    world: World,
    channels: BTreeMap<ChannelId, Channel>,
    /// Processes of other starts than rank 0, by the ranks that they asked to be.
    strangers: BTreeMap<Rank, String>,
    /// Ranks that another process has asked to be.
    latecomers: BTreeSet<Rank>,
    /// Runs since the first rank has closed.
    closing: Option<Clock>,
    /// True if a rank has moved something since `looked`.
    has_moved: bool,
    /// The time at which all calls were last examined for movement.
    looked: Instant,
    /// Ranks that have left and stay for others, with the readers in their last report, and its time.
    staying: BTreeMap<Rank, (BTreeSet<Rank>, Instant)>,
    /// The time of the next report to them.
    tell_staying: Option<Instant>,
    looked_after_staying: Instant,
    /// The time at which this process has last continued after it was stopped.
    woke: Option<Instant>,
    /// Number of questions to ranks about their activity.
    looks: u64,
    /// The names of ranks in messages.
    names: RankNames,
}

impl OpenStage {
    /// The world that these ranks have formed; all of them are welcomed.
    pub(super) fn new(
        world: World,
        roster: Roster,
        queue: ActionQueue,
        strangers: BTreeMap<Rank, String>,
        now: Instant,
    ) -> Self {
        let mut channel = Channel::world(world.world_size.ranks());
        // They have left before it opened.
        for rank in roster.ranks().filter(|rank| roster.has_left(*rank)) {
            channel.dismiss(rank);
        }
        let mut open = Self {
            channels: BTreeMap::from([(ChannelId::WORLD, channel)]),
            strangers,
            latecomers: BTreeSet::new(),
            closing: None,
            has_moved: false,
            looked: now,
            staying: BTreeMap::new(),
            tell_staying: None,
            looked_after_staying: now,
            woke: None,
            looks: 0,
            names: RankNames::default(),
            world,
            roster,
            queue,
        };
        open.welcome(open.roster.ranks().collect());
        open
    }

    /// Sets the names of ranks in messages.
    pub(super) fn name_ranks(&mut self, names: &RankNames) {
        self.names = names.clone();
    }

    /// Number of communicators: the world, and each group that is still needed.
    pub(super) fn channels(&self) -> usize {
        self.channels.len()
    }

    /// The reason for which the world's own channel has failed, if it has.
    pub(super) fn failure(&self) -> Option<Error> {
        self.channels.get(&ChannelId::WORLD)?.failure.clone()
    }

    /// Returns true if all members except rank 0 know all failures.
    pub(super) fn all_told(&self) -> bool {
        let mut channels = self.channels.values();
        let is_told = |channel: &Channel| channel.untold.iter().all(|rank| *rank == Rank::ZERO);
        !self.is_about_to_fail() && channels.all(is_told)
    }

    /// Handles a process that asks to be a rank; `is_gone` if this world has ended.
    pub(super) fn join(&mut self, join: &Join, is_gone: bool) -> Result<(), RefusalReason> {
        let (world, roster) = (&self.world, &self.roster);
        match admission::objection(join, world, roster) {
            None => {}
            Some(Objection::JobSize) => return Err(admission::other_size(join, world, roster)),
            Some(Objection::Secret) => return Err(self.report_mismatch(join)),
            Some(Objection::Start) => return Err(self.refuse_stranger(join)),
            Some(Objection::Mixture(_) | Objection::Double) => {
                return Err(self.refuse_latecomer(join));
            }
            // This world will end, and another may begin in its place.
            Some(Objection::WorldSize) => {
                let sizes = admission::sizes_of(join, world, roster);
                return Err(RefusalReason::OtherSize(sizes));
            }
            Some(Objection::Other(reason)) => return Err(reason),
        }
        if let Some(cause) = self.failure() {
            return Err(cause.into());
        }
        admission::check_return(join.rank, is_gone, &self.roster)?;
        let coordinator = self.roster.name_of(Rank::ZERO);
        let to = vec![join.rank];
        self.queue
            .send(to.clone(), JoinReply::Forming { coordinator });
        self.welcome(to);
        Ok(())
    }

    /// Answers a process that was given another secret than rank 0.
    pub(super) fn report_mismatch(&mut self, join: &Join) -> RefusalReason {
        if self.roster.stranger_to(join) == Some(Rank::ZERO) {
            return self.refuse_stranger(join);
        }
        admission::other_secret(join, &self.world, &self.roster).into()
    }

    fn refuse_stranger(&mut self, join: &Join) -> RefusalReason {
        let (strangers, queue) = (&mut self.strangers, &mut self.queue);
        admission::refuse_stranger(join, &self.roster, strangers, queue)
    }

    fn refuse_latecomer(&mut self, join: &Join) -> RefusalReason {
        let (rank, present) = (join.rank, self.roster.name_of(join.rank));
        // It asks again and again until its own deadline.
        if self.latecomers.insert(rank) {
            self.queue.push(Action::Note(format!(
                "{} asked to be rank {rank}, which is taken by {present}; this job goes on",
                text_of(&join.process)
            )));
        }
        RefusalReason::AlreadyFormed {
            running: format!(
                "{} is running with {present} as rank {rank}",
                self.world.job
            ),
            is_live: self.roster.is_present(rank) && self.failure().is_none(),
        }
    }

    fn welcome(&mut self, ranks: Vec<Rank>) {
        let welcome = Welcome {
            nonces: self.roster.nonces(),
            communicator: self.world.communicator,
            processes: self.roster.processes(),
            timeout: self.world.timeout,
        };
        self.queue.send(ranks, JoinReply::Welcome(welcome));
    }

    /// Handles a message of a member.
    pub(super) fn on_message(&mut self, from: Rank, message: ToCoordinator, now: Instant) {
        match message {
            ToCoordinator::Call(request) => self.on_call(from, request, now),
            ToCoordinator::Group(request) => self.on_group(from, request),
            ToCoordinator::End(request) => self.on_end(from, request, now),
            ToCoordinator::Join(_) | ToCoordinator::Probe(_) => {}
        }
    }

    /// The undecided round of a step, and its communicator.
    fn undecided(&self, step: Step) -> Option<(&Channel, &Round)> {
        let channel = self.channels.get(&step.channel)?;
        Some((channel, channel.undecided.get(&step)?))
    }

    /// The ranks that have arrived in an undecided step, in the order of the communicator.
    fn waiting_in(&self, step: Step) -> Vec<Rank> {
        let round = self.undecided(step);
        round.map_or_else(Vec::new, |(channel, round)| {
            let waiting = round.waiting();
            waiting.filter_map(|place| channel.rank_at(place)).collect()
        })
    }

    /// Reports to ranks that wait on a communicator that they need not give up.
    fn keep_waiting(&mut self, waiting: Vec<Rank>, channel: ChannelId) {
        self.queue.send(waiting, CallReply::KeepWaiting { channel });
    }

    fn channels_of(&self, rank: Rank) -> Vec<ChannelId> {
        self.channels
            .values()
            .filter(|channel| channel.includes(rank) && !channel.has_left(rank))
            .map(|channel| channel.id)
            .collect()
    }
}
