//! One rank's side of the control plane, as a machine without I/O: [`Member`].

mod calls;
mod channel;
mod keeping;
mod leaving;
pub(crate) mod silence;
mod staying;
mod timers;
mod watching;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use fsgather_core::{
    Activity, CallName, ChannelId, Epoch, Error, Neighbour, Peer, PeerFailure, Phase, Rank, Round,
    Site, Step, Verdict, Whereabouts,
};

use self::{
    channel::Channel,
    keeping::Keeping,
    silence::{Silence, StalledCall},
    staying::Staying,
    watching::{OWN_LOOK, Watching},
};
use crate::message::{
    CallReply, CallRequest, EndReply, EndRequest, GroupRequest, Probe, StallReport, ToCoordinator,
    ToMember,
};

/// Time beyond the time-out that a member waits for rank 0 to report that it has passed.
const GRACE: Duration = Duration::from_secs(10);

/// An action for the owner of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberAction {
    /// Send a message to rank 0.
    Send(ToCoordinator),
    /// Remove this rank's own payload of a call.
    Reclaim {
        /// The communicator.
        channel: ChannelId,
        /// The call.
        epoch: Epoch,
    },
    /// Show the user a message.
    Warn(String),
    /// Log a message.
    Note(String),
    /// Look at the own process, or at a neighbour's, and [report](Member::seen) the result.
    Look {
        /// Number of the order that this follows.
        number: u64,
        /// The neighbour to look at, if not the own process.
        neighbour: Option<Neighbour>,
    },
}

/// Manner in which the world ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// All ranks closed in good order.
    Orderly,
    /// Rank 0 left, or something had failed.
    Disorderly,
}

/// The state machine of one rank: calls and messages in, [`MemberAction`]s out.
///
/// Rank 0 has one too; its messages do not cross a wire.
#[derive(Clone, Debug)]
pub struct Member {
    coordinator: Peer,
    timeout: Duration,
    channels: BTreeMap<ChannelId, Channel>,
    /// The latest time passed to it.
    now: Instant,
    /// Time of rank 0's last message, or at which this rank reached the end.
    heard: Instant,
    doing: Activity,
    /// Time at which this rank reached the orderly end.
    closing: Option<Instant>,
    /// Site of this rank's close, while others may need the rank for calls that it has abandoned.
    close_at: Option<Site>,
    farewell: Option<Farewell>,
    lost: Option<String>,
    /// True if it has waited for rank 0 in vain.
    has_given_up: bool,
    /// The reason why everything was ended from here, groups made later included.
    interrupted: Option<Error>,
    /// Payloads that it has published and was not asked to remove.
    keeping: Keeping,
    /// The readers for which it stays, once it makes no more calls.
    staying: Option<Staying>,
    /// The call in which no payload moves from rank to rank, if there is one.
    stall: Option<StalledCall>,
    silence: Silence,
    watching: Watching,
    actions: Vec<MemberAction>,
}

impl Member {
    /// A member of a world that has formed.
    #[must_use]
    pub fn new(coordinator: Peer, timeout: Duration, now: Instant) -> Self {
        Self {
            coordinator,
            timeout,
            channels: BTreeMap::from([(ChannelId::WORLD, Channel::new(ChannelId::WORLD, now))]),
            now,
            heard: now,
            doing: Activity::outside(Phase::Computing),
            closing: None,
            close_at: None,
            farewell: None,
            lost: None,
            has_given_up: false,
            interrupted: None,
            keeping: Keeping::default(),
            staying: None,
            stall: None,
            silence: Silence::new(now),
            watching: Watching::default(),
            actions: Vec::new(),
        }
    }

    /// Adds where the process of rank 0 can be seen.
    #[must_use]
    pub fn beside(self, root: Neighbour) -> Self {
        Self {
            watching: Watching::of(root),
            ..self
        }
    }

    /// Returns the actions since the last call of this, in order.
    pub fn take_actions(&mut self) -> Vec<MemberAction> {
        std::mem::take(&mut self.actions)
    }

    /// Returns true if there are actions to do.
    #[must_use]
    pub fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// Manner in which the world ended for this member, if it has.
    #[must_use]
    pub fn farewell(&self) -> Option<Farewell> {
        self.farewell
    }

    /// Returns true if rank 0 is gone without a goodbye.
    #[must_use]
    pub fn has_lost_coordinator(&self) -> bool {
        self.lost.is_some()
    }

    /// The reason why a communicator has failed, if it has.
    #[must_use]
    pub fn failure(&self, channel: ChannelId) -> Option<&Error> {
        self.channels.get(&channel)?.failure()
    }

    /// This rank's activity, as far as it has reported it.
    #[must_use]
    pub fn doing(&self) -> Activity {
        self.doing.clone()
    }

    /// Number of communicators that this rank takes part in.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// Takes part in a group from here on; `members` are ranks of the world.
    ///
    /// # Errors
    ///
    /// When this rank uses the channel already.
    pub fn open(&mut self, id: ChannelId, members: Vec<Rank>, now: Instant) -> Result<(), Error> {
        if self.channels.contains_key(&id) {
            return Err(Error::config(
                "this rank uses the channel of that group already",
            ));
        }
        self.channels.insert(id, Channel::new(id, now));
        self.send(GroupRequest::Open {
            channel: id,
            members,
        });
        let failure = match (&self.lost, self.farewell, &self.interrupted) {
            (Some(how), _, _) => {
                let how = how.clone();
                Some(self.coordinator_failed(None, PeerFailure::Lost { how }))
            }
            (_, Some(_), _) => Some(
                self.why_rank_0_left()
                    .cloned()
                    .unwrap_or_else(|| self.coordinator_failed(None, PeerFailure::DEPARTED)),
            ),
            (_, _, Some(cause)) => {
                let cause = cause.clone();
                self.fail(id, cause.clone(), self.doing.clone());
                Some(cause)
            }
            _ => None,
        };
        if let Some(failure) = failure {
            self.fail_channel(id, &failure);
        }
        Ok(())
    }

    /// Leaves a group as soon as the others do not need this rank any more for calls to which it has contributed.
    pub fn retire(&mut self, id: ChannelId, now: Instant) {
        if id == ChannelId::WORLD {
            return;
        }
        if let Some(channel) = self.channels.get_mut(&id) {
            for message in channel.retire(now) {
                self.send(message);
            }
            self.go_if_free(id);
        }
    }

    /// Handles a message of rank 0.
    pub fn on_message(&mut self, message: ToMember, now: Instant) {
        self.now = now;
        self.heard = now;
        if let Some(channel) = message.channel().and_then(|id| self.channels.get_mut(&id)) {
            channel.mark_heard(now);
        }
        match message {
            ToMember::Call(reply) => self.on_call(reply, now),
            ToMember::Probe(Probe::Ask) => self.send(Probe::Here),
            ToMember::Probe(Probe::Look { number, neighbour }) => {
                self.actions.push(MemberAction::Look { number, neighbour });
            }
            ToMember::End(EndReply::Needed { by }) => {
                if let Some(staying) = &mut self.staying {
                    staying.needed(by, now);
                }
            }
            ToMember::End(EndReply::Bye { orderly }) => self.bye(orderly),
            ToMember::Join(_) | ToMember::Probe(_) => {}
        }
    }

    fn on_call(&mut self, reply: CallReply, now: Instant) {
        match reply {
            CallReply::Release { step, verdict } => self.release(step, verdict, now),
            CallReply::Abort { channel, cause } => {
                self.forget_undecided(channel);
                self.fail_channel(channel, &cause);
                self.send(CallRequest::AbortSeen { channel });
            }
            CallReply::Reclaim { channel, epoch } => {
                self.keeping.forget(channel, epoch);
                self.actions.push(MemberAction::Reclaim { channel, epoch });
            }
            CallReply::Notice { text } => self.actions.push(MemberAction::Note(text)),
            CallReply::Warning { text } => self.actions.push(MemberAction::Warn(text)),
            CallReply::KeepWaiting { .. } => {}
        }
    }

    /// Handles the loss of rank 0.
    pub fn lost(&mut self, how: &str) {
        if self.farewell.is_some() || self.lost.is_some() {
            return;
        }
        self.lost = Some(how.into());
        for id in self.channel_ids() {
            let awaited = self.first_awaited(id);
            let failure = match awaited {
                // A call of a group is numbered as those of the world are.
                Some(_) if id != ChannelId::WORLD => PeerFailure::OutcomeUnknown {
                    how: format!("{how}, in a call of a group"),
                },
                Some(_) => PeerFailure::OutcomeUnknown { how: how.into() },
                None => PeerFailure::Lost { how: how.into() },
            };
            self.fail_channel(id, &self.coordinator_failed(awaited, failure));
        }
    }

    /// Reports that this rank cannot continue a call; rank 0 decides the result for all ranks.
    pub fn fail(&mut self, channel: ChannelId, cause: Error, activity: Activity) {
        self.send(CallRequest::Fail {
            channel,
            // A user's text may be of any length, and a message may not.
            cause: cause.cut_to_size(),
            activity,
        });
    }

    /// Fails all communicators here and now, future ones as well, and reports it to rank 0.
    pub fn interrupt(&mut self, cause: &Error) {
        self.interrupted.get_or_insert_with(|| cause.clone());
        self.interrupt_stay(cause);
        for id in self.channel_ids() {
            self.interrupt_channel(id, cause);
        }
    }

    /// Fails one communicator here and now, and reports it to rank 0.
    pub fn interrupt_channel(&mut self, id: ChannelId, cause: &Error) {
        if self.failure(id).is_none() {
            self.fail(id, cause.clone(), self.doing.clone());
            self.fail_channel(id, cause);
        }
    }

    /// Makes a communicator fail here without rank 0, for when that does not answer.
    pub fn give_up(&mut self, channel: ChannelId, cause: &Error) {
        self.fail_channel(channel, cause);
    }

    /// Notes that this rank is at work on a call, which may have a time-out of its own, and reports it to rank 0 now and then.
    ///
    /// # Errors
    ///
    /// The agreed error when the communicator has failed meanwhile.
    pub fn progress(
        &mut self,
        channel: ChannelId,
        doing: Activity,
        bytes: u64,
        timeout: Option<Duration>,
        now: Instant,
    ) -> Result<(), Error> {
        let timeout = timeout.unwrap_or(self.timeout);
        let channel = self.channel(channel)?;
        if let Some(failure) = channel.failure() {
            return Err(failure.clone());
        }
        let message = channel.progress(&doing, bytes, timeout, now);
        self.doing = doing;
        if let Some(message) = message {
            self.send(message);
        }
        Ok(())
    }

    /// Notes that nothing moves between this rank and others in a call, which may have a time-out of its own, and reports
    /// it to rank 0 now and then.
    pub fn stalled(
        &mut self,
        channel: ChannelId,
        doing: Activity,
        waits_for: &[Rank],
        (idle, timeout): (Duration, Option<Duration>),
        now: Instant,
    ) {
        let timeout = timeout.unwrap_or(self.timeout);
        let (Some(lane), Some(call)) = (self.channels.get_mut(&channel), doing.call.clone()) else {
            return;
        };
        if lane.failure().is_some() {
            return;
        }
        if lane.tells_of_stall(call.epoch, idle, timeout) {
            self.send(CallRequest::Stalled {
                channel,
                activity: doing,
                wait: StallReport {
                    waits_for: waits_for.to_vec(),
                    idle,
                    timeout,
                },
            });
        }
        self.stall = Some(StalledCall::new(channel, call, (idle, timeout), now));
        self.look_at_silence(now);
    }

    /// Reports that this rank has read all payloads of a call.
    pub fn done(&mut self, channel: ChannelId, epoch: Epoch) {
        self.doing.phase = Phase::Computing;
        if let Some(channel) = self.channels.get_mut(&channel) {
            let message = channel.done(epoch);
            self.send(message);
        }
    }

    /// Reports that this rank has reached the orderly end, once the others do not need it any more for calls that it has abandoned.
    pub fn close(&mut self, site: Site, now: Instant) {
        self.closing = Some(now);
        self.close_at = Some(site);
        self.now = now;
        self.heard = now;
        self.close_if_free();
    }

    /// Reports the end of another process on this host to rank 0.
    pub fn sibling_exited(&mut self, rank: Rank) {
        self.send(EndRequest::SiblingExited { rank });
    }

    /// Reports what this rank saw when it was asked to look at `who`, itself or a neighbour.
    pub fn seen(&mut self, number: u64, who: Rank, whereabouts: Option<Whereabouts>) {
        if number == OWN_LOOK {
            return self.watching.see(whereabouts);
        }
        self.send(Probe::Seen {
            number,
            who,
            whereabouts,
        });
    }

    fn release(&mut self, step: Step, verdict: Verdict, now: Instant) {
        self.doing = self.doing.clone().gone_on();
        if step.round == Round::VERDICT {
            self.keeping.decided(step.channel, step.epoch);
        }
        // A group that this rank has left is not in `channels`: the results of its calls are dropped.
        let channel = self.channels.get_mut(&step.channel);
        if let Some(message) = channel.and_then(|channel| channel.release(step, verdict, now)) {
            self.send(message);
        }
        self.go_if_free(step.channel);
    }

    fn fail_channel(&mut self, id: ChannelId, cause: &Error) {
        if let Some(channel) = self.channels.get_mut(&id) {
            for message in channel.fail(cause) {
                self.send(message);
            }
            self.go_if_free(id);
        }
    }

    /// Leaves a group, or reaches the end, if that had to wait for an event on a channel.
    fn go_if_free(&mut self, id: ChannelId) {
        if self.channels.get(&id).is_some_and(Channel::can_retire) {
            self.channels.remove(&id);
            self.send(GroupRequest::Retire { channel: id });
        }
        self.close_if_free();
    }

    fn close_if_free(&mut self) {
        if !self.channels.values().any(Channel::is_busy)
            && let Some(site) = self.close_at.take()
        {
            if let Some(world) = self.channels.get_mut(&ChannelId::WORLD) {
                // Not now: a rank 0 that has just been given up on elsewhere gets no time on top.
                world.mark_heard(self.heard);
            }
            self.send(EndRequest::Close { site });
        }
    }

    /// The earliest call of a communicator on which rank 0 has not decided.
    fn first_awaited(&self, id: ChannelId) -> Option<Arc<CallName>> {
        self.channels.get(&id)?.first_awaited().cloned()
    }

    fn coordinator_failed(&self, call: Option<Arc<CallName>>, failure: PeerFailure) -> Error {
        Error::peer_failed(
            self.coordinator.clone(),
            Activity {
                phase: Phase::Coordinating,
                call,
            },
            failure,
        )
    }

    fn channel(&mut self, id: ChannelId) -> Result<&mut Channel, Error> {
        self.channels.get_mut(&id).ok_or_else(Error::closed)
    }

    fn channel_ids(&self) -> Vec<ChannelId> {
        self.channels.keys().copied().collect()
    }

    fn send(&mut self, message: impl Into<ToCoordinator>) {
        if self.farewell.is_none() && self.lost.is_none() {
            self.actions.push(MemberAction::Send(message.into()));
        }
    }
}
