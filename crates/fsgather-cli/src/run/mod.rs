//! The verb `run`: starts ranks on this machine, relays what they print, and ends them together.
//!
//! Three threads, however many ranks there are: this one starts ranks and decides ([`Supervision`], which
//! is pure), one relays output, one waits for signals. All they tell each other is an [`Event`].

mod arguments;
mod directory;
mod exec_rank;
mod handshake;
mod launch;
mod lines;
mod outcome;
mod processes;
mod relay;
mod report;
mod signals;
mod supervision;
mod variables;

use std::{
    io,
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    time::Instant,
};

use fsgather::Rank;
use rustix::process::Signal;

pub(crate) use arguments::RunArguments;
pub(crate) use exec_rank::{ExecRankArguments, exec_rank};

use crate::{
    failure::Failure,
    output::{self, Stream},
};
use launch::StartFailure;
use lines::Lines;
use processes::Processes;
use relay::{Relay, Source};
use report::Report;
use signals::SignalWatch;
use supervision::{Action, Input, Policy, Supervision};
use variables::Job;

/// What happens while ranks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// At least one rank may have ended.
    ChildEnded,
    /// Somebody wants the job to end.
    Signal(Signal),
    /// Standard output takes nothing any more.
    OutputFailed(io::ErrorKind),
    /// All that ranks had open for output is closed and delivered.
    Drained,
    /// The relay has delivered everything and is gone.
    RelayEnded,
}

/// Runs the ranks of one job and returns the code to exit with.
///
/// # Errors
///
/// When the arguments ask for the impossible, the gather directory is not fit for use, or this machine
/// does not let us watch over ranks. Failing ranks are no error here: their code is returned.
pub(crate) fn run(arguments: &RunArguments, json: bool) -> Result<u8, Failure> {
    arguments.check(json)?;
    let job = Job::new(arguments, directory::choose(arguments.dir.as_deref())?)?;
    let started_at = Instant::now();
    let (events, inbox) = mpsc::channel();
    // Before the first rank, so that no end of a rank is missed.
    let watch = SignalWatch::start(events.clone()).map_err(Failure::system("watch signals"))?;
    let mut run = Run::start(arguments, json, &job, events, &inbox)?;
    run.supervise(&inbox);
    let code = run.finish();
    watch.stop();
    let report = Report::new(
        &job,
        &run.supervision,
        run.processes.pids(),
        started_at.elapsed(),
    );
    if !run.abandoned {
        for line in report.lines() {
            output::say(&format!("fsgather run: {line}"));
        }
        if json {
            output::json(&report).map_err(Failure::system("write standard output"))?;
        }
    }
    Ok(code)
}

/// Ranks that have been started, and what watches over them.
struct Run {
    supervision: Supervision,
    processes: Processes,
    relay: Relay,
    /// Events that came while ranks were being started.
    early: Vec<Event>,
    /// Whether the user did not want to wait until all output was delivered.
    abandoned: bool,
}

impl Run {
    fn start(
        arguments: &RunArguments,
        json: bool,
        job: &Job,
        events: Sender<Event>,
        inbox: &Receiver<Event>,
    ) -> Result<Self, Failure> {
        let mut processes = Processes::default();
        let mut sources = Vec::new();
        let mut early = Vec::new();
        let mut failure = None;
        let mut interruption = None;
        // Ranks' data must not mix with our own document.
        let data = if json { Stream::Stderr } else { Stream::Stdout };
        for rank in job.world.ranks() {
            early.extend(inbox.try_iter());
            interruption = early.iter().find_map(|event| match event {
                Event::Signal(signal) => Some(*signal),
                _ => None,
            });
            if interruption.is_some() {
                break;
            }
            match launch::start(
                &arguments.command,
                &job.variables_of(rank),
                rank == Rank::ZERO,
            ) {
                Ok(started) => {
                    let lines = || {
                        if arguments.no_prefix {
                            Lines::unchanged()
                        } else {
                            Lines::prefixed(rank, job.world)
                        }
                    };
                    sources.push(Source::new(started.stdout, data, lines()));
                    sources.push(Source::new(started.stderr, Stream::Stderr, lines()));
                    processes.add(started.child);
                }
                Err(error) => {
                    failure = Some((rank, error));
                    break;
                }
            }
        }
        let policy = Policy {
            grace: arguments.grace,
            kill_after: arguments.kill_after,
        };
        let mut run = Self {
            supervision: Supervision::new(policy, processes.pids().to_vec()),
            processes,
            relay: Relay::start(sources, events).map_err(Failure::system("start a thread"))?,
            early,
            abandoned: false,
        };
        if let Some(signal) = interruption {
            run.supervision.start_interrupted(signal);
        }
        if let Some((rank, failure)) = failure {
            run.start_failed(rank, &failure);
        }
        Ok(run)
    }

    fn start_failed(&mut self, rank: Rank, failure: &StartFailure) {
        self.relay.say(&match failure {
            StartFailure::Command { .. } => failure.to_string(),
            StartFailure::System(_) => format!("cannot start rank {rank}: {failure}"),
        });
        let actions = self
            .supervision
            .start_failed(Instant::now(), failure.code());
        self.act(actions);
    }

    /// Feeds events to the supervision until it says that all is over.
    fn supervise(&mut self, inbox: &Receiver<Event>) {
        for event in std::mem::take(&mut self.early) {
            self.on_event(event);
        }
        while !self.supervision.is_finished() {
            let now = Instant::now();
            let received = match self.supervision.deadline() {
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(deadline) => inbox.recv_timeout(deadline.remaining(now)),
            };
            match received {
                Ok(event) => self.on_event(event),
                Err(RecvTimeoutError::Timeout) => self.feed(Input::Due),
                // Both threads are gone, which they are not before they have been told to go.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::ChildEnded => {
                let ended = self.processes.newly_ended();
                if !ended.is_empty() {
                    self.feed(Input::Ended(ended));
                }
            }
            Event::Signal(signal) => self.feed(Input::Signal(signal)),
            Event::OutputFailed(kind) => self.feed(Input::OutputFailed(kind)),
            Event::Drained => self.feed(Input::Drained),
            Event::RelayEnded => self.feed(Input::RelayEnded),
        }
    }

    fn feed(&mut self, input: Input) {
        let actions = self.supervision.on(Instant::now(), input);
        self.act(actions);
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Say(line) => self.relay.say(&line),
                Action::SignalRunning(signal) => self.processes.signal_running(signal),
                Action::SignalAll(signal) => self.processes.signal_all(signal),
                Action::StopRelay => self.relay.stop(),
                Action::Abandon => self.abandoned = true,
            }
        }
    }

    /// Leaves no zombie and no thread behind, unless the user did not want to wait for them.
    fn finish(&mut self) -> u8 {
        if !self.abandoned {
            self.relay.join();
        }
        self.processes.reap();
        self.supervision.exit_code()
    }
}
