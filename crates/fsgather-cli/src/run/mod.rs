//! The verb `run`: starts ranks on this machine, forwards their output, and ends them together. Verbs that need ranks of
//! their own start them with [`run_own`].
//!
//! There are four threads, however many ranks there are. The main thread starts ranks and acts on the decisions of
//! [`Supervision`], which is pure; two threads forward output ([`Relay`]); one waits for signals. These send [`Event`]s to
//! the main thread. One more process ends the ranks if this one is killed ([`Guard`]).

mod arguments;
mod directory;
mod error_file;
mod event;
mod guard;
mod idle_ranks;
mod launch;
mod lines;
mod outcome;
mod processes;
mod progress;
mod python_patch;
mod rank_ends;
mod relay;
mod report;
mod run_file;
mod signal_watch;
mod supervision;
mod variables;

use std::{
    ffi::OsString,
    os::fd::OwnedFd,
    path::Path,
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    time::{Duration, Instant},
};

use fsgather::{Rank, WorldSize};
use fsgather_config::{
    environment,
    settings::{Choice as _, Trace},
};
use fsgather_core::process_state::cpu_times_of_trees;

use rustix::param::clock_ticks_per_second;

pub(crate) use arguments::{RunArguments, allow_open_files};
pub(crate) use directory::named as named_directory;
pub(crate) use guard::guard_run;

use crate::{
    colour::Paint,
    failure::Failure,
    invocation::Invocation,
    output::{self, Stream},
    verbs::trace,
};
use error_file::ErrorFile;
use event::Event;
use guard::Guard;
use idle_ranks::{IDLE_LIMIT, IdleRanks};
use lines::Lines;
use processes::Processes;
use progress::RunProgress;
use relay::{OutputSource, Relay};
use report::RunReport;
use signal_watch::SignalWatch;
use supervision::{Action, Policy, Supervision};
use variables::Job;

/// The program that the ranks execute, and the forwarding of their output.
#[derive(Debug)]
struct Task<'a> {
    /// The verb that starts them, for our own lines.
    verb: &'static str,
    invocation: &'a Invocation,
    command: &'a [OsString],
    /// True if rank 0 has our standard input.
    with_stdin: bool,
    /// The destination of their standard output.
    data: Stream,
    /// True if lines of their standard output, and of their standard error, begin with the rank.
    is_prefixed: (bool, bool),
    /// True if a terminal shows a progress line.
    shows_progress: bool,
    policy: Policy,
    /// Time without a sign of work after which a rank is reported to those that wait for it to join.
    idle_limit: Duration,
}

/// The time limits for ranks that a verb has started for itself.
const OWN_POLICY: Policy = Policy {
    grace: Duration::from_secs(5),
    kill_after: Duration::from_secs(5),
};

/// Runs the ranks of one job and returns the code to exit with.
///
/// # Errors
///
/// If the arguments ask for the impossible, the gather directory cannot be used, or this machine does not let us supervise
/// ranks. A rank that fails is not an error here: its code is returned.
pub(crate) fn run(
    arguments: &RunArguments,
    json: bool,
    invocation: &Invocation,
) -> Result<u8, Failure> {
    arguments.check(json)?;
    let directory = directory::choose(arguments.dir.as_deref())?;
    let mut job = Job::new(arguments.ranks, arguments.timeout, directory)?;
    if arguments.python_patch {
        job.add(python_patch::variables(&arguments.command)?);
    }
    if arguments.trace.is_some() {
        let always = Trace::Always.word().into();
        job.add(vec![(environment::TRACE, Some(always))]);
    }
    let task = Task {
        verb: "run",
        invocation,
        command: &arguments.command,
        with_stdin: true,
        // The data of the ranks must not mix with our document.
        data: if json { Stream::Stderr } else { Stream::Stdout },
        is_prefixed: (!arguments.no_prefix, !arguments.no_prefix),
        shows_progress: true,
        policy: Policy {
            grace: arguments.grace,
            kill_after: arguments.kill_after,
        },
        idle_limit: arguments.idle_limit.unwrap_or(IDLE_LIMIT),
    };
    let code = execute(&task, &job, json)?;
    if let Some(file) = &arguments.trace {
        trace::write_trace(&job.directory, &job.name, file)?;
    }
    Ok(code)
}

/// Runs this program with these arguments as ranks that gather in `directory`, forwards their standard output unchanged, and
/// returns the code to exit with.
///
/// # Errors
///
/// If this machine does not let us supervise ranks. A rank that fails is not an error here: its code is returned.
pub(crate) fn run_own(
    verb: &'static str,
    ranks: WorldSize,
    directory: &Path,
    arguments: Vec<OsString>,
    invocation: &Invocation,
) -> Result<u8, Failure> {
    let job = Job::new(ranks, None, directory.to_owned())?;
    let mut command = invocation.program().to_vec();
    command.extend(arguments);
    let task = Task {
        verb,
        invocation,
        command: &command,
        with_stdin: false,
        data: Stream::Stdout,
        is_prefixed: (false, true),
        // The ranks draw it themselves.
        shows_progress: false,
        policy: OWN_POLICY,
        idle_limit: IDLE_LIMIT,
    };
    execute(&task, &job, false)
}

/// Runs a task to its end and returns the code to exit with.
fn execute(task: &Task<'_>, job: &Job, json: bool) -> Result<u8, Failure> {
    let started_at = Instant::now();
    let (events, inbox) = mpsc::channel();
    // Before the first rank, so that no end of a rank is missed.
    let watch = SignalWatch::start(events.clone()).map_err(Failure::denied(
        "watch signals",
        "socketpair, rt_sigaction or clone3",
    ))?;
    let mut run = Run::start(task, job, &events, &inbox)?;
    run.supervise(&inbox);
    run.finish();
    watch.stop();
    if !run.is_abandoned {
        let report = RunReport::new(job, &run.supervision, started_at.elapsed());
        for line in report.lines() {
            output::say(&format!("fsgather {}: {line}", task.verb));
        }
        if json {
            output::json(&report).map_err(Failure::system("write standard output"))?;
        }
    }
    Ok(run.supervision.exit_code())
}

/// The ranks that have been started, and their supervision.
struct Run {
    supervision: Supervision,
    processes: Processes,
    guard: Guard,
    relay: Relay,
    errors: ErrorFile,
    idle: IdleRanks,
    /// True if the user did not want to wait until all output was delivered.
    is_abandoned: bool,
}

impl Run {
    /// Starts the ranks, until one cannot be started or a signal arrives.
    fn start(
        task: &Task<'_>,
        job: &Job,
        events: &Sender<Event>,
        inbox: &Receiver<Event>,
    ) -> Result<Self, Failure> {
        let errors = ErrorFile::create(task.idle_limit);
        let progress = if task.shows_progress {
            RunProgress::begin(job.world)?
        } else {
            None
        };
        let guard = Guard::start(task.invocation)?;
        let (mut processes, mut sources) = (Processes::default(), Vec::new());
        let (mut early, mut failure) = (Vec::new(), None);
        for rank in job.world.ranks() {
            early.extend(inbox.try_iter());
            if early.iter().any(|event| matches!(event, Event::Signal(_))) {
                break;
            }
            let mut variables = job.variables_of(rank);
            variables.extend([errors.variable(), RunProgress::variable(progress.as_ref())]);
            let with_stdin = task.with_stdin && rank == Rank::ZERO;
            match launch::start(&guard, task.command, &variables, with_stdin) {
                Ok(mut child) => {
                    let (data, errors) = task.is_prefixed;
                    let mut add = |fd: Option<OwnedFd>, stream, is_prefixed| {
                        let lines = if is_prefixed {
                            Lines::prefixed(rank, job.world, Paint::of(stream))
                        } else {
                            Lines::unchanged()
                        };
                        sources.extend(fd.map(|fd| OutputSource { fd, stream, lines }));
                    };
                    add(child.stdout.take().map(Into::into), task.data, data);
                    add(child.stderr.take().map(Into::into), Stream::Stderr, errors);
                    processes.add(child);
                }
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let idle = IdleRanks::new(processes.pids().len(), task.idle_limit, Instant::now());
        let mut run = Self {
            idle,
            supervision: Supervision::new(task.policy, processes.pids().to_vec()),
            processes,
            guard,
            relay: Relay::start(task.verb, sources, progress, events).map_err(Failure::denied(
                "relay output",
                "socketpair, fcntl, ioctl or clone3",
            ))?,
            errors,
            is_abandoned: false,
        };
        if let Some(failure) = failure {
            let (now, code) = (Instant::now(), failure.code());
            run.supervision
                .on_start_failure(now, code, failure.to_string());
            run.act();
        }
        for event in early {
            if let Event::Signal(signal) = event {
                run.supervision.on_start_interrupted(signal);
            }
            run.on_event(event);
        }
        Ok(run)
    }

    /// Feeds events to the supervision until the run is over.
    fn supervise(&mut self, inbox: &Receiver<Event>) {
        while !self.supervision.is_finished() {
            let now = Instant::now();
            let mut pause = self.idle.next_look().saturating_duration_since(now);
            if let Some(deadline) = self.supervision.deadline() {
                pause = pause.min(deadline.remaining(now));
            }
            let received = inbox.recv_timeout(pause);
            match received {
                Ok(event) => self.on_event(event),
                Err(RecvTimeoutError::Timeout) => {
                    let now = Instant::now();
                    self.look_for_idle_ranks(now);
                    self.supervision.on_deadline(now);
                    self.act();
                }
                // All threads have ended, which they only do when ordered.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    }

    fn look_for_idle_ranks(&mut self, now: Instant) {
        let pids = self.processes.pids();
        let changed = self
            .idle
            .look(now, || cpu_times_of_trees(pids, clock_ticks_per_second()));
        for (rank, is_idle) in changed {
            self.errors.report_idle(rank, pids[rank.index()], is_idle);
        }
    }

    fn on_event(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::ChildEnded => {
                let ended = self.processes.newly_ended();
                if ended.is_empty() {
                    return;
                }
                for (rank, outcome) in &ended {
                    let pid = self.processes.pids()[rank.index()];
                    self.errors.report_end(*rank, pid, *outcome);
                }
                // A rank reports its errors before it ends.
                self.supervision.on_ends(now, ended, self.errors.read());
            }
            Event::Signal(signal) => self.supervision.on_signal(now, signal),
            Event::OutputFailed(error) => self.supervision.on_output_failure(now, &error),
            Event::Drained => self.supervision.on_drained(now),
            Event::RelayEnded => self.supervision.on_relay_end(),
        }
        self.act();
    }

    fn act(&mut self) {
        for action in self.supervision.take_actions() {
            match action {
                Action::Say(line) => self.relay.say(&line),
                Action::SignalRunning(signal) => self.processes.signal_running(signal),
                Action::SignalAll(signal) => self.processes.signal_all(signal),
                Action::StopRelay => self.relay.stop(),
                Action::Abandon => self.is_abandoned = true,
            }
        }
    }

    /// Leaves no zombie and no thread behind, unless the user did not want to wait for them.
    fn finish(&mut self) {
        if !self.is_abandoned {
            self.relay.join();
        }
        self.guard.dismiss();
        self.processes.reap();
    }
}
