//! Decides what to do during a run, and why it failed: [`Supervision`]. Pure: events and the time go in, actions come out.

use std::{
    io,
    time::{Duration, Instant},
};

use fsgather::Rank;
use fsgather_core::{Deadline, duration_text};
use rustix::process::Signal;

use super::{
    errors::ReportedError,
    outcome::{RankOutcome, rank_list},
    signals,
};
use crate::{exit, heeded::is_echo};

/// An error may be the reason for the end of the rank that reported it if the rank ends within this time.
const MAX_ERROR_AGE: Duration = Duration::from_secs(30);

/// Ranks may report the failure of another one before the system reports its end, but at most by this time.
const MAX_REPORT_LEAD: Duration = Duration::from_secs(1);

/// How long ranks may take to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// From the first failure to SIGTERM for the others.
    pub(super) grace: Duration,
    /// From SIGTERM to SIGKILL.
    pub(super) kill_after: Duration,
}

/// An event.
#[derive(Clone, Debug)]
pub(super) enum Input {
    /// These ranks have ended since the last time.
    Ended(Vec<(Rank, RankOutcome)>),
    /// The last error of each rank, in the order in which they were reported.
    Errors(Vec<ReportedError>),
    /// This process received a signal.
    Signal(Signal),
    /// Standard output has failed.
    OutputFailed(io::ErrorKind),
    /// All output of the ranks is closed and delivered.
    Drained,
    /// The relay has ended.
    RelayEnded,
    /// The deadline has passed.
    Due,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Say a line.
    Say(String),
    /// Send a signal to the ranks that run, and all in their groups.
    SignalRunning(Signal),
    /// Send a signal to the groups of all ranks, also to what ended ranks have left behind.
    SignalAll(Signal),
    /// Let the relay deliver what can be read now, and end.
    StopRelay,
    /// Do not wait for the relay.
    Abandon,
}

/// Why a run does not end with code 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A rank failed.
    Rank(Rank, RankOutcome),
    /// A rank could not be started; the exit code for it.
    NotStarted(u8),
    /// Our standard output failed.
    Output(io::ErrorKind),
    /// This signal came before all ranks were started, or another one after it.
    Interrupted(Signal),
}

/// How far the run has come.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// No rank has failed.
    Running,
    /// A rank has failed; the others may continue until the deadline.
    Grace(Deadline),
    /// They got SIGTERM, and get SIGKILL at the deadline.
    Terminated(Deadline),
    /// They got SIGKILL.
    Killed,
    /// All ranks have ended. What they have left behind got SIGTERM, and gets SIGKILL at the deadline.
    Leftovers(Deadline),
    /// Output is being delivered.
    Delivering,
    /// The run is over.
    Finished,
}

/// The state of one run.
#[derive(Debug)]
pub(super) struct Supervision {
    policy: Policy,
    pids: Vec<u32>,
    outcomes: Vec<Option<RankOutcome>>,
    /// When each rank ended.
    ended: Vec<Option<Instant>>,
    stage: Stage,
    cause: Option<Cause>,
    /// Ranks that failed by themselves after the first one.
    also_failed: Vec<(Rank, RankOutcome)>,
    /// The last error of each rank, in the order in which they were reported.
    errors: Vec<ReportedError>,
    /// The first signal that was passed on, the last one, and when that came.
    passed_on: Option<(Signal, Signal, Instant)>,
    drained: bool,
}

impl Supervision {
    /// Begins a run whose ranks have these process ids.
    pub(super) fn new(policy: Policy, pids: Vec<u32>) -> Self {
        Self {
            policy,
            outcomes: vec![None; pids.len()],
            ended: vec![None; pids.len()],
            pids,
            stage: Stage::Running,
            cause: None,
            also_failed: Vec::new(),
            errors: Vec::new(),
            passed_on: None,
            drained: false,
        }
    }

    /// Ends those ranks that were started before one that could not be.
    pub(super) fn start_failed(&mut self, now: Instant, code: u8) -> Vec<Action> {
        self.cause = Some(Cause::NotStarted(code));
        let mut actions = Vec::new();
        if self.is_empty() {
            self.clear_up(now, &mut actions);
        } else {
            self.terminate(now, &mut actions);
        }
        actions
    }

    /// Notes that a signal came before all ranks were started; those that were get it as an input.
    pub(super) fn start_interrupted(&mut self, signal: Signal) {
        self.cause.get_or_insert(Cause::Interrupted(signal));
    }

    /// Decides what to do about something that has happened.
    pub(super) fn on(&mut self, now: Instant, input: Input) -> Vec<Action> {
        let mut actions = Vec::new();
        match input {
            Input::Ended(mut ended) => {
                for (rank, outcome) in &ended {
                    self.outcomes[rank.index()] = Some(*outcome);
                    self.ended[rank.index()] = Some(now);
                }
                // Within one look at the ranks, the order of their ends is not known.
                ended.sort_by_key(|(rank, outcome)| {
                    outcome.innocence(self.blames_another(*rank, *outcome))
                });
                for (rank, outcome) in ended {
                    if outcome.is_failure() {
                        self.rank_failed(now, rank, outcome, &mut actions);
                    }
                }
                if self.is_empty() {
                    self.clear_up(now, &mut actions);
                }
            }
            Input::Errors(errors) => self.errors = errors,
            Input::Signal(signal) => self.signalled(now, signal, &mut actions),
            Input::OutputFailed(kind) => self.output_failed(now, kind, &mut actions),
            Input::Drained => {
                self.drained = true;
                if matches!(self.stage, Stage::Leftovers(_)) {
                    self.deliver(&mut actions);
                }
            }
            Input::RelayEnded => self.stage = Stage::Finished,
            Input::Due => self.due(now, &mut actions),
        }
        actions
    }

    /// When to come back with [`Input::Due`].
    pub(super) const fn deadline(&self) -> Option<Deadline> {
        match self.stage {
            Stage::Grace(deadline) | Stage::Terminated(deadline) | Stage::Leftovers(deadline) => {
                Some(deadline)
            }
            Stage::Running | Stage::Killed | Stage::Delivering | Stage::Finished => None,
        }
    }

    /// Whether the run is over.
    pub(super) const fn is_finished(&self) -> bool {
        matches!(self.stage, Stage::Finished)
    }

    /// The code to exit with.
    pub(super) fn exit_code(&self) -> u8 {
        match self.cause {
            None => exit::DONE,
            Some(Cause::Rank(_, outcome)) => outcome.exit_code(),
            Some(Cause::NotStarted(code)) => code,
            Some(Cause::Output(io::ErrorKind::BrokenPipe)) => exit::BROKEN_PIPE,
            Some(Cause::Output(_)) => exit::OTHER,
            Some(Cause::Interrupted(signal)) => exit::code_of_signal(signal.as_raw()),
        }
    }

    /// The sentence that says why the run failed, if it did.
    pub(super) fn reason(&self) -> Option<String> {
        self.cause.map(|cause| match cause {
            Cause::Rank(rank, outcome) => self.sentence(rank, outcome),
            Cause::NotStarted(_) => "the command could not be started".to_owned(),
            Cause::Output(kind) => format!("standard output failed: {kind}"),
            Cause::Interrupted(signal) => {
                format!("ended by {}", signals::name(signal.as_raw()))
            }
        })
    }

    /// The rank whose failure was the first, as far as can be told.
    pub(super) const fn failed_first(&self) -> Option<Rank> {
        match self.cause {
            Some(Cause::Rank(rank, _)) => Some(rank),
            _ => None,
        }
    }

    /// The last error that a rank has reported.
    pub(super) fn last_error(&self, rank: Rank) -> Option<&ReportedError> {
        let mut errors = self.errors.iter();
        errors.find(|reported| reported.error.rank == rank.get())
    }

    /// How each rank ended; `None` for those that were not waited for.
    pub(super) fn outcomes(&self) -> &[Option<RankOutcome>] {
        &self.outcomes
    }

    /// Ranks that failed by themselves after the first one, in the order in which that was found.
    pub(super) fn also_failed(&self) -> &[(Rank, RankOutcome)] {
        &self.also_failed
    }

    fn rank_failed(
        &mut self,
        now: Instant,
        rank: Rank,
        outcome: RankOutcome,
        actions: &mut Vec<Action>,
    ) {
        if !matches!(self.stage, Stage::Running | Stage::Grace(_)) {
            // We have forced it to end.
            return;
        }
        let obedient = self
            .passed_on
            .is_some_and(|(_, signal, _)| outcome.obeys(signal.as_raw()));
        let sentence = self.sentence(rank, outcome);
        match self.cause {
            // The system reports the end of a killed rank a moment later, and a failed rank may take time to clean up.
            // Meanwhile another rank may have noticed the failure and ended because of it.
            Some(Cause::Rank(earlier, blaming))
                if self.blames_another(earlier, blaming)
                    && (matches!(outcome, RankOutcome::Signal(_))
                        || self.is_blamed_by(rank, earlier)
                            && !self.blames_another(rank, outcome)) =>
            {
                self.cause = Some(Cause::Rank(rank, outcome));
                self.also_failed.push((earlier, blaming));
                actions.push(Action::Say(sentence));
            }
            Some(_) if obedient => {}
            Some(_) => self.also_failed.push((rank, outcome)),
            None => {
                self.cause = Some(Cause::Rank(rank, outcome));
                if !obedient {
                    let others = if self.is_empty() || !matches!(self.stage, Stage::Running) {
                        String::new()
                    } else {
                        let grace = duration_text(self.policy.grace);
                        format!("; the others have {grace} to end")
                    };
                    actions.push(Action::Say(sentence + &others));
                }
            }
        }
        // After a signal ranks may take the time they need, unless one fails for another reason.
        if matches!(self.stage, Stage::Running) && !obedient {
            self.stage = Stage::Grace(Deadline::after(now, self.policy.grace));
        }
    }

    /// A reader that went away wants no more output, so the ranks are terminated. After another failure they may end by themselves, as
    /// after the failure of a rank: the terminal of the job may have been closed, and its signal is about to arrive.
    fn output_failed(&mut self, now: Instant, kind: io::ErrorKind, actions: &mut Vec<Action>) {
        self.cause.get_or_insert(Cause::Output(kind));
        if kind == io::ErrorKind::BrokenPipe {
            if matches!(self.stage, Stage::Running | Stage::Grace(_)) {
                self.terminate(now, actions);
            }
            return;
        }
        let mut line = format!("standard output failed: {kind}");
        // Ranks that got a signal take the time that they need.
        if matches!(self.stage, Stage::Running) && self.passed_on.is_none() {
            let grace = self.policy.grace;
            self.stage = Stage::Grace(Deadline::after(now, grace));
            line = format!("{line}; the ranks have {} to end", duration_text(grace));
        }
        actions.push(Action::Say(line));
    }

    fn signalled(&mut self, now: Instant, signal: Signal, actions: &mut Vec<Action>) {
        match (self.stage, self.passed_on) {
            (Stage::Finished, _) => {}
            (_, Some((_, last, at))) if is_echo(signal.as_raw(), (last.as_raw(), at), now) => {}
            (Stage::Leftovers(_) | Stage::Delivering | Stage::Killed, _) => {
                actions.push(Action::SignalAll(Signal::KILL));
                actions.push(Action::Abandon);
                self.stage = Stage::Finished;
            }
            (_, None) if self.is_empty() => self.clear_up(now, actions),
            (_, None) => {
                self.passed_on = Some((signal, signal, now));
                if matches!(
                    (self.stage, self.cause),
                    (Stage::Grace(_), Some(Cause::Output(_)))
                ) {
                    self.stage = Stage::Running;
                }
                actions.push(Action::SignalRunning(signal));
                actions.push(Action::Say(format!(
                    "{} passed on to {}; a second signal kills",
                    signals::name(signal.as_raw()),
                    rank_list(&self.running())
                )));
            }
            (_, Some((first, _, _))) => {
                self.passed_on = Some((first, signal, now));
                self.cause.get_or_insert(Cause::Interrupted(first));
                self.kill("after a second signal", actions);
            }
        }
    }

    fn due(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self
            .deadline()
            .is_none_or(|deadline| !deadline.has_passed(now))
        {
            return;
        }
        match self.stage {
            Stage::Grace(_) => self.terminate(now, actions),
            Stage::Terminated(_) => {
                let waited = duration_text(self.policy.kill_after);
                self.kill(&format!("still there {waited} after SIGTERM"), actions);
            }
            Stage::Leftovers(_) => self.deliver(actions),
            Stage::Running | Stage::Killed | Stage::Delivering | Stage::Finished => {}
        }
    }

    fn terminate(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.stage = Stage::Terminated(Deadline::after(now, self.policy.kill_after));
        let running = rank_list(&self.running());
        actions.push(Action::Say(format!("ending {running} with SIGTERM")));
        actions.push(Action::SignalRunning(Signal::TERM));
    }

    fn kill(&mut self, why: &str, actions: &mut Vec<Action>) {
        self.stage = Stage::Killed;
        let running = rank_list(&self.running());
        actions.push(Action::Say(format!("killing {running}, {why}")));
        actions.push(Action::SignalRunning(Signal::KILL));
    }

    /// All ranks have ended: ends what they have left behind.
    fn clear_up(&mut self, now: Instant, actions: &mut Vec<Action>) {
        actions.push(Action::SignalAll(Signal::TERM));
        self.stage = Stage::Leftovers(Deadline::after(now, self.policy.kill_after));
        if self.drained {
            self.deliver(actions);
        }
    }

    fn deliver(&mut self, actions: &mut Vec<Action>) {
        actions.push(Action::SignalAll(Signal::KILL));
        actions.push(Action::StopRelay);
        self.stage = Stage::Delivering;
    }

    fn running(&self) -> Vec<Rank> {
        self.ranks(Option::is_none)
    }

    fn ranks(&self, wanted: impl Fn(&Option<RankOutcome>) -> bool) -> Vec<Rank> {
        (0..)
            .zip(&self.outcomes)
            .filter(|(_, outcome)| wanted(outcome))
            .map(|(rank, _)| Rank::new(rank))
            .collect()
    }

    fn is_empty(&self) -> bool {
        self.outcomes.iter().all(Option::is_some)
    }

    /// How a rank has ended, with its last error, or else with what another rank reports about it.
    fn sentence(&self, rank: Rank, outcome: RankOutcome) -> String {
        let how = format!("rank {rank} (pid {}) {outcome}", self.pids[rank.index()]);
        if let Some(own) = self.last_error(rank) {
            let age = self.age_at_end(own, rank);
            let age = if age > MAX_REPORT_LEAD {
                format!(" ({} before)", duration_text(age))
            } else {
                String::new()
            };
            return format!("{how}; last error{age}: {}", own.error.text);
        }
        let mut reports = self.errors.iter();
        match reports.find(|reported| reported.blames(rank) && self.is_about_end(reported, rank)) {
            Some(ReportedError { error, .. }) => {
                format!("{how}; rank {} reports: {}", error.rank, error.text)
            }
            None => how,
        }
    }

    /// How long before the end of a rank an error was reported.
    fn age_at_end(&self, reported: &ReportedError, rank: Rank) -> Duration {
        let ended = self.ended.get(rank.index()).copied().flatten();
        ended.map_or(Duration::ZERO, |ended| {
            ended.saturating_duration_since(reported.at)
        })
    }

    /// Whether an error that blames a rank is about its end: not if it was reported long before, unless the reporting
    /// rank failed with it, and not if the reporting rank succeeded in spite of it.
    fn is_about_end(&self, reported: &ReportedError, rank: Rank) -> bool {
        let by = Rank::new(reported.error.rank);
        let has_failed = || {
            let mut also_failed = self.also_failed.iter();
            self.failed_first() == Some(by) || also_failed.any(|(failed, _)| *failed == by)
        };
        let outcome = self.outcomes.get(by.index()).copied().flatten();
        outcome.is_none_or(RankOutcome::is_failure)
            && (self.age_at_end(reported, rank) <= MAX_REPORT_LEAD || has_failed())
    }

    /// The error that a rank has probably ended with.
    fn final_error(&self, rank: Rank) -> Option<&ReportedError> {
        self.last_error(rank)
            .filter(|reported| self.age_at_end(reported, rank) <= MAX_ERROR_AGE)
    }

    /// Whether a rank says by its exit code, or by its last error, that it failed because of another one.
    fn blames_another(&self, rank: Rank, outcome: RankOutcome) -> bool {
        let last = self.final_error(rank);
        let blames = last.map(|reported| !reported.error.blames.is_empty());
        match outcome {
            // Programs that catch no error abort with it.
            RankOutcome::Signal(signal) if signal == Signal::ABORT.as_raw() => {
                blames.unwrap_or(false)
            }
            RankOutcome::Signal(_) => false,
            RankOutcome::Code(_) => blames.unwrap_or_else(|| outcome.blames_another()),
        }
    }

    fn is_blamed_by(&self, rank: Rank, by: Rank) -> bool {
        self.final_error(by)
            .is_some_and(|reported| reported.blames(rank))
    }
}

#[cfg(test)]
mod tests;
