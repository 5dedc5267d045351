//! Deciding what becomes of a run: [`Supervision`]. Pure; it is told what happens and what time it is.

use std::{
    io,
    time::{Duration, Instant},
};

use fsgather::Rank;
use fsgather_core::{Deadline, FIRST_WARNING, duration_text};
use rustix::process::Signal;

use super::{
    outcome::{RankOutcome, rank_list},
    signals,
    told::{BEFORE, SOON, Told},
};
use crate::{exit, heeded::is_echo};

/// How patient we are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// From the first failure to SIGTERM for the others.
    pub(super) grace: Duration,
    /// From SIGTERM to SIGKILL.
    pub(super) kill_after: Duration,
}

/// What has happened.
#[derive(Clone, Debug)]
pub(super) enum Input {
    /// These ranks were found to have ended since the last time.
    Ended(Vec<(Rank, RankOutcome)>),
    /// All that ranks have told of what they have failed with, in the order in which they have done so.
    Told(Vec<Told>),
    /// Somebody has sent us a signal.
    Signal(Signal),
    /// Standard output takes nothing any more.
    OutputFailed(io::ErrorKind),
    /// Ranks can print nothing more, and what they have printed is delivered.
    Drained,
    /// The relay has ended.
    RelayEnded,
    /// The deadline has passed.
    Due,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Say a line.
    Say(String),
    /// Send a signal to the ranks that run, and all in their groups.
    SignalRunning(Signal),
    /// Send a signal to what ended ranks have left behind as well.
    SignalAll(Signal),
    /// Have the relay deliver what is there and end.
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

/// How far the end has come.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Nothing to complain about.
    Running,
    /// A rank has failed; the others may go on until then.
    Grace(Deadline),
    /// They got SIGTERM and get SIGKILL then.
    Terminated(Deadline),
    /// They got SIGKILL.
    Killed,
    /// All ranks have ended; what they have left behind got SIGTERM and gets SIGKILL then.
    Leftovers(Deadline),
    /// Output is being delivered.
    Delivering,
    /// All is over.
    Finished,
}

/// The course of one run.
#[derive(Debug)]
pub(super) struct Supervision {
    policy: Policy,
    pids: Vec<u32>,
    outcomes: Vec<Option<RankOutcome>>,
    /// When it was found that a rank has ended.
    ended: Vec<Option<Instant>>,
    stage: Stage,
    cause: Option<Cause>,
    /// Ranks that failed by themselves after the first one.
    also_failed: Vec<(Rank, RankOutcome)>,
    /// What ranks have failed with, as they say, in the order in which they have said it.
    told: Vec<Told>,
    /// The first signal that was passed on, the last one, and when that came.
    passed_on: Option<(Signal, Signal, Instant)>,
    drained: bool,
    /// What is said of ranks that have ended well before the others.
    early: Early,
}

/// Whether it is said that some ranks have ended well while others run: they may wait for them.
#[derive(Clone, Copy, Debug)]
enum Early {
    /// None has.
    None,
    /// It is said then, if others still run.
    Noted(Deadline),
    /// It has been said, which is enough.
    Said,
}

impl Supervision {
    /// The course of a run whose ranks have these process ids.
    pub(super) fn new(policy: Policy, pids: Vec<u32>) -> Self {
        Self {
            policy,
            outcomes: vec![None; pids.len()],
            ended: vec![None; pids.len()],
            pids,
            stage: Stage::Running,
            cause: None,
            also_failed: Vec::new(),
            told: Vec::new(),
            passed_on: None,
            drained: false,
            early: Early::None,
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
                } else if matches!(self.early, Early::None) {
                    self.early = Early::Noted(Deadline::after(now, FIRST_WARNING));
                }
            }
            Input::Told(told) => self.told = told,
            Input::Signal(signal) => self.signalled(now, signal, &mut actions),
            Input::OutputFailed(kind) => {
                self.cause.get_or_insert(Cause::Output(kind));
                if matches!(self.stage, Stage::Running | Stage::Grace(_)) {
                    self.terminate(now, &mut actions);
                }
            }
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
            Stage::Running => match (self.early, self.passed_on) {
                (Early::Noted(deadline), None) => Some(deadline),
                _ => None,
            },
            Stage::Killed | Stage::Delivering | Stage::Finished => None,
        }
    }

    /// Whether nothing more will be decided.
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

    /// What a rank has failed with, as it says itself.
    pub(super) fn own_word(&self, rank: Rank) -> Option<&str> {
        self.word_of(rank).map(|told| told.error.text.as_str())
    }

    /// How each rank ended; `None` for those that were given up.
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
            // It did what we have forced it to.
            return;
        }
        let obedient = self
            .passed_on
            .is_some_and(|(_, signal, _)| outcome.obeys(signal.as_raw()));
        let sentence = self.sentence(rank, outcome);
        match self.cause {
            // A rank killed from outside stays dead a moment before the system says so, and one that has failed cleans
            // up; meanwhile another may have noticed and ended because of just that.
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
        // After a signal ranks take the time they need, unless one fails for another reason.
        if matches!(self.stage, Stage::Running) && !obedient {
            self.stage = Stage::Grace(Deadline::after(now, self.policy.grace));
        }
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
            Stage::Running => {
                self.early = Early::Said;
                let ended = rank_list(&self.ranks(Option::is_some));
                let running = rank_list(&self.running());
                let run = if self.running().len() == 1 {
                    "runs"
                } else {
                    "run"
                };
                actions.push(Action::Say(format!(
                    "{ended} ended with code 0, and {running} still {run}; a call that waits for {ended} waits in vain"
                )));
            }
            Stage::Killed | Stage::Delivering | Stage::Finished => {}
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

    /// How a rank has ended, and why: as it says itself, else as the first of the others says.
    fn sentence(&self, rank: Rank, outcome: RankOutcome) -> String {
        let how = format!("rank {rank} (pid {}) {outcome}", self.pids[rank.index()]);
        if let Some(own) = self.last_of(rank) {
            let text = &own.error.text;
            let before = self.ended_of(rank).map(|ended| own.before(ended));
            // Nobody is killed by an error of its own.
            let is_earlier = own.went_on || outcome == RankOutcome::Signal(Signal::KILL.as_raw());
            match before {
                Some(before) if is_earlier && before <= BEFORE => {
                    return format!("{how}, right after it had said: {text}");
                }
                _ if is_earlier => {}
                Some(before) if before > SOON => {
                    return format!("{how}, {} after it had said: {text}", duration_text(before));
                }
                _ => return format!("{how}: {text}"),
            }
        }
        let mut told = self.told.iter();
        match told.find(|told| told.blames(rank) && self.is_of_end(told, rank)) {
            // What that one was at; why, it may not know.
            Some(Told { error, .. }) => {
                format!("{how}; rank {} tells of it: {}", error.rank, error.text)
            }
            None => how,
        }
    }

    /// What a rank has failed with, as it says itself, if that may be what it has ended by.
    fn word_of(&self, rank: Rank) -> Option<&Told> {
        self.last_of(rank).filter(|told| !told.went_on)
    }

    fn last_of(&self, rank: Rank) -> Option<&Told> {
        self.told.iter().find(|told| told.error.rank == rank.get())
    }

    fn ended_of(&self, rank: Rank) -> Option<Instant> {
        self.ended.get(rank.index()).copied().flatten()
    }

    /// Whether what a rank tells of another one is about how that one has ended: not about something that either has got over.
    fn is_of_end(&self, told: &Told, rank: Rank) -> bool {
        let own = self.last_of(rank);
        if own.is_some_and(|own| own.went_on && told.at <= own.at + BEFORE) {
            return false;
        }
        let teller = Rank::new(told.error.rank);
        let outcome = self.outcomes.get(teller.index()).copied().flatten();
        if outcome.is_some_and(|outcome| !outcome.is_failure()) {
            return false;
        }
        let is_near = |ended: Instant| told.before(ended) <= BEFORE;
        self.ended_of(rank).is_none_or(is_near) || !told.went_on && self.has_failed_soon_after(told)
    }

    /// Whether a rank has failed by itself soon after it has told of an error.
    fn has_failed_soon_after(&self, told: &Told) -> bool {
        let teller = Rank::new(told.error.rank);
        let mut also = self.also_failed.iter();
        let has_failed =
            self.failed_first() == Some(teller) || also.any(|(rank, _)| *rank == teller);
        let ended = self.ended_of(teller);
        has_failed && ended.is_some_and(|ended| told.before(ended) <= SOON)
    }

    /// What a rank has failed with, for whose doing it is: who has just met with an error may say how it ends in its own words.
    fn blaming(&self, rank: Rank) -> Option<&Told> {
        let ended = self.ended_of(rank);
        self.last_of(rank)
            .filter(|told| !told.went_on || ended.is_none_or(|ended| told.before(ended) <= SOON))
    }

    /// Whether a rank says by its exit code, or by what it has left, that another one is to blame.
    fn blames_another(&self, rank: Rank, outcome: RankOutcome) -> bool {
        match outcome {
            // It has aborted by what it had heard, as programs do that catch no error.
            RankOutcome::Signal(signal) if signal == Signal::ABORT.as_raw() => self
                .blaming(rank)
                .is_some_and(|told| !told.error.blames.is_empty()),
            RankOutcome::Signal(_) => false,
            RankOutcome::Code(_) => self.blaming(rank).map_or_else(
                || outcome.blames_another(),
                |told| !told.error.blames.is_empty(),
            ),
        }
    }

    fn is_blamed_by(&self, rank: Rank, by: Rank) -> bool {
        self.blaming(by).is_some_and(|told| told.blames(rank))
    }
}

#[cfg(test)]
mod tests;
