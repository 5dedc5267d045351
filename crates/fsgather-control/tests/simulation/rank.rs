//! One simulated rank: [`Process`] runs its program against its member's machine, as a caller would.
//!
//! What `Seat` does for callers who may block is done here step by step, since nothing may block.

use std::{
    collections::VecDeque,
    mem,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fsgather_control::member::{Farewell, Member};
use fsgather_core::{
    Activity, Call, ChannelId, Contribution, Error, Leaves, Operation, Peer, Phase, Rank,
    Recipients, Round, Site, Step, Ticket, Verdict,
};

use crate::{
    program::{Task, program},
    promises::{Broken, Checked, Ledger, is_poisoned, promise},
    script::{PATIENCE, Script, Verb, What},
};

/// How long a rank that reports a failure waits for the agreed one.
const FAILURE_LIMIT: Duration = Duration::from_secs(10);

/// How long rank 0 waits for the others when it leaves: after a failure, and otherwise.
const DEPARTURE_LIMITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// How often a rank at work says so.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Virtual time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) base: Instant,
    pub(crate) now: Duration,
}

impl Clock {
    pub(crate) fn instant(self) -> Instant {
        self.base + self.now
    }
}

/// A call under way.
#[derive(Clone, Debug)]
struct Current {
    ticket: Ticket,
    round: u32,
    further_rounds: u32,
    leaves: bool,
    sends: bool,
    what: Option<What>,
    acknowledge: bool,
}

impl Current {
    fn step(&self) -> Step {
        self.ticket.step(Round::new(self.round))
    }

    fn go_on(&mut self, verdict: &Verdict) {
        if self.round == 0 {
            self.further_rounds = verdict.further_rounds;
            let table = verdict.table.as_ref();
            self.acknowledge = table.is_some_and(|table| table.acknowledge);
        }
    }
}

/// Work that takes time.
#[derive(Clone, Debug)]
struct Work {
    until: Duration,
    next_report: Duration,
    moving: bool,
    reports: u32,
}

#[derive(Clone, Debug)]
enum Doing {
    Idle,
    Computing {
        until: Duration,
    },
    Publishing(Current, Work),
    Waiting(Current),
    Reading(Current, Work),
    Failing {
        current: Current,
        decided: bool,
        cause: Error,
        until: Duration,
    },
    Closing,
    /// Rank 0 waits for the others to leave.
    Departing {
        until: Duration,
    },
    Ended,
}

/// What keeps a process from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Running,
    Stopped { until: Duration },
    Dead,
}

/// A rank's process.
pub(crate) struct Process {
    pub(crate) rank: Rank,
    pub(crate) member: Member,
    pub(crate) health: Health,
    /// Since when it could do something and has not.
    pub(crate) ready_since: Option<Duration>,
    /// Since when it waits for others, if it does.
    pub(crate) blocked_since: Option<Duration>,
    ranks: u32,
    program: VecDeque<Task>,
    pending: Vec<Current>,
    doing: Doing,
    /// Whether something has happened to its member that it has not looked at.
    awake: bool,
}

/// Where a simulated rank runs.
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
                rank,
                peer(Rank::ZERO),
                Duration::from_secs(PATIENCE),
                clock.instant(),
            ),
            health: Health::Running,
            ready_since: None,
            blocked_since: None,
            ranks: script.ranks,
            program: program(script, rank),
            pending: Vec::new(),
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

    /// What it is doing, for messages.
    pub(crate) fn doing(&self) -> String {
        format!("{:?}", self.doing)
    }

    pub(crate) fn wake(&mut self) {
        self.awake = true;
    }

    /// Ends what waits for others.
    pub(crate) fn end(&mut self) {
        self.doing = Doing::Ended;
        self.blocked_since = None;
    }

    /// When it will do something of its own accord.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        match &self.doing {
            Doing::Computing { until }
            | Doing::Failing { until, .. }
            | Doing::Departing { until } => Some(*until),
            Doing::Publishing(_, work) | Doing::Reading(_, work) => {
                Some(work.until.min(work.next_report))
            }
            Doing::Idle | Doing::Waiting(_) | Doing::Closing | Doing::Ended => None,
        }
    }

    /// Whether it would do something now.
    pub(crate) fn is_ready(&self, now: Duration) -> bool {
        let due = self.next_due().is_some_and(|due| due <= now);
        match &self.doing {
            Doing::Idle => true,
            Doing::Waiting(_) | Doing::Closing | Doing::Failing { .. } => self.awake || due,
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
                Err(failure) => self.failed(None, &failure, clock, ledger)?,
                Ok(Some(work)) => self.doing = Doing::Publishing(current, work),
                Ok(None) => self.contribute(current, clock, ledger)?,
            },
            Doing::Waiting(current) => self.look_for_verdict(current, clock, ledger)?,
            Doing::Reading(current, work) => match self.work(&current, work, clock) {
                // What was decided stays readable; the failure is met at the next call.
                Ok(None) | Err(_) => self.finish_reading(&current),
                Ok(Some(work)) => self.doing = Doing::Reading(current, work),
            },
            Doing::Failing {
                current,
                decided,
                cause,
                until,
            } => {
                let agreed = self.member.failure(ChannelId::WORLD).cloned();
                let step = (!decided).then(|| current.step());
                match agreed {
                    Some(agreed) => self.failed(step, &agreed, clock, ledger)?,
                    None if clock.now >= until => {
                        self.member.give_up(ChannelId::WORLD, &cause);
                        self.failed(step, &cause, clock, ledger)?;
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
            ended @ (Doing::Departing { .. } | Doing::Ended) => self.doing = ended,
        }
        let blocked = matches!(self.doing, Doing::Waiting(_) | Doing::Closing);
        self.blocked_since = blocked.then(|| self.blocked_since.unwrap_or(clock.now));
        Ok(())
    }

    fn next_task(&mut self, clock: Clock, ledger: &mut Ledger) -> Checked {
        match self.program.pop_front() {
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
            Some(Task::Call { verb, what }) => self.call(verb, what, clock, ledger)?,
            Some(Task::Start { leaves }) => {
                let call = Call::new(Operation::AllGather, site(self.rank));
                match self.member.begin(ChannelId::WORLD, call) {
                    Err(failure) => self.failed(None, &failure, clock, ledger)?,
                    Ok(ticket) => {
                        let current = Current {
                            ticket,
                            round: 0,
                            further_rounds: 0,
                            leaves,
                            sends: true,
                            what: None,
                            acknowledge: false,
                        };
                        if self.hand_in(&current, clock, ledger)? {
                            self.pending.push(current);
                        }
                    }
                }
            }
            Some(Task::Interrupt) => {
                ledger.interrupts(self.rank);
                self.member.interrupt(&raised(self.rank));
            }
            Some(Task::Leave { raise }) => {
                self.leave(raise.then(|| raised(self.rank)), clock);
            }
            Some(Task::Close) => {
                let failure = self.member.failure(ChannelId::WORLD).cloned();
                if let Some(failure) = failure {
                    return self.failed(None, &failure, clock, ledger);
                }
                self.member.close(site(self.rank), clock.instant());
                self.doing = Doing::Closing;
            }
        }
        Ok(())
    }

    fn call(
        &mut self,
        verb: Verb,
        what: Option<What>,
        clock: Clock,
        ledger: &mut Ledger,
    ) -> Checked {
        let own = self.rank.get();
        let bit = |bits: u8| bits >> (own % 8) & 1 == 1;
        let call = |operation| Call::new(operation, site(self.rank));
        // Only one rank needs the further rounds; all take part in them.
        let needs_rounds = own == 0 || own + 1 == self.ranks;
        let (call, leaves, sends, rounds) = match verb {
            Verb::Broadcast(root) => (
                call(Operation::Broadcast).with_root(Rank::new(root)),
                false,
                root == own,
                0,
            ),
            Verb::AllGather { leaves, rounds } => {
                (call(Operation::AllGather), bit(leaves), true, rounds)
            }
            Verb::Gather { root, leaves } => (
                call(Operation::Gather).with_root(Rank::new(root)),
                bit(leaves),
                true,
                0,
            ),
            _ => (call(Operation::Barrier), false, false, 0),
        };
        let ticket = match self.member.begin(ChannelId::WORLD, call) {
            Ok(ticket) => ticket,
            Err(failure) => return self.failed(None, &failure, clock, ledger),
        };
        let current = Current {
            ticket,
            round: 0,
            further_rounds: if needs_rounds { rounds.into() } else { 0 },
            leaves,
            sends,
            what,
            acknowledge: false,
        };
        match what {
            Some(What::Fail) => {
                self.report_failure(current, Phase::Publishing, false, clock);
                Ok(())
            }
            Some(What::Slow { seconds, moving }) => {
                self.doing = Doing::Publishing(current, Work::new(seconds, moving, clock));
                Ok(())
            }
            _ => self.contribute(current, clock, ledger),
        }
    }

    fn contribute(&mut self, current: Current, clock: Clock, ledger: &mut Ledger) -> Checked {
        if self.hand_in(&current, clock, ledger)? {
            self.doing = Doing::Waiting(current);
        }
        Ok(())
    }

    /// Whether the contribution is on its way.
    fn hand_in(
        &mut self,
        current: &Current,
        clock: Clock,
        ledger: &mut Ledger,
    ) -> Result<bool, Broken> {
        let first = current.round == 0;
        let text = format!(
            "{} in {} round {}",
            self.rank, current.ticket, current.round
        );
        let contribution = Contribution {
            body: if current.sends {
                Bytes::from(text)
            } else {
                Bytes::new()
            },
            leaves: match current.ticket.call.recipients() {
                _ if !(current.leaves && first) => Leaves::Nothing,
                Recipients::All => Leaves::ForOwner,
                Recipients::Only(_) => Leaves::ForReader,
            },
            further_rounds: if first { current.further_rounds } else { 0 },
        };
        let handed_in = self.member.contribute(
            &current.ticket,
            Round::new(current.round),
            contribution.clone(),
            clock.instant(),
        );
        match handed_in {
            Ok(()) => {
                ledger.hands_in(
                    self.rank,
                    current.step(),
                    &current.ticket.call,
                    contribution,
                )?;
                Ok(true)
            }
            Err(failure) => {
                self.failed(Some(current.step()), &failure, clock, ledger)?;
                Ok(false)
            }
        }
    }

    fn look_for_verdict(
        &mut self,
        mut current: Current,
        clock: Clock,
        ledger: &mut Ledger,
    ) -> Checked {
        match self.member.take_verdict(current.step()) {
            None => self.doing = Doing::Waiting(current),
            Some(Err(failure)) => {
                self.failed(Some(current.step()), &failure, clock, ledger)?;
            }
            Some(Ok(verdict)) => {
                ledger.learns(self.rank, current.step(), &verdict)?;
                current.go_on(&verdict);
                if current.round < current.further_rounds {
                    current.round += 1;
                    return self.contribute(current, clock, ledger);
                }
                match current.what {
                    Some(What::FailReading) => {
                        self.report_failure(current, Phase::Reading, true, clock);
                    }
                    Some(What::SlowReading { seconds, moving }) => {
                        self.doing = Doing::Reading(current, Work::new(seconds, moving, clock));
                    }
                    _ => self.finish_reading(&current),
                }
            }
        }
        Ok(())
    }

    fn finish_reading(&mut self, current: &Current) {
        if current.acknowledge {
            self.member
                .done(current.ticket.channel, current.ticket.epoch);
        }
        self.doing = Doing::Idle;
    }

    fn report_failure(&mut self, current: Current, phase: Phase, decided: bool, clock: Clock) {
        let cause = raised(self.rank);
        if self.member.failure(ChannelId::WORLD).is_none() {
            let doing = current.ticket.activity(phase);
            let epoch = Some(current.ticket.epoch);
            self.member
                .fail(ChannelId::WORLD, epoch, cause.clone(), doing);
        }
        self.awake = true;
        self.doing = Doing::Failing {
            current,
            decided,
            cause,
            until: clock.now + FAILURE_LIMIT,
        };
    }

    /// Goes on working; the work that is left, or the failure that makes it useless.
    fn work(
        &mut self,
        current: &Current,
        mut work: Work,
        clock: Clock,
    ) -> Result<Option<Work>, Error> {
        if clock.now >= work.until {
            return Ok(None);
        }
        work.reports += 1;
        work.next_report = clock.now + REPORT_EVERY;
        // Without bytes, only another activity is worth a message; so it says something every time.
        let (phase, bytes) = match (work.moving, work.reports % 2) {
            (true, _) => (Phase::Publishing, 1 << 20),
            (false, 0) => (Phase::Publishing, 0),
            (false, _) => (Phase::Reading, 0),
        };
        let doing: Activity = current.ticket.activity(phase);
        self.member
            .progress(ChannelId::WORLD, doing, bytes, clock.instant())?;
        Ok(Some(work))
    }

    fn look_for_the_end(&mut self, clock: Clock, ledger: &mut Ledger) -> Checked {
        let failure = self.member.failure(ChannelId::WORLD).cloned();
        match (self.member.farewell(), failure) {
            (Some(Farewell::Orderly), _) => {
                ledger.closes(self.rank)?;
                self.end();
            }
            (_, Some(failure)) => self.failed(None, &failure, clock, ledger)?,
            (_, None) => self.doing = Doing::Closing,
        }
        Ok(())
    }

    /// Takes note of a failure, looks what became of the other calls, and goes.
    fn failed(
        &mut self,
        step: Option<Step>,
        failure: &Error,
        clock: Clock,
        ledger: &mut Ledger,
    ) -> Checked {
        ledger.fails(self.rank, step, failure)?;
        for current in mem::take(&mut self.pending) {
            match self.member.take_verdict(current.step()) {
                Some(Ok(verdict)) => {
                    ledger.learns(self.rank, current.step(), &verdict)?;
                    if verdict.table.is_some_and(|table| table.acknowledge) {
                        self.member
                            .done(current.ticket.channel, current.ticket.epoch);
                    }
                }
                Some(Err(failure)) => {
                    ledger.fails(self.rank, Some(current.step()), &failure)?;
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
        let again = self.member.begin(ChannelId::WORLD, call);
        is_poisoned(self.rank, failure, again.err().as_ref())?;
        self.leave(None, clock);
        Ok(())
    }

    fn leave(&mut self, cause: Option<Error>, clock: Clock) {
        let failed = self.member.failure(ChannelId::WORLD).is_some() || cause.is_some();
        self.member.leave(cause);
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

impl Work {
    fn new(seconds: u8, moving: bool, clock: Clock) -> Self {
        Self {
            until: clock.now + Duration::from_secs(seconds.into()),
            next_report: clock.now,
            moving,
            reports: 0,
        }
    }
}
