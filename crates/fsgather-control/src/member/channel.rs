//! One communicator as its member sees it: [`Channel`].

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fsgather_core::{
    Activity, Call, CallName, ChannelId, Contribution, Deadline, Epoch, Error, Operation, Phase,
    Round, Step, Ticket, Verdict,
};

use crate::message::CallRequest;

/// Interval between reports to rank 0 that a call makes progress; shorter if the time-out is short.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// Minimum number of such reports within a time-out.
const STATUS_IN_TIME: u32 = 4;

/// Interval between reports to rank 0 that nothing moves in a call, at first, so that it knows of all when it is time to warn.
const STALLED_EVERY: Duration = Duration::from_secs(10);

/// Age of a stall from which on its reports are this far apart, as warnings are.
const STALLED_LATER: Duration = Duration::from_secs(30);

/// Number of calls for which the last report to rank 0 is remembered.
const REPORTS: usize = 8;

/// Returns the number of reports to rank 0 that are due by the time a stall has lasted for `idle`; the times at which rank
/// 0 warns are among theirs. If the time-out is short, the first is due after half of it, before another call times out for
/// that reason.
fn stall_reports(idle: Duration, timeout: Duration) -> u64 {
    let early = idle.min(STALLED_LATER).as_secs() / STALLED_EVERY.as_secs();
    let early = early + u64::from(early == 0 && idle >= timeout / 2);
    let later = idle.saturating_sub(STALLED_LATER).as_secs() / STALLED_LATER.as_secs();
    early + later
}

/// A call to which this rank has contributed and of which it has not taken the last verdict.
#[derive(Clone, Debug)]
struct ContributedCall {
    call: Arc<Call>,
    /// The last round to which this rank has contributed.
    round: Round,
    /// Number of further rounds that its own payload takes.
    own_rounds: u32,
    /// Number of further rounds of the call, once that is decided.
    rounds: Option<u32>,
    /// True if rank 0 waits for the message that all has been read.
    acknowledge: bool,
    /// True if no caller here wants the result.
    is_abandoned: bool,
}

/// A verdict that rank 0 owes.
#[derive(Clone, Debug)]
struct Awaited {
    call: Arc<CallName>,
    since: Instant,
    /// Time for which nothing may move, if not as long as elsewhere in the world.
    timeout: Option<Duration>,
}

/// The verdict that is the first to be overdue.
#[derive(Clone, Debug)]
pub(super) struct Owed {
    pub(super) call: Arc<CallName>,
    /// Time for which nothing may move.
    pub(super) timeout: Duration,
    /// Time of the last message.
    since: Instant,
}

impl Owed {
    /// Time at which it is overdue, with `grace` on top of the time-out.
    pub(super) fn due(&self, grace: Duration) -> Instant {
        Deadline::after(self.since, self.timeout.saturating_add(grace)).at()
    }
}

/// The last report to rank 0 about a call.
#[derive(Clone, Debug)]
struct LastReport {
    at: Instant,
    phase: Phase,
    bytes: u64,
}

/// The calls of one communicator.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    id: ChannelId,
    next: Epoch,
    /// Number of calls of the program that have started.
    calls: u64,
    /// The first call after all that rank 0 has decided, as far as is known.
    undecided: Epoch,
    /// True if rank 0 has reported that it decides nothing more.
    is_settled: bool,
    failure: Option<Error>,
    verdicts: BTreeMap<Step, Verdict>,
    /// Contributions on their way, on which rank 0 may have decided already.
    awaited: BTreeMap<Step, Awaited>,
    started: BTreeMap<Epoch, ContributedCall>,
    /// Number of bytes that this rank has moved for calls of this channel.
    bytes: u64,
    reports: BTreeMap<Epoch, LastReport>,
    /// Idle time of each stalled call in its last report to rank 0.
    stalled: BTreeMap<Epoch, Duration>,
    /// Time of rank 0's last message about this channel, or at which it began to owe an answer.
    heard: Instant,
    /// True if this rank leaves it as soon as no rank needs it for an abandoned call.
    is_retiring: bool,
}

impl Channel {
    pub(super) const fn new(id: ChannelId, now: Instant) -> Self {
        Self {
            id,
            next: Epoch::FIRST,
            calls: 0,
            undecided: Epoch::FIRST,
            is_settled: false,
            failure: None,
            verdicts: BTreeMap::new(),
            awaited: BTreeMap::new(),
            started: BTreeMap::new(),
            bytes: 0,
            reports: BTreeMap::new(),
            stalled: BTreeMap::new(),
            heard: now,
            is_retiring: false,
        }
    }

    pub(super) const fn id(&self) -> ChannelId {
        self.id
    }

    pub(super) const fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// The first call after all that rank 0 has decided, as far as is known.
    pub(super) const fn undecided(&self) -> Epoch {
        self.undecided
    }

    /// Returns true if rank 0 has reported that it decides nothing more.
    pub(super) const fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Notes that rank 0 decides nothing more.
    pub(super) const fn settle(&mut self) {
        self.is_settled = true;
    }

    /// Time of rank 0's last message about this channel, or at which it began to owe an answer.
    pub(super) const fn heard(&self) -> Instant {
        self.heard
    }

    /// Notes that rank 0 has sent a message about this channel, or owes an answer from now on.
    pub(super) const fn mark_heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// The earliest call on which rank 0 has not decided.
    pub(super) fn first_awaited(&self) -> Option<&Arc<CallName>> {
        let (_, awaited) = self.awaited.first_key_value()?;
        Some(&awaited.call)
    }

    /// Time since which rank 0 owes a verdict, if it does.
    pub(super) fn awaiting_since(&self) -> Option<Instant> {
        self.awaited.values().map(|awaited| awaited.since).min()
    }

    /// The verdict that is the first to be overdue among those that rank 0 owes; `timeout` applies to calls without one of their own.
    pub(super) fn first_owed(&self, timeout: Duration) -> Option<Owed> {
        let owed = self.awaited.values().map(|awaited| Owed {
            call: awaited.call.clone(),
            timeout: awaited.timeout.unwrap_or(timeout),
            since: awaited.since.max(self.heard),
        });
        owed.min_by_key(|owed| owed.due(Duration::ZERO))
    }

    pub(super) fn begin(&mut self, call: Call) -> Result<Ticket, Error> {
        match &self.failure {
            Some(failure) => Err(failure.poisoned()),
            None => Ok(self.number(call)),
        }
    }

    /// Numbers a call, even after a failure.
    pub(super) fn number(&mut self, call: Call) -> Ticket {
        let epoch = self.next;
        self.next = epoch.next();
        let call = call.counted(&mut self.calls);
        Ticket {
            channel: self.id,
            epoch,
            call: Arc::new(call),
        }
    }

    /// Records a contribution, and returns the message to rank 0.
    pub(super) fn contribute(
        &mut self,
        ticket: &Ticket,
        round: Round,
        contribution: Contribution,
        now: Instant,
    ) -> Result<CallRequest, Error> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if round == Round::VERDICT {
            let started = ContributedCall {
                call: Arc::clone(&ticket.call),
                round,
                own_rounds: contribution.further_rounds,
                rounds: None,
                acknowledge: false,
                is_abandoned: false,
            };
            self.started.insert(ticket.epoch, started);
        } else if let Some(started) = self.started.get_mut(&ticket.epoch) {
            started.round = round;
        }
        Ok(self.hand_in(&ticket.call, ticket.step(round), contribution, now))
    }

    fn hand_in(
        &mut self,
        call: &Call,
        step: Step,
        contribution: Contribution,
        now: Instant,
    ) -> CallRequest {
        if self.awaited.is_empty() {
            // Earlier messages of rank 0 do not count.
            self.heard = now;
        }
        let awaited = Awaited {
            call: CallName::of(call, step.epoch).into(),
            since: now,
            timeout: call.timeout,
        };
        self.awaited.insert(step, awaited);
        CallRequest::Contribute {
            step,
            call: call.clone(),
            contribution,
        }
    }

    /// The verdict on one round, once it is there; a verdict is handed out once.
    pub(super) fn take_verdict(&mut self, step: Step) -> Option<Result<Verdict, Error>> {
        let Some(verdict) = self.verdicts.remove(&step) else {
            return self.failure.clone().map(Err);
        };
        let started = self.started.get(&step.epoch);
        if started.is_some_and(|started| started.rounds == Some(step.round.get())) {
            self.started.remove(&step.epoch);
        }
        Some(Ok(verdict))
    }

    /// Keeps a verdict for the calling thread, and returns the message to rank 0 if the call is abandoned.
    pub(super) fn release(
        &mut self,
        step: Step,
        verdict: Verdict,
        now: Instant,
    ) -> Option<CallRequest> {
        self.awaited.remove(&step);
        self.undecided = self.undecided.max(step.epoch.next());
        if let Some(started) = self.started.get_mut(&step.epoch) {
            if step.round == Round::VERDICT {
                started.rounds = Some(verdict.further_rounds);
                let table = verdict.table.as_ref();
                started.acknowledge = table.is_some_and(|table| table.acknowledge);
            }
            if started.is_abandoned {
                return self.go_on_without(step.epoch, now);
            }
        }
        self.verdicts.insert(step, verdict);
        None
    }

    /// Notes that no caller here wants the result of a call, and returns the message to rank 0, if one is due now. The call
    /// fails with `cause` if the others still need data of this rank.
    pub(super) fn abandon(
        &mut self,
        epoch: Epoch,
        cause: Error,
        now: Instant,
    ) -> Option<CallRequest> {
        let started = self.started.get_mut(&epoch)?;
        if std::mem::replace(&mut started.is_abandoned, true) {
            return None;
        }
        let step = Step {
            channel: self.id,
            epoch,
            round: started.round,
        };
        if self.failure.is_none() && started.round.get() < started.own_rounds {
            let call = CallName::of(&started.call, epoch);
            let activity = Activity::within(Phase::Publishing, call);
            self.started.remove(&epoch);
            return Some(CallRequest::Fail {
                channel: self.id,
                cause: cause.cut_to_size(),
                activity,
            });
        }
        self.verdicts.remove(&step);
        if self.awaited.contains_key(&step) {
            return None;
        }
        self.go_on_without(epoch, now)
    }

    /// Notes that this rank leaves the communicator and wants no more results of it, and returns the messages to rank 0
    /// that come first.
    pub(super) fn retire(&mut self, now: Instant) -> Vec<CallRequest> {
        self.is_retiring = true;
        let started = self.started.values();
        let is_missed = |started: &ContributedCall| started.round.get() < started.own_rounds;
        if started.into_iter().any(is_missed) {
            // The others need payloads that are lost when this rank leaves.
            self.started.clear();
        }
        let wanted = self.started.iter();
        let wanted: Vec<Epoch> = wanted
            .filter(|(_, started)| !started.is_abandoned)
            .map(|(epoch, _)| *epoch)
            .collect();
        let abandon = |epoch| self.abandon(epoch, Error::config("never told"), now);
        wanted.into_iter().filter_map(abandon).collect()
    }

    /// Returns true if others may need this rank for calls that it has abandoned.
    pub(super) fn is_busy(&self) -> bool {
        let mut started = self.started.values();
        // A rank that has arrived at a meeting has nothing more to do for it.
        let needs_more = |started: &ContributedCall| {
            started.is_abandoned && started.call.operation != Operation::Meet
        };
        self.failure.is_none() && started.any(needs_more)
    }

    /// Returns true if this rank wants to leave and can leave now.
    pub(super) fn can_retire(&self) -> bool {
        self.is_retiring && !self.is_busy()
    }

    /// Does what the others need of this rank in an abandoned call of which the last verdict has arrived.
    fn go_on_without(&mut self, epoch: Epoch, now: Instant) -> Option<CallRequest> {
        let channel = self.id;
        let started = self.started.get_mut(&epoch)?;
        if self.failure.is_none() && Some(started.round.get()) < started.rounds {
            started.round = started.round.next();
            let (call, round) = (Arc::clone(&started.call), started.round);
            let step = Step {
                channel,
                epoch,
                round,
            };
            return Some(self.hand_in(&call, step, Contribution::inline(Bytes::new()), now));
        }
        let started = self.started.remove(&epoch)?;
        let done = CallRequest::Done { channel, epoch };
        started.acknowledge.then_some(done)
    }

    /// Fails all undecided calls and all later ones, and returns the messages to rank 0.
    pub(super) fn fail(&mut self, cause: &Error) -> Vec<CallRequest> {
        self.awaited.clear();
        self.failure.get_or_insert_with(|| cause.clone());
        let started = self.started.iter();
        let abandoned: Vec<Epoch> = started
            .filter(|(_, started)| started.is_abandoned)
            .map(|(epoch, _)| *epoch)
            .collect();
        // No more contributions follow, so any time will do.
        let now = self.heard;
        let without = |epoch| self.go_on_without(epoch, now);
        abandoned.into_iter().filter_map(without).collect()
    }

    /// Notes progress of this rank in a call with this time-out, and returns a report to rank 0 now and then.
    pub(super) fn progress(
        &mut self,
        activity: &Activity,
        bytes: u64,
        timeout: Duration,
        now: Instant,
    ) -> Option<CallRequest> {
        let every = STATUS_EVERY.min(timeout / STATUS_IN_TIME);
        self.bytes += bytes;
        let epoch = activity
            .call
            .as_ref()
            .map_or(Epoch::FIRST, |call| call.epoch);
        let is_due = self.reports.get(&epoch).is_none_or(|report| {
            report.phase != activity.phase
                || (self.bytes > report.bytes && now.saturating_duration_since(report.at) >= every)
        });
        if !is_due {
            return None;
        }
        let report = LastReport {
            at: now,
            phase: activity.phase,
            bytes: self.bytes,
        };
        self.reports.insert(epoch, report);
        if self.reports.len() > REPORTS {
            self.reports.pop_first();
        }
        Some(CallRequest::Status {
            channel: self.id,
            activity: activity.clone(),
            bytes: self.bytes,
        })
    }

    /// Returns true if it is time to report to rank 0 that nothing has moved in a call for `idle`.
    pub(super) fn tells_of_stall(
        &mut self,
        epoch: Epoch,
        idle: Duration,
        timeout: Duration,
    ) -> bool {
        let told = self.stalled.entry(epoch).or_default();
        if idle < *told {
            // It has moved on since.
            *told = Duration::ZERO;
        }
        let is_due = stall_reports(idle, timeout) > stall_reports(*told, timeout);
        if is_due {
            *told = idle;
        }
        if self.stalled.len() > REPORTS {
            self.stalled.pop_first();
        }
        is_due
    }

    /// Notes that this rank has read all payloads of a call, and returns the message to rank 0.
    pub(super) fn done(&mut self, epoch: Epoch) -> CallRequest {
        self.reports.remove(&epoch);
        self.stalled.remove(&epoch);
        CallRequest::Done {
            channel: self.id,
            epoch,
        }
    }
}
