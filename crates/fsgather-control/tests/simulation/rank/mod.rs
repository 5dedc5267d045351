//! One simulated rank: [`Process`] runs its program against its member's machine, as a caller would.
//!
//! It does step by step what `RankExchange` does for callers that may block, since nothing may block here.

mod calls;
mod groups;
mod work;

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    time::{Duration, Instant},
};

use fsgather_control::member::{Farewell, Member};
use fsgather_core::{Call, ChannelId, Error, Operation, Peer, Rank, Site, Step};

use self::work::{Current, Doing};
use crate::{
    program::{Task, program},
    promises::{Checked, Ledger, is_poisoned, promise},
    script::{Group, Script, TIME_LIMIT},
};

/// Time for which a rank that reports a failure waits for the agreed one.
const FAILURE_LIMIT: Duration = Duration::from_secs(10);

/// Time for which rank 0 waits for the others when it leaves: after a failure, and otherwise.
const DEPARTURE_LIMITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// Interval between reports of a rank at work.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Virtual time, and how much of it one process has slept through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) base: Instant,
    pub(crate) now: Duration,
    pub(crate) asleep: Duration,
}

impl Clock {
    /// The time of that process's machines.
    pub(crate) fn instant(self) -> Instant {
        self.base + self.now.saturating_sub(self.asleep)
    }

    /// The moment at which the machines have that time.
    pub(crate) fn moment(self, at: Instant) -> Duration {
        at.saturating_duration_since(self.base) + self.asleep
    }
}

/// Maximum part of the time in which a process was stopped that counts.
const COUNTED: Duration = Duration::from_secs(2);

/// Time after a stop in which a process decides nothing.
pub(crate) const HEARING: Duration = Duration::from_millis(500);

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Running,
    Stopped { since: Duration, until: Duration },
    Dead,
}

/// The course of a rank's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It continues with its program.
    On,
    /// It has to end.
    Interrupted,
    /// It has left before the end, with calls that it had not waited for.
    Left,
}

/// A rank's process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) rank: Rank,
    pub(crate) member: Member,
    pub(crate) health: Health,
    /// Time that does not count for its machines.
    pub(crate) asleep: Duration,
    /// Time until which it decides nothing, because it was stopped before.
    pub(crate) hears_until: Duration,
    /// Time since which it could do something and has not.
    pub(crate) ready_since: Option<Duration>,
    /// Time since which it waits for others, if it does.
    pub(crate) blocked_since: Option<Duration>,
    ranks: u32,
    program: VecDeque<Task>,
    pending: Vec<Current>,
    /// Its groups by the line that made them.
    groups: BTreeMap<usize, Group>,
    /// True if the world has failed for it, so that it continues only with its groups.
    world_failed: bool,
    way: Way,
    doing: Doing,
    /// True if something has happened to its member that it has not looked at.
    awake: bool,
}

/// The process of a simulated rank.
pub(crate) fn peer(rank: Rank) -> Peer {
    Peer {
        rank,
        host: format!("n{rank}"),
        pid: 1000 + rank.get(),
    }
}

/// The error that a rank raises in a simulated world; [`Ledger`] finds the rank in it.
pub(crate) fn raised(rank: Rank) -> Error {
    Error::config(format!("rank {rank} raises this"))
}

fn site(rank: Rank) -> Site {
    Site::named(format!("program.rs:{rank}:1"))
}

impl Process {
    pub(crate) fn new(script: &Script, rank: Rank, clock: Clock) -> Self {
        Self {
            rank,
            member: Member::new(
                peer(Rank::ZERO),
                Duration::from_secs(TIME_LIMIT),
                clock.instant(),
            ),
            health: Health::Running,
            asleep: Duration::ZERO,
            hears_until: Duration::ZERO,
            ready_since: None,
            blocked_since: None,
            ranks: script.ranks,
            program: program(script, rank),
            pending: Vec::new(),
            groups: BTreeMap::new(),
            world_failed: false,
            way: Way::On,
            doing: Doing::Idle,
            awake: false,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.health == Health::Running
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.doing, Doing::Ended)
    }

    pub(crate) fn is_departing(&self) -> bool {
        matches!(self.doing, Doing::Departing { .. })
    }

    /// Its activity, for messages.
    pub(crate) fn doing(&self) -> String {
        format!("{:?}", self.doing)
    }

    pub(crate) fn wake(&mut self) {
        self.awake = true;
    }

    /// Continues after it was stopped.
    pub(crate) fn resume(&mut self, now: Duration) {
        if let Health::Stopped { since, .. } = self.health {
            let stopped = now.saturating_sub(since);
            if stopped > COUNTED {
                self.asleep += stopped.saturating_sub(COUNTED);
                self.hears_until = now + HEARING;
            }
        }
        self.health = Health::Running;
        self.wake();
    }

    /// Ends the process even if it waits for others.
    pub(crate) fn end(&mut self) {
        self.doing = Doing::Ended;
        self.blocked_since = None;
    }

    /// Time at which it will do something of its own accord.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        match &self.doing {
            Doing::Computing { until }
            | Doing::Failing { until, .. }
            | Doing::Departing { until } => Some(*until),
            Doing::Publishing(_, work) | Doing::Reading(_, work) => {
                Some(work.until.min(work.next_report))
            }
            Doing::Idle
            | Doing::Waiting(_)
            | Doing::Closing
            | Doing::Staying { .. }
            | Doing::Ended => None,
        }
    }

    /// Returns true if it would do something now.
    pub(crate) fn is_ready(&self, now: Duration) -> bool {
        let due = self.next_due().is_some_and(|due| due <= now);
        match &self.doing {
            Doing::Idle => true,
            Doing::Waiting(_) | Doing::Closing | Doing::Failing { .. } | Doing::Staying { .. } => {
                self.awake || due
            }
            Doing::Ended => false,
            _ => due,
        }
    }

    /// Takes one step of the program.
    pub(crate) fn act(&mut self, clock: Clock, ledger: &mut Ledger) -> Checked {
        self.ready_since = None;
        self.awake = false;
        match mem::replace(&mut self.doing, Doing::Idle) {
            Doing::Idle => self.next_task(clock, ledger)?,
            Doing::Computing { .. } => {}
            Doing::Publishing(current, work) => match self.work(&current, work, clock) {
                Err(failure) => {
                    let channel = current.ticket.channel;
                    self.failed(channel, None, &failure, clock, ledger)?;
                }
                Ok(Some(work)) => self.doing = Doing::Publishing(current, work),
                Ok(None) => self.contribute(current, clock, ledger)?,
            },
            Doing::Waiting(current) => self.look_for_verdict(current, clock, ledger)?,
            Doing::Reading(current, work) => match self.work(&current, work, clock) {
                // A decided call stays readable; the failure appears at the next call.
                Ok(None) | Err(_) => self.finish_reading(&current, clock, ledger),
                Ok(Some(work)) => self.doing = Doing::Reading(current, work),
            },
            Doing::Failing {
                current,
                decided,
                cause,
                until,
            } => {
                let channel = current.ticket.channel;
                let agreed = self.member.failure(channel).cloned();
                let step = (!decided).then(|| current.step());
                match agreed {
                    Some(agreed) => self.failed(channel, step, &agreed, clock, ledger)?,
                    None if clock.now >= until => {
                        self.member.give_up(channel, &cause);
                        self.failed(channel, step, &cause, clock, ledger)?;
                    }
                    None => {
                        self.doing = Doing::Failing {
                            current,
                            decided,
                            cause,
                            until,
                        }
                    }
                }
            }
            Doing::Closing => self.look_for_the_end(clock, ledger)?,
            Doing::Staying { failed } => self.look_for_readers(failed, clock),
            ended @ (Doing::Departing { .. } | Doing::Ended) => self.doing = ended,
        }
        let blocked = matches!(
            self.doing,
            Doing::Waiting(_) | Doing::Closing | Doing::Staying { .. }
        );
        self.blocked_since = blocked.then(|| self.blocked_since.unwrap_or(clock.now));
        Ok(())
    }

    fn next_task(&mut self, clock: Clock, ledger: &mut Ledger) -> Checked {
        match self.program.pop_front() {
            // Only a world that has not failed has an end that all reach.
            None | Some(Task::Close) if self.world_failed => self.leave(None, clock),
            None => self.doing = Doing::Ended,
            Some(Task::Compute(seconds)) => {
                let until = clock.now + Duration::from_secs(seconds);
                self.doing = Doing::Computing { until };
            }
            Some(Task::Settle) => {
                if let Some(current) = self.pending.pop() {
                    self.program.push_front(Task::Settle);
                    self.look_for_verdict(current, clock, ledger)?;
                }
            }
            Some(Task::Call { verb, what, slot }) => {
                return self.call(verb, what, slot, clock, ledger);
            }
            Some(Task::Open { line, group }) => self.open(line, group, clock)?,
            Some(Task::DropGroup(slot)) => match self.take_owing(slot) {
                Some(current) => {
                    self.program.push_front(Task::DropGroup(slot));
                    self.look_for_verdict(current, clock, ledger)?;
                }
                None => self.drop_group(slot, clock, ledger),
            },
            Some(Task::DropGroups) => self.drop_groups(clock, ledger),
            Some(Task::Abandon) => self.abandon(clock, ledger),
            Some(Task::Start { verb, slot }) => {
                if let Some(current) = self.begin(verb, None, slot, clock, ledger)?
                    && self.hand_in(&current, clock, ledger)?
                {
                    self.pending.push(current);
                }
            }
            Some(Task::Interrupt) => {
                ledger.interrupts(self.rank);
                self.way = Way::Interrupted;
                self.member.interrupt(&raised(self.rank));
            }
            Some(Task::Leave { raise }) => {
                self.leave(raise.then(|| raised(self.rank)), clock);
            }
            Some(Task::Close) => {
                let failure = self.member.failure(ChannelId::WORLD).cloned();
                if let Some(failure) = failure {
                    return self.failed(ChannelId::WORLD, None, &failure, clock, ledger);
                }
                self.member.close(site(self.rank), clock.instant());
                self.doing = Doing::Closing;
            }
        }
        Ok(())
    }

    fn look_for_the_end(&mut self, clock: Clock, ledger: &mut Ledger) -> Checked {
        let failure = self.member.failure(ChannelId::WORLD).cloned();
        match (self.member.farewell(), failure) {
            (Some(Farewell::Orderly), _) => {
                ledger.closes(self.rank)?;
                self.end();
            }
            (_, Some(failure)) => {
                self.failed(ChannelId::WORLD, None, &failure, clock, ledger)?;
            }
            (_, None) => self.doing = Doing::Closing,
        }
        Ok(())
    }

    /// Notes a failure, checks the other calls of that channel, and continues with other channels, if it has any.
    fn failed(
        &mut self,
        channel: ChannelId,
        step: Option<Step>,
        failure: &Error,
        clock: Clock,
        ledger: &mut Ledger,
    ) -> Checked {
        ledger.fails(self.rank, channel, step, failure)?;
        let of_channel = |current: &Current| current.ticket.channel == channel;
        let (concerned, others) = mem::take(&mut self.pending)
            .into_iter()
            .partition(of_channel);
        self.pending = others;
        let concerned: Vec<Current> = concerned;
        for current in concerned {
            match self.member.take_verdict(current.step()) {
                Some(Ok(verdict)) => {
                    ledger.learns(self.rank, current.step(), &verdict)?;
                    if verdict.table.is_some_and(|table| table.acknowledge) {
                        self.member
                            .done(current.ticket.channel, current.ticket.epoch);
                    }
                }
                Some(Err(failure)) => {
                    ledger.fails(self.rank, channel, Some(current.step()), &failure)?;
                }
                None => promise!(
                    false,
                    "P1: rank {} has failed and still waits for {:?}",
                    self.rank,
                    current.step()
                ),
            }
        }
        let call = Call::new(Operation::Barrier, site(self.rank));
        let again = self.member.begin(channel, call);
        is_poisoned(self.rank, failure, again.err().as_ref())?;
        self.doing = Doing::Idle;
        if channel != ChannelId::WORLD {
            self.drop_channel(channel, clock, ledger);
        } else if self.groups.is_empty() {
            self.leave(None, clock);
        } else {
            self.world_failed = true;
        }
        Ok(())
    }

    fn leave(&mut self, cause: Option<Error>, clock: Clock) {
        let failed = self.member.failure(ChannelId::WORLD).is_some() || cause.is_some();
        let way = mem::replace(&mut self.way, Way::Left);
        if way == Way::Interrupted {
            self.member.leave(cause);
            self.go(failed, clock);
        } else {
            let looks_after_all = self.rank == Rank::ZERO;
            self.member.stay(cause, looks_after_all, clock.instant());
            self.blocked_since = None;
            self.look_for_readers(failed, clock);
        }
    }

    /// Stays as long as others read its payloads.
    fn look_for_readers(&mut self, failed: bool, clock: Clock) {
        if self.member.is_needed() {
            self.doing = Doing::Staying { failed };
        } else {
            self.member.end_stay();
            self.go(failed, clock);
        }
    }

    fn go(&mut self, failed: bool, clock: Clock) {
        self.doing = if self.rank == Rank::ZERO {
            let limit = DEPARTURE_LIMITS[usize::from(!failed)];
            Doing::Departing {
                until: clock.now + limit,
            }
        } else {
            Doing::Ended
        };
    }
}
