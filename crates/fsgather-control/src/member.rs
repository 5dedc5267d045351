//! One rank's side of the control plane, as a machine without I/O: [`Member`].

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use fsgather_core::{
    Activity, Call, ChannelId, Contribution, Epoch, Error, Missing, Operation, Peer, PeerFailure,
    Phase, Rank, Round, Site, Step, Table, Ticket, Verdict,
};

use crate::message::{ToCoordinator, ToMember};

/// How much longer than the time-out a member waits for rank 0 to say that it has passed.
const GRACE: Duration = Duration::from_secs(10);

/// How often a member tells rank 0 that it gets on, at most.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// What a member wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberAction {
    /// Say something to rank 0.
    Send(ToCoordinator),
    /// Remove this rank's own payload of a call.
    Reclaim {
        /// The communicator.
        channel: ChannelId,
        /// The call.
        epoch: Epoch,
    },
}

/// How the end came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// All ranks closed in good order.
    Orderly,
    /// Rank 0 left, or something had failed.
    Disorderly,
}

#[derive(Debug, Default)]
struct Channel {
    next: Epoch,
    verdicts: BTreeMap<Step, Verdict>,
    failure: Option<Error>,
    /// Contributions on their way, on which rank 0 may have decided already.
    awaited: BTreeMap<Step, Operation>,
}

/// The state machine of one rank: calls and messages in, [`MemberAction`]s out.
///
/// Rank 0 has one too; its messages do not cross a wire.
#[derive(Debug)]
pub struct Member {
    rank: Rank,
    coordinator: Peer,
    patience: Duration,
    channels: BTreeMap<ChannelId, Channel>,
    heard: Instant,
    bytes: u64,
    doing: Activity,
    reported: Option<(Instant, u64, Activity)>,
    closing: bool,
    farewell: Option<Farewell>,
    lost: Option<String>,
    actions: Vec<MemberAction>,
}

impl Member {
    /// A member of a world that has formed.
    #[must_use]
    pub fn new(rank: Rank, coordinator: Peer, patience: Duration, now: Instant) -> Self {
        Self {
            rank,
            coordinator,
            patience,
            channels: BTreeMap::from([(ChannelId::WORLD, Channel::default())]),
            heard: now,
            bytes: 0,
            doing: Activity::outside(Phase::Computing),
            reported: None,
            closing: false,
            farewell: None,
            lost: None,
            actions: Vec::new(),
        }
    }

    /// What has to be done since the last time this was asked, in order.
    pub fn take_actions(&mut self) -> Vec<MemberAction> {
        std::mem::take(&mut self.actions)
    }

    /// Whether something has to be done.
    #[must_use]
    pub fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// How the world ended for this member, if it has.
    #[must_use]
    pub fn farewell(&self) -> Option<Farewell> {
        self.farewell
    }

    /// Whether rank 0 is gone without a goodbye.
    #[must_use]
    pub fn has_lost_coordinator(&self) -> bool {
        self.lost.is_some()
    }

    /// Why a communicator has failed, if it has.
    #[must_use]
    pub fn failure(&self, channel: ChannelId) -> Option<&Error> {
        self.channels.get(&channel)?.failure.as_ref()
    }

    /// What this rank is doing, as far as it has told.
    #[must_use]
    pub fn doing(&self) -> Activity {
        self.doing
    }

    /// Numbers a call.
    ///
    /// # Errors
    ///
    /// [`Error::Poisoned`] after a failure.
    pub fn begin(&mut self, channel: ChannelId, call: Call) -> Result<Ticket, Error> {
        let state = self.channels.entry(channel).or_default();
        if let Some(failure) = &state.failure {
            return Err(failure.poisoned());
        }
        let epoch = state.next;
        state.next = epoch.next();
        Ok(Ticket {
            channel,
            epoch,
            call: Arc::new(call),
        })
    }

    /// Hands in a contribution.
    ///
    /// # Errors
    ///
    /// The agreed error when the communicator has failed meanwhile.
    pub fn contribute(
        &mut self,
        ticket: &Ticket,
        round: Round,
        contribution: Contribution,
        now: Instant,
    ) -> Result<(), Error> {
        let state = self.channels.entry(ticket.channel).or_default();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        if state.awaited.is_empty() {
            // Rank 0 owes an answer from here on; what it said before does not count.
            self.heard = now;
        }
        state
            .awaited
            .insert(ticket.step(round), ticket.call.operation);
        self.doing = ticket.activity(Phase::Waiting);
        self.actions
            .push(MemberAction::Send(ToCoordinator::Contribute {
                step: ticket.step(round),
                call: (*ticket.call).clone(),
                body: contribution.body,
                leaves: contribution.leaves,
                further_rounds: contribution.further_rounds,
            }));
        Ok(())
    }

    /// The verdict on one round, once it is there; a verdict is handed out once.
    pub fn take_verdict(&mut self, step: Step) -> Option<Result<Verdict, Error>> {
        let state = self.channels.get_mut(&step.channel)?;
        if let Some(verdict) = state.verdicts.remove(&step) {
            return Some(Ok(verdict));
        }
        state.failure.clone().map(Err)
    }

    /// Drops the verdict on a call that nobody here wants any more, now or when it comes.
    pub fn abandon(&mut self, ticket: &Ticket) {
        let _ = ticket;
    }

    /// Handles what rank 0 says.
    pub fn hear(&mut self, message: ToMember, now: Instant) {
        self.heard = now;
        match message {
            ToMember::Release {
                step,
                bodies,
                acknowledge,
                further_rounds,
            } => {
                let table = bodies.map(|bodies| Table {
                    bodies,
                    acknowledge,
                });
                self.release(
                    step,
                    Verdict {
                        table,
                        further_rounds,
                    },
                );
            }
            ToMember::Abort { channel, cause } => {
                self.fail_channel(channel, &cause);
                self.say(ToCoordinator::AbortSeen { channel });
            }
            ToMember::Reclaim { channel, epoch } => {
                self.actions.push(MemberAction::Reclaim { channel, epoch });
            }
            ToMember::Bye { orderly } => self.bye(orderly),
            ToMember::Patience { .. }
            | ToMember::Forming { .. }
            | ToMember::Formed { .. }
            | ToMember::Welcome(_)
            | ToMember::Moved => {}
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
            let how = how.to_owned();
            let failure = if awaited.is_some() {
                PeerFailure::OutcomeUnknown { how }
            } else {
                PeerFailure::Lost { how }
            };
            self.fail_channel(id, &self.coordinator_failed(awaited, failure));
        }
    }

    /// Says that this rank cannot go on with a call; rank 0 decides what everybody returns.
    pub fn fail(
        &mut self,
        channel: ChannelId,
        epoch: Option<Epoch>,
        cause: Error,
        doing: Activity,
    ) {
        self.say(ToCoordinator::Fail {
            channel,
            epoch,
            cause,
            activity: doing,
        });
    }

    /// Fails all communicators here and now, and tells rank 0.
    pub fn interrupt(&mut self, cause: &Error) {
        for id in self.channel_ids() {
            if self.failure(id).is_none() {
                self.fail(id, None, cause.clone(), self.doing);
                self.fail_channel(id, cause);
            }
        }
    }

    /// Makes a communicator fail here, whatever rank 0 says; for when it does not answer.
    pub fn give_up(&mut self, channel: ChannelId, cause: &Error) {
        self.fail_channel(channel, cause);
    }

    /// Notes that this rank is at work, and tells rank 0 now and then.
    ///
    /// # Errors
    ///
    /// The agreed error when the communicator has failed meanwhile.
    pub fn progress(
        &mut self,
        channel: ChannelId,
        doing: Activity,
        bytes: u64,
        now: Instant,
    ) -> Result<(), Error> {
        if let Some(failure) = self.failure(channel) {
            return Err(failure.clone());
        }
        self.bytes += bytes;
        self.doing = doing;
        let due = self.reported.is_none_or(|(at, reported, before)| {
            before != doing
                || (self.bytes > reported && now.saturating_duration_since(at) >= STATUS_EVERY)
        });
        if due {
            self.reported = Some((now, self.bytes, doing));
            let bytes = self.bytes;
            self.say(ToCoordinator::Status {
                channel,
                activity: doing,
                bytes,
            });
        }
        Ok(())
    }

    /// Says that this rank has read all payloads of a call.
    pub fn done(&mut self, channel: ChannelId, epoch: Epoch) {
        self.reported = None;
        self.doing.phase = Phase::Computing;
        self.say(ToCoordinator::Done { channel, epoch });
    }

    /// Says that this rank has come to the orderly end.
    pub fn close(&mut self, site: Site, now: Instant) {
        self.closing = true;
        self.heard = now;
        self.say(ToCoordinator::Close { site });
    }

    /// Says that this rank goes.
    pub fn leave(&mut self, cause: Option<Error>) {
        self.say(ToCoordinator::Leave { cause });
    }

    /// Tells rank 0 of the end of another process on this host.
    pub fn sibling_exited(&mut self, rank: Rank) {
        self.say(ToCoordinator::SiblingExited { rank });
    }

    /// Lets time pass: gives up on a rank 0 that is long overdue with its verdict.
    pub fn tick(&mut self, now: Instant) {
        let overdue = self.next_tick().is_some_and(|due| now >= due);
        if !overdue {
            return;
        }
        for id in self.channel_ids() {
            let during = match self.first_awaited(id) {
                Some((operation, epoch)) => {
                    format!("{operation} #{epoch}, of which the outcome is unknown")
                }
                None if self.closing => "close".into(),
                None => continue,
            };
            let missing = Missing {
                rank: Rank::ZERO,
                process: Some((self.coordinator.host.clone(), self.coordinator.pid)),
                last_seen: Some((
                    Activity::outside(Phase::Coordinating),
                    now.saturating_duration_since(self.heard),
                )),
            };
            let cause = Error::Timeout {
                during,
                patience: self.patience + GRACE,
                missing: vec![missing],
                hint: "see whether rank 0 is stopped or its host unreachable; set FSGATHER_TIMEOUT to \
                       wait longer"
                    .into(),
            };
            self.fail_channel(id, &cause);
        }
    }

    /// When [`tick`](Member::tick) has to be called next, if nothing else happens before.
    #[must_use]
    pub fn next_tick(&self) -> Option<Instant> {
        let waiting = self
            .channels
            .values()
            .any(|channel| !channel.awaited.is_empty() && channel.failure.is_none());
        let waiting = waiting || (self.closing && self.farewell.is_none() && self.lost.is_none());
        // Rank 0 itself cannot lose touch with itself.
        (waiting && self.rank != Rank::ZERO).then(|| self.heard + self.patience + GRACE)
    }

    fn release(&mut self, step: Step, verdict: Verdict) {
        let state = self.channels.entry(step.channel).or_default();
        state.awaited.remove(&step);
        self.doing.phase = Phase::Computing;
        state.verdicts.insert(step, verdict);
    }

    fn bye(&mut self, orderly: bool) {
        self.farewell = Some(if orderly {
            Farewell::Orderly
        } else {
            Farewell::Disorderly
        });
        for id in self.channel_ids() {
            let cause = self.coordinator_failed(self.first_awaited(id), PeerFailure::Departed);
            self.fail_channel(id, &cause);
        }
    }

    fn fail_channel(&mut self, id: ChannelId, cause: &Error) {
        let state = self.channels.entry(id).or_default();
        state.awaited.clear();
        if state.failure.is_none() {
            state.failure = Some(cause.clone());
        }
    }

    /// The earliest call of a communicator on which rank 0 has not decided.
    fn first_awaited(&self, id: ChannelId) -> Option<(Operation, Epoch)> {
        let (step, operation) = self.channels.get(&id)?.awaited.first_key_value()?;
        Some((*operation, step.epoch))
    }

    fn coordinator_failed(&self, call: Option<(Operation, Epoch)>, failure: PeerFailure) -> Error {
        Error::PeerFailed {
            peer: self.coordinator.clone(),
            activity: Activity {
                phase: Phase::Coordinating,
                call,
            },
            failure,
        }
    }

    fn channel_ids(&self) -> Vec<ChannelId> {
        self.channels.keys().copied().collect()
    }

    fn say(&mut self, message: ToCoordinator) {
        if self.farewell.is_none() && self.lost.is_none() {
            self.actions.push(MemberAction::Send(message));
        }
    }
}
