//! Decides on the actions during a run, and on the reason why it failed: [`Supervision`]. Pure: events and the time go in, actions come
//! out.

use std::{
    io,
    time::{Duration, Instant},
};

use fsgather::Rank;
use fsgather_core::{Deadline, duration_text};
use rustix::process::Signal;

use super::{
    error_file::ReportedError,
    outcome::{RankOutcome, rank_list, signal_text},
    rank_ends::RankEnds,
};
use crate::{exit, heeded::is_echo};

/// Time that a run waits after the end of the last rank before it reports the reason for the wait.
const NOTICE_DELAY: Duration = Duration::from_secs(1);

/// Maximum time that ranks may take to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// From the first failure to SIGTERM for the others.
    pub(super) grace: Duration,
    /// From SIGTERM to SIGKILL.
    pub(super) kill_after: Duration,
}

/// An action to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Print a line.
    Say(String),
    /// Send a signal to the ranks that run, and all in their groups.
    SignalRunning(Signal),
    /// Send a signal to the groups of all ranks, and so to processes that ended ranks have left behind.
    SignalAll(Signal),
    /// Let the relay deliver the output that can be read now, and end.
    StopRelay,
    /// Do not wait for the relay.
    Abandon,
}

/// The reason why a run does not end with code 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A rank failed.
    Rank(Rank, RankOutcome),
    /// A rank could not be started.
    NotStarted {
        /// The exit code for it.
        code: u8,
        /// The reason, as a sentence.
        reason: String,
    },
    /// Our standard output failed.
    Output {
        /// The kind of the error,
        kind: io::ErrorKind,
        /// and its text.
        text: String,
    },
    /// This signal arrived before all ranks were started, or was followed by a second one.
    Interrupted(Signal),
}

/// The stage of a run.
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
    /// All ranks have ended. Processes that they left behind got SIGTERM, and are reported at the deadline.
    Leftovers(Deadline),
    /// The same, and they were reported. They get SIGKILL at the deadline.
    ReportedLeftovers(Deadline),
    /// Output is being delivered, which is reported at the deadline.
    Delivering(Deadline),
    /// The same, and it was reported.
    ReportedDelivery,
    /// The run is over.
    Finished,
}

/// The state of one run.
#[derive(Debug)]
pub(super) struct Supervision {
    policy: Policy,
    ends: RankEnds,
    stage: Stage,
    cause: Option<Cause>,
    /// Ranks that failed by themselves after the first one, and were not reported.
    also_failed: Vec<(Rank, RankOutcome)>,
    /// The first signal that was passed on, the last one, and the time of the last one.
    passed_on: Option<(Signal, Signal, Instant)>,
    is_drained: bool,
    actions: Vec<Action>,
}

impl Supervision {
    /// Begins a run whose ranks have these process ids.
    pub(super) fn new(policy: Policy, pids: Vec<u32>) -> Self {
        Self {
            policy,
            ends: RankEnds::new(pids),
            stage: Stage::Running,
            cause: None,
            also_failed: Vec::new(),
            passed_on: None,
            is_drained: false,
            actions: Vec::new(),
        }
    }

    /// Takes the actions that are due.
    pub(super) fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// The time at which [`on_deadline`](Self::on_deadline) must be called.
    pub(super) const fn deadline(&self) -> Option<Deadline> {
        match self.stage {
            Stage::Grace(deadline)
            | Stage::Terminated(deadline)
            | Stage::Leftovers(deadline)
            | Stage::ReportedLeftovers(deadline)
            | Stage::Delivering(deadline) => Some(deadline),
            Stage::Running | Stage::Killed | Stage::ReportedDelivery | Stage::Finished => None,
        }
    }

    /// Returns true if the run is over.
    pub(super) const fn is_finished(&self) -> bool {
        matches!(self.stage, Stage::Finished)
    }

    /// The code to exit with.
    pub(super) fn exit_code(&self) -> u8 {
        match &self.cause {
            None => exit::DONE,
            Some(Cause::Rank(_, outcome)) => outcome.exit_code(),
            Some(Cause::NotStarted { code, .. }) => *code,
            Some(Cause::Output {
                kind: io::ErrorKind::BrokenPipe,
                ..
            }) => exit::BROKEN_PIPE,
            Some(Cause::Output { .. }) => exit::OTHER,
            Some(Cause::Interrupted(signal)) => exit::code_of_signal(signal.as_raw()),
        }
    }

    /// The sentence about the reason why the run failed, if it did.
    pub(super) fn reason(&self) -> Option<String> {
        self.cause.as_ref().map(|cause| match cause {
            Cause::Rank(rank, outcome) => self.ends.sentence(*rank, *outcome),
            Cause::NotStarted { reason, .. } => reason.clone(),
            Cause::Output { text, .. } => format!("standard output failed: {text}"),
            Cause::Interrupted(signal) => format!("ended by {}", signal_text(signal.as_raw())),
        })
    }

    /// The rank that failed first, as far as is known.
    pub(super) const fn failed_first(&self) -> Option<Rank> {
        match self.cause {
            Some(Cause::Rank(rank, _)) => Some(rank),
            _ => None,
        }
    }

    /// The ends of the ranks.
    pub(super) const fn ends(&self) -> &RankEnds {
        &self.ends
    }

    /// Ranks that failed by themselves after the first one and were not reported, in the order in which that was found.
    pub(super) fn also_failed(&self) -> &[(Rank, RankOutcome)] {
        &self.also_failed
    }

    /// Ends the ranks that were started before the one that could not be started.
    pub(super) fn on_start_failure(&mut self, now: Instant, code: u8, reason: String) {
        self.say(reason.clone());
        self.cause = Some(Cause::NotStarted { code, reason });
        if self.ends.have_all_ended() {
            self.clear_up(now);
        } else {
            self.terminate(now);
        }
    }

    /// Records that a signal arrived before all ranks were started. The started ranks get it by [`on_signal`](Self::on_signal).
    pub(super) fn on_start_interrupted(&mut self, signal: Signal) {
        self.cause.get_or_insert(Cause::Interrupted(signal));
    }

    /// Judges the ranks that have ended since the last time, and the errors reported until then.
    pub(super) fn on_ends(
        &mut self,
        now: Instant,
        mut ended: Vec<(Rank, RankOutcome)>,
        errors: Vec<ReportedError>,
    ) {
        self.ends.record(now, &ended, errors);
        // Within one look at the ranks, the order of their ends is not known.
        ended.sort_by_key(|(rank, outcome)| {
            outcome.innocence(self.ends.blames_another(*rank, *outcome))
        });
        for (rank, outcome) in ended {
            if outcome.is_failure() {
                self.rank_failed(now, rank, outcome);
            }
        }
        if self.ends.have_all_ended() {
            self.clear_up(now);
        }
    }

    /// A reader that went away wants no more output, so the ranks are terminated. After another failure they may end by themselves, as
    /// after the failure of a rank: the terminal of the job may have been closed, and its signal is about to arrive.
    pub(super) fn on_output_failure(&mut self, now: Instant, error: &io::Error) {
        let kind = error.kind();
        self.cause.get_or_insert_with(|| Cause::Output {
            kind,
            text: error.to_string(),
        });
        if kind == io::ErrorKind::BrokenPipe {
            if matches!(self.stage, Stage::Running | Stage::Grace(_)) {
                self.terminate(now);
            }
            return;
        }
        let mut line = format!("standard output failed: {error}");
        // Ranks that got a signal take the time that they need.
        if matches!(self.stage, Stage::Running) && self.passed_on.is_none() {
            let grace = self.policy.grace;
            self.stage = Stage::Grace(Deadline::after(now, grace));
            line = format!("{line}; the ranks have {} to end", duration_text(grace));
        }
        self.say(line);
    }

    /// Passes on a signal that this process received, or kills for the second one.
    pub(super) fn on_signal(&mut self, now: Instant, signal: Signal) {
        match (self.stage, self.passed_on) {
            (Stage::Finished, _) => {}
            (_, Some((_, last, at))) if is_echo(signal.as_raw(), (last.as_raw(), at), now) => {}
            (
                Stage::Leftovers(_)
                | Stage::ReportedLeftovers(_)
                | Stage::Delivering(_)
                | Stage::ReportedDelivery
                | Stage::Killed,
                _,
            ) => {
                self.actions.push(Action::SignalAll(Signal::KILL));
                self.actions.push(Action::Abandon);
                self.stage = Stage::Finished;
            }
            (_, None) if self.ends.have_all_ended() => self.clear_up(now),
            (_, None) => {
                self.passed_on = Some((signal, signal, now));
                if matches!(
                    (self.stage, &self.cause),
                    (Stage::Grace(_), Some(Cause::Output { .. }))
                ) {
                    self.stage = Stage::Running;
                }
                self.actions.push(Action::SignalRunning(signal));
                self.say(format!(
                    "{} passed on to {}; a second signal kills",
                    signal_text(signal.as_raw()),
                    rank_list(&self.ends.running())
                ));
            }
            (_, Some((first, _, _))) => {
                self.passed_on = Some((first, signal, now));
                self.cause.get_or_insert(Cause::Interrupted(first));
                self.kill("after a second signal");
            }
        }
    }

    /// Notes that all output of the ranks is closed and delivered.
    pub(super) fn on_drained(&mut self, now: Instant) {
        self.is_drained = true;
        if matches!(
            self.stage,
            Stage::Leftovers(_) | Stage::ReportedLeftovers(_)
        ) {
            self.deliver(now);
        }
    }

    /// Notes that the relay has ended.
    pub(super) const fn on_relay_end(&mut self) {
        self.stage = Stage::Finished;
    }

    /// Takes the step that is due.
    pub(super) fn on_deadline(&mut self, now: Instant) {
        if self
            .deadline()
            .is_none_or(|deadline| !deadline.has_passed(now))
        {
            return;
        }
        match self.stage {
            Stage::Grace(_) => self.terminate(now),
            Stage::Terminated(_) => {
                let waited = duration_text(self.policy.kill_after);
                self.kill(&format!("still there {waited} after SIGTERM"));
            }
            Stage::Leftovers(_) => {
                let rest = self.policy.kill_after.saturating_sub(NOTICE_DELAY);
                self.stage = Stage::ReportedLeftovers(Deadline::after(now, rest));
                self.say(format!(
                    "all ranks have ended, but their output has not: it is not being read, or processes that they started \
                     hold it open; waiting for {} more",
                    duration_text(rest)
                ));
            }
            Stage::ReportedLeftovers(_) => self.deliver(now),
            Stage::Delivering(_) => {
                self.stage = Stage::ReportedDelivery;
                self.say(
                    "all ranks have ended; waiting for the reader of their output, which takes none; a signal ends this"
                        .to_owned(),
                );
            }
            Stage::Running | Stage::Killed | Stage::ReportedDelivery | Stage::Finished => {}
        }
    }

    fn rank_failed(&mut self, now: Instant, rank: Rank, outcome: RankOutcome) {
        if !matches!(self.stage, Stage::Running | Stage::Grace(_)) {
            // We have forced it to end.
            return;
        }
        let is_obedient = self
            .passed_on
            .is_some_and(|(_, signal, _)| outcome.obeys(signal.as_raw()));
        let sentence = self.ends.sentence(rank, outcome);
        match self.cause {
            // The system reports the end of a killed rank a moment later, and a failed rank may take time to clean up.
            // Meanwhile another rank may have noticed the failure and ended because of it.
            Some(Cause::Rank(earlier, blaming))
                if self.ends.blames_another(earlier, blaming)
                    && (matches!(outcome, RankOutcome::Signal(_))
                        || self.ends.is_blamed_by(rank, earlier)
                            && !self.ends.blames_another(rank, outcome)) =>
            {
                self.cause = Some(Cause::Rank(rank, outcome));
                self.say(sentence);
            }
            Some(_) if is_obedient => {}
            Some(_) => self.also_failed.push((rank, outcome)),
            None => {
                self.cause = Some(Cause::Rank(rank, outcome));
                if !is_obedient {
                    let is_alone = self.ends.have_all_ended();
                    let others = if is_alone || !matches!(self.stage, Stage::Running) {
                        String::new()
                    } else {
                        let grace = duration_text(self.policy.grace);
                        format!("; the others have {grace} to end")
                    };
                    self.say(sentence + &others);
                }
            }
        }
        // After a signal ranks may take the time they need, unless one fails for another reason.
        if matches!(self.stage, Stage::Running) && !is_obedient {
            self.stage = Stage::Grace(Deadline::after(now, self.policy.grace));
        }
    }

    fn terminate(&mut self, now: Instant) {
        self.stage = Stage::Terminated(Deadline::after(now, self.policy.kill_after));
        let running = rank_list(&self.ends.running());
        self.say(format!("ending {running} with SIGTERM"));
        self.actions.push(Action::SignalRunning(Signal::TERM));
    }

    fn kill(&mut self, why: &str) {
        self.stage = Stage::Killed;
        let running = rank_list(&self.ends.running());
        self.say(format!("killing {running}, {why}"));
        self.actions.push(Action::SignalRunning(Signal::KILL));
    }

    /// All ranks have ended: ends the processes that they left behind.
    fn clear_up(&mut self, now: Instant) {
        self.actions.push(Action::SignalAll(Signal::TERM));
        let delay = NOTICE_DELAY.min(self.policy.kill_after);
        self.stage = Stage::Leftovers(Deadline::after(now, delay));
        if self.is_drained {
            self.deliver(now);
        }
    }

    fn deliver(&mut self, now: Instant) {
        self.actions.push(Action::SignalAll(Signal::KILL));
        self.actions.push(Action::StopRelay);
        self.stage = Stage::Delivering(Deadline::after(now, NOTICE_DELAY));
    }

    fn say(&mut self, line: String) {
        self.actions.push(Action::Say(line));
    }
}

#[cfg(test)]
mod tests;
