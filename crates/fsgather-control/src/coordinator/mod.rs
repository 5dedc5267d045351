//! Rank 0's side of the control plane, as a machine without I/O: [`Coordinator`].
//!
//! # Why it cannot give two verdicts
//!
//! Only the coordinator decides, and it decides a step in one place: [`Coordinator::decide`] removes the
//! step's [`Round`] before it releases, and [`Coordinator::fail_channel`] removes all of a channel's
//! rounds before it aborts and leaves a failure behind, after which no round is made for that channel any
//! more. A round that is gone cannot be decided again. Connections deliver in order, so no member
//! learns a release after the abort that followed it.
//!
//! # States
//!
//! *Forming* until all ranks have joined; then *open*; *failed* once the world's own channel has failed;
//! *gone* when everybody was told goodbye. A failed world still answers, with the error it keeps.

mod channel;
mod forming;
mod roster;
mod round;
mod time;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fsgather_core::{
    Activity, Call, ChannelId, Epoch, Error, Operation, PeerFailure, Phase, ProcessId, Rank,
    Recipients, Round as RoundNumber, Site, Step, WorldSize,
};
use uuid::Uuid;

use self::{
    channel::{Channel, Reading},
    roster::{Roster, Standing},
    round::{Arrival, Clock, Round},
};
use crate::message::{ToCoordinator, ToMember};

/// What the coordinator wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a message to these ranks.
    Send {
        /// To whom.
        to: Vec<Rank>,
        /// What.
        message: ToMember,
    },
    /// Remove the payload that a rank, now gone, has left.
    ReclaimFor {
        /// The communicator.
        channel: ChannelId,
        /// The call.
        epoch: Epoch,
        /// Whose payload.
        owner: Rank,
    },
    /// Tell the user something that concerns the whole job.
    Warn(String),
    /// Note something in passing.
    Note(String),
}

/// What a process that asked to join is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinAnswer {
    /// It is a member now, or was one already; its connection belongs to its rank.
    Accepted,
    /// It is not; the message says why.
    Refused(ToMember),
}

/// What a coordinator has to know from the start.
#[derive(Clone, Debug)]
pub struct World {
    /// How many ranks.
    pub world_size: WorldSize,
    /// The identity of this world.
    pub communicator: Uuid,
    /// What messages call this job.
    pub job: String,
    /// How long nothing may move before a call has failed.
    pub patience: Duration,
    /// How long joining may take in all.
    pub join_patience: Duration,
}

/// The state machine of rank 0: events in, [`Action`]s out; it owns no clock, socket or thread.
#[derive(Debug)]
pub struct Coordinator {
    world: World,
    started: Instant,
    roster: Roster,
    open: bool,
    channels: BTreeMap<ChannelId, Channel>,
    next_forming_warning: Duration,
    /// Ranks whose process is reported to have ended, and until when their last words may arrive.
    suspects: BTreeMap<Rank, Instant>,
    own_close: bool,
    /// Since the first rank has come to close.
    closing: Option<Clock>,
    gone: bool,
    actions: Vec<Action>,
}

impl Coordinator {
    /// A world that begins to form `now`.
    #[must_use]
    pub fn new(world: World, now: Instant) -> Self {
        let members = world.world_size.ranks().collect();
        let channel = Channel::new(ChannelId::WORLD, members);
        Self {
            roster: Roster::new(world.world_size),
            world,
            started: now,
            open: false,
            channels: BTreeMap::from([(ChannelId::WORLD, channel)]),
            next_forming_warning: round::FIRST_WARNING,
            suspects: BTreeMap::new(),
            own_close: false,
            closing: None,
            gone: false,
            actions: Vec::new(),
        }
    }

    /// What has to be done since the last time this was asked, in order.
    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Whether all ranks have joined.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Whether everybody has been told goodbye.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Whether `rank` has joined and is still connected.
    #[must_use]
    pub fn is_connected(&self, rank: Rank) -> bool {
        self.roster.is_connected(rank)
    }

    /// Whether the process with this nonce is the one that joined as `rank`.
    #[must_use]
    pub fn knows(&self, rank: Rank, nonce: u128) -> bool {
        self.roster
            .get(rank)
            .is_some_and(|member| member.nonce == nonce)
    }

    /// Whether every connected member knows all failures so far, or will not be heard any more.
    #[must_use]
    pub fn all_told(&self) -> bool {
        let mut channels = self.channels.values();
        self.gone || channels.all(|channel| channel.untold.iter().all(|rank| *rank == Rank::ZERO))
    }

    /// Handles what a member says. Members that are gone are not heard any more, and after goodbye nobody
    /// is.
    pub fn hear(&mut self, from: Rank, message: ToCoordinator, now: Instant) {
        // After goodbye nothing is said any more, so nothing is to be heard either.
        if self.gone || !self.roster.is_connected(from) {
            return;
        }
        if let Some(member) = self.roster.get_mut(from) {
            member.heard = now;
        }
        match message {
            ToCoordinator::Join(_) | ToCoordinator::Watch { .. } => {}
            ToCoordinator::Rival { other } => self.rival(from, &other),
            ToCoordinator::Contribute {
                step,
                call,
                body,
                leaves_payload,
                further_rounds,
            } => self.contribution(
                from,
                step,
                Arrival {
                    call,
                    body,
                    leaves_payload,
                    further_rounds,
                },
                now,
            ),
            ToCoordinator::Fail {
                channel,
                epoch: _,
                cause,
                activity,
            } => {
                self.note_activity(from, activity);
                self.fail_channel(channel, &cause);
            }
            ToCoordinator::Status {
                channel,
                activity,
                bytes,
            } => self.status(from, channel, activity, bytes, now),
            ToCoordinator::Done { channel, epoch } => {
                self.went_on(from);
                self.finished_reading(channel, epoch, from);
            }
            ToCoordinator::AbortSeen { channel } => {
                if let Some(channel) = self.channels.get_mut(&channel) {
                    channel.untold.remove(&from);
                }
            }
            ToCoordinator::SiblingExited { rank } => self.suspect(rank, now),
            ToCoordinator::Close { site } => self.close(from, site, now),
            ToCoordinator::Leave { cause } => self.leave(from, cause.as_ref()),
        }
        self.finish_if_all_left();
    }

    /// Handles the loss of a member's process or host, noticed as `how` says.
    pub fn lost(&mut self, rank: Rank, how: &str) {
        self.suspects.remove(&rank);
        if self.gone || !self.roster.is_connected(rank) {
            return;
        }
        let activity = self
            .roster
            .get(rank)
            .map_or(Activity::outside(Phase::Joining), |member| member.activity);
        // A member that had come to the end and told us so needs nothing more; it is not a failure.
        let had_closed = !self.roster.is_present(rank);
        let failure = PeerFailure::Lost { how: how.into() };
        let cause = Error::PeerFailed {
            peer: self.roster.peer(rank),
            activity,
            failure: failure.clone(),
        };
        self.depart(rank, failure);
        if !had_closed {
            for id in self.channels_of(rank) {
                self.fail_channel(id, &cause);
            }
        }
        self.finish_if_all_left();
    }

    /// Ends the world from rank 0's side without waiting for the others.
    pub fn abandon(&mut self) {
        if !self.gone {
            self.gone = true;
            let to = self.members_to_tell();
            self.send(to, ToMember::Bye { orderly: false });
        }
    }

    fn contribution(&mut self, from: Rank, step: Step, arrival: Arrival, now: Instant) {
        let phase = Phase::Waiting;
        let activity = Activity::within(phase, arrival.call.operation, step.epoch);
        self.note_activity(from, activity);
        let Some(channel) = self.channels.get_mut(&step.channel) else {
            let message = format!("rank {from} contributed to a communicator nobody made");
            self.actions.push(Action::Note(message));
            return;
        };
        if let Some(cause) = channel.failure.clone() {
            // The abort is on its way, or this member was not connected when it was sent.
            let channel = step.channel;
            self.send(vec![from], ToMember::Abort { channel, cause });
            return;
        }
        let expected = channel.members.len();
        let round = channel
            .undecided
            .entry(step)
            .or_insert_with(|| Round::new(self.world.world_size.count(), expected, now));
        if let Some((other, call)) = round.first()
            && let Some(difference) = call.difference(&arrival.call)
        {
            let cause = Error::Desync {
                epoch: step.epoch,
                difference: difference.into(),
                one: self.roster.peer(other),
                one_call: call.to_string(),
                other: self.roster.peer(from),
                other_call: arrival.call.to_string(),
            };
            self.fail_channel(step.channel, &cause);
            return;
        }
        round.arrive(from, arrival, now);
        let complete = round.is_complete();
        let absent = round
            .missing(&channel.members)
            .find(|rank| !self.roster.is_present(*rank));
        if complete {
            self.decide(step);
        } else if let Some(rank) = absent {
            let cause = self.absence(step, rank);
            self.fail_channel(step.channel, &cause);
        }
    }

    /// Releases a complete step: the only place where a call succeeds.
    fn decide(&mut self, step: Step) {
        let Some(channel) = self.channels.get_mut(&step.channel) else {
            return;
        };
        let Some(round) = channel.undecided.remove(&step) else {
            return;
        };
        let arrivals = round.into_arrivals(&channel.members);
        let recipients = arrivals
            .first()
            .map_or(Recipients::All, |arrival| arrival.call.recipients());
        let owners: Vec<Rank> = channel
            .members
            .iter()
            .zip(&arrivals)
            .filter(|(_, arrival)| arrival.leaves_payload)
            .map(|(rank, _)| *rank)
            .collect();
        // A single recipient removes what it has read by itself.
        let acknowledge = recipients == Recipients::All && !owners.is_empty();
        let members = channel.members.clone();
        if acknowledge {
            let readers = members
                .iter()
                .copied()
                .filter(|rank| self.roster.is_connected(*rank))
                .collect();
            channel
                .reading
                .insert(step.epoch, Reading { owners, readers });
        }
        let further_rounds = arrivals
            .iter()
            .map(|arrival| arrival.further_rounds)
            .max()
            .unwrap_or(0);
        let bodies: Vec<Bytes> = arrivals.into_iter().map(|arrival| arrival.body).collect();
        let (told, only_released): (Vec<Rank>, Vec<Rank>) =
            members.iter().partition(|rank| recipients.include(**rank));
        let release = |bodies| ToMember::Release {
            step,
            bodies,
            acknowledge,
            further_rounds,
        };
        for rank in members {
            self.went_on(rank);
        }
        self.send(told, release(Some(bodies)));
        self.send(only_released, release(None));
    }

    /// Aborts everything undecided of a channel: the only place where calls fail.
    fn fail_channel(&mut self, id: ChannelId, cause: &Error) {
        let connected = self.roster.connected();
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        if channel.failure.is_some() {
            return;
        }
        channel.failure = Some(cause.clone());
        channel.undecided.clear();
        let to: Vec<Rank> = connected
            .into_iter()
            .filter(|rank| channel.members.contains(rank))
            .collect();
        channel.untold = to.iter().copied().collect();
        let cause = cause.clone();
        self.send(to, ToMember::Abort { channel: id, cause });
    }

    /// What to say when a call needs a rank that does not take part any more.
    fn absence(&self, step: Step, rank: Rank) -> Error {
        let peer = self.roster.peer(rank);
        let activity = self
            .roster
            .get(rank)
            .map_or(Activity::outside(Phase::Joining), |member| member.activity);
        let waiting = self.channels.get(&step.channel).and_then(|channel| {
            let (other, call) = channel.undecided.get(&step)?.first()?;
            Some((self.roster.peer(other), call.to_string()))
        });
        let standing = self.roster.get(rank).map(|member| &member.standing);
        match (standing, waiting) {
            (Some(Standing::Closed(site)), Some((other, other_call))) => Error::Desync {
                epoch: step.epoch,
                difference: "different operations".into(),
                one: peer,
                one_call: Call::new(Operation::Close, site.clone()).to_string(),
                other,
                other_call,
            },
            (Some(Standing::Gone(failure)), _) => Error::PeerFailed {
                peer,
                activity,
                failure: failure.clone(),
            },
            _ => Error::PeerFailed {
                peer,
                activity,
                failure: PeerFailure::Departed,
            },
        }
    }

    fn status(
        &mut self,
        from: Rank,
        channel: ChannelId,
        activity: Activity,
        bytes: u64,
        now: Instant,
    ) {
        self.note_activity(from, activity);
        let Some(member) = self.roster.get_mut(from) else {
            return;
        };
        // Being alive is not progress: only bytes that moved are.
        if bytes > member.bytes {
            member.bytes = bytes;
            if let Some(channel) = self.channels.get_mut(&channel) {
                for round in channel.undecided.values_mut() {
                    round.clock.moved(now);
                }
            }
            if let Some(closing) = &mut self.closing {
                closing.moved(now);
            }
        }
    }

    fn finished_reading(&mut self, id: ChannelId, epoch: Epoch, rank: Rank) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        for owner in channel.finished_reading(epoch, rank) {
            if self.roster.is_connected(owner) {
                self.send(vec![owner], ToMember::Reclaim { channel: id, epoch });
            } else {
                self.actions.push(Action::ReclaimFor {
                    channel: id,
                    epoch,
                    owner,
                });
            }
        }
    }

    fn close(&mut self, from: Rank, site: Site, now: Instant) {
        self.note_activity(from, Activity::outside(Phase::Closing));
        if let Some(member) = self.roster.get_mut(from) {
            member.standing = Standing::Closed(site);
        }
        self.closing
            .get_or_insert_with(|| Clock::started(now))
            .moved(now);
        if from == Rank::ZERO {
            self.own_close = true;
        }
        self.fail_calls_that_need(from);
    }

    fn leave(&mut self, from: Rank, cause: Option<&Error>) {
        let failed = cause.is_some();
        let failure = match cause {
            None => PeerFailure::Departed,
            Some(cause) => PeerFailure::Raised {
                message: cause.to_string(),
            },
        };
        let activity = self
            .roster
            .get(from)
            .map_or(Activity::outside(Phase::Closing), |member| member.activity);
        self.depart(from, failure.clone());
        if failed {
            let peer = self.roster.peer(from);
            let cause = Error::PeerFailed {
                peer,
                activity,
                failure,
            };
            for id in self.channels_of(from) {
                self.fail_channel(id, &cause);
            }
        } else {
            self.fail_calls_that_need(from);
        }
        if from == Rank::ZERO {
            self.own_close = true;
        }
    }

    /// Aborts the undecided calls to which `rank`, which will not contribute any more, has not.
    fn fail_calls_that_need(&mut self, rank: Rank) {
        for id in self.channels_of(rank) {
            let needed = self.channels.get(&id).and_then(|channel| {
                let mut steps = channel.undecided.iter();
                steps.find_map(|(step, round)| (!round.has(rank)).then_some(*step))
            });
            if let Some(step) = needed {
                let cause = self.absence(step, rank);
                self.fail_channel(id, &cause);
            }
        }
    }

    /// Takes a rank off all lists of those we wait for.
    fn depart(&mut self, rank: Rank, failure: PeerFailure) {
        if let Some(member) = self.roster.get_mut(rank) {
            member.standing = Standing::Gone(failure);
        }
        let mut reading = Vec::new();
        for channel in self.channels.values_mut() {
            channel.untold.remove(&rank);
            reading.extend(channel.reading.keys().map(|epoch| (channel.id, *epoch)));
        }
        for (id, epoch) in reading {
            self.finished_reading(id, epoch, rank);
        }
    }

    /// Says goodbye once nobody is in a call any more and all payloads have been read.
    fn finish_if_all_left(&mut self) {
        let all_left = self.open
            && self.own_close
            && !self.gone
            && self
                .world
                .world_size
                .ranks()
                .all(|rank| !self.roster.is_present(rank));
        let all_read = self
            .channels
            .values()
            .all(|channel| channel.reading.is_empty());
        if all_left && all_read {
            self.gone = true;
            let orderly = self
                .channels
                .values()
                .all(|channel| channel.failure.is_none());
            let to = self.members_to_tell();
            self.send(to, ToMember::Bye { orderly });
        }
    }

    /// Notes that a rank is through with the call it was in, as far as is known.
    fn went_on(&mut self, rank: Rank) {
        if let Some(member) = self.roster.get_mut(rank) {
            member.activity.phase = Phase::Computing;
        }
    }

    fn note_activity(&mut self, rank: Rank, activity: Activity) {
        if let Some(member) = self.roster.get_mut(rank) {
            member.activity = activity;
        }
    }

    fn channels_of(&self, rank: Rank) -> Vec<ChannelId> {
        self.channels
            .values()
            .filter(|channel| channel.members.contains(&rank))
            .map(|channel| channel.id)
            .collect()
    }

    /// Everybody who is connected, rank 0 included.
    fn members_to_tell(&self) -> Vec<Rank> {
        self.roster.connected()
    }

    fn send(&mut self, to: Vec<Rank>, message: ToMember) {
        if !to.is_empty() {
            self.actions.push(Action::Send { to, message });
        }
    }

    /// Host and process of every rank that has joined.
    #[must_use]
    pub fn processes(&self) -> Vec<ProcessId> {
        self.roster.processes()
    }
}

/// What a step is called in messages.
fn step_text(operation: Operation, step: Step) -> String {
    if step.round == RoundNumber::VERDICT {
        format!("{operation} #{}", step.epoch)
    } else {
        format!("{operation} #{} (part {})", step.epoch, step.round.get())
    }
}
