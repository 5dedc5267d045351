//! The verb `run`: starts ranks on this machine, relays what they print, and ends them together. Verbs
//! that need ranks of their own start them here as well, with [`run_own`].
//!
//! Three threads, however many ranks there are: this one starts ranks and decides ([`Supervision`], which
//! is pure), one relays output, one waits for signals. All they tell each other is an [`Event`]. One process
//! more ends the ranks if this one is killed ([`Guard`]).

mod arguments;
mod board;
mod directory;
mod errors;
mod exec_rank;
mod fold;
mod guard;
mod handshake;
mod last_words;
mod launch;
mod lines;
mod outcome;
mod processes;
mod python_patch;
mod relay;
mod report;
mod screen;
mod signals;
mod supervision;
mod told;
mod variables;

use std::{
    ffi::OsString,
    io,
    path::Path,
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    time::{Duration, Instant},
};

use fsgather::{Rank, WorldSize};
use fsgather_config::{
    environment,
    settings::{Choice as _, Trace},
};
use fsgather_report::last_error::LastError;
use rustix::process::Signal;

pub(crate) use arguments::{RunArguments, check_open_files};
pub(crate) use directory::named as named_directory;
pub(crate) use exec_rank::{ExecRankArguments, exec_rank};
pub(crate) use guard::guard_run;

use crate::{
    colour::Paint,
    failure::Failure,
    invocation::Invocation,
    output::{self, Stream},
    progress::Line,
    verbs::trace,
};
use board::Board;
use errors::Errors;
use guard::Guard;
use launch::StartFailure;
use lines::Lines;
use processes::Processes;
use relay::{OutputSource, Relay};
use report::RunReport;
use screen::Screen;
use signals::SignalWatch;
use supervision::{Action, Input, Policy, Supervision};
use told::Told;
use variables::{Job, Variable};

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

/// What ranks execute, and how what they print is passed on.
#[derive(Debug)]
struct Task<'a> {
    /// The verb that starts them, for our own lines.
    verb: &'static str,
    /// How processes that become ranks are started.
    invocation: &'a Invocation,
    command: &'a [OsString],
    /// Whether rank 0 has our standard input.
    with_stdin: bool,
    /// Where their standard output goes.
    data: Stream,
    /// Whether lines of their standard output, and of their standard error, come with the rank.
    is_prefixed: (bool, bool),
    /// Whether a terminal shows how far they have come.
    shows_progress: bool,
    policy: Policy,
}

/// How ranks that a verb has started for itself are ended when one fails.
const OWN_POLICY: Policy = Policy {
    grace: Duration::from_secs(5),
    kill_after: Duration::from_secs(5),
};

/// Runs the ranks of one job and returns the code to exit with.
///
/// # Errors
///
/// When the arguments ask for the impossible, the gather directory is not fit for use, or this machine
/// does not let us watch over ranks. Failing ranks are no error here: their code is returned.
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
        // Ranks' data must not mix with our own document.
        data: if json { Stream::Stderr } else { Stream::Stdout },
        is_prefixed: (!arguments.no_prefix, !arguments.no_prefix),
        shows_progress: true,
        policy: Policy {
            grace: arguments.grace,
            kill_after: arguments.kill_after,
        },
    };
    let code = execute(&task, &job, json)?;
    if let Some(file) = &arguments.trace {
        trace::write_trace(&job.directory, &job.name, file)?;
    }
    Ok(code)
}

/// Runs this very program with these arguments as ranks that gather in `directory`, passes on unchanged
/// what rank 0 prints, and returns the code to exit with.
///
/// # Errors
///
/// When this machine does not let us watch over ranks. Failing ranks are no error here: their code is
/// returned.
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
        // They do so themselves.
        shows_progress: false,
        policy: OWN_POLICY,
    };
    execute(&task, &job, false)
}

/// Runs a task to its end and returns the code to exit with.
fn execute(task: &Task<'_>, job: &Job, json: bool) -> Result<u8, Failure> {
    let started_at = Instant::now();
    let errors = Errors::place().map_err(Failure::system("make a file in memory"))?;
    let screen = screen(task, job)?;
    let (events, inbox) = mpsc::channel();
    // Before the first rank, so that no end of a rank is missed.
    let watch = SignalWatch::start(events.clone()).map_err(Failure::system("watch signals"))?;
    let mut run = Run::start(task, job, events, &inbox, errors, screen)?;
    run.supervise(&inbox);
    let code = run.finish();
    watch.stop();
    let report = RunReport::new(
        job,
        &run.supervision,
        run.processes.pids(),
        started_at.elapsed(),
    );
    if !run.abandoned {
        for line in report.lines() {
            output::say(&format!("fsgather {}: {line}", task.verb));
        }
        if json {
            output::json(&report).map_err(Failure::system("write standard output"))?;
        }
    }
    Ok(code)
}

/// What shows how far ranks have come, and what tells them so.
fn screen(task: &Task<'_>, job: &Job) -> Result<(Option<Screen>, Variable), Failure> {
    let line = if task.shows_progress {
        Line::begin()?
    } else {
        None
    };
    let board = line.and_then(|line| {
        // Without it a job runs as well.
        let board = Board::place(job.world).ok()?;
        Some((line, board))
    });
    Ok(match board {
        None => (None, Board::none()),
        Some((line, board)) => {
            let variable = board.variable();
            let screen = Screen::new(board, job.world.count(), line);
            (Some(screen), variable)
        }
    })
}

/// Ranks that have been started, and what watches over them.
struct Run {
    supervision: Supervision,
    processes: Processes,
    guard: Guard,
    relay: Relay,
    errors: Errors,
    /// Events that came while ranks were being started.
    early: Vec<Event>,
    /// Whether the user did not want to wait until all output was delivered.
    abandoned: bool,
}

impl Run {
    fn start(
        task: &Task<'_>,
        job: &Job,
        events: Sender<Event>,
        inbox: &Receiver<Event>,
        errors: Errors,
        (screen, progress): (Option<Screen>, Variable),
    ) -> Result<Self, Failure> {
        let mut guard =
            Guard::start(task.invocation).map_err(Failure::system("start a process"))?;
        let mut processes = Processes::default();
        let mut sources = Vec::new();
        let mut early = Vec::new();
        let mut failure = None;
        let mut interruption = None;
        let paint = Paint::of(task.data);
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
                task.invocation,
                &mut guard,
                task.command,
                &[
                    job.variables_of(rank),
                    vec![errors.variable(), progress.clone()],
                ]
                .concat(),
                task.with_stdin && rank == Rank::ZERO,
            ) {
                Ok(started) => {
                    let lines = |is_prefixed| {
                        if is_prefixed {
                            Lines::prefixed(rank, job.world, paint)
                        } else {
                            Lines::unchanged()
                        }
                    };
                    let (data, errors) = task.is_prefixed;
                    sources.push(OutputSource::new(started.stdout, task.data, lines(data)));
                    sources.push(if errors {
                        OutputSource::folded(started.stderr, rank)
                    } else {
                        OutputSource::errors(started.stderr, rank)
                    });
                    processes.add(started.child);
                }
                Err(error) => {
                    failure = Some((rank, error));
                    break;
                }
            }
        }
        let mut run = Self {
            supervision: Supervision::new(task.policy, processes.pids().to_vec()),
            processes,
            guard,
            relay: Relay::start(task.verb, job.world, sources, screen, events)
                .map_err(Failure::system("start a thread"))?,
            errors,
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
                    // What a rank has left was left before it ended.
                    self.look_at_errors();
                    self.feed(Input::Ended(ended));
                }
            }
            Event::Signal(signal) => self.feed(Input::Signal(signal)),
            Event::OutputFailed(kind) => self.feed(Input::OutputFailed(kind)),
            Event::Drained => self.feed(Input::Drained),
            Event::RelayEnded => self.feed(Input::RelayEnded),
        }
    }

    /// Tells the supervision what ranks have failed with by now, and whether they have gone on after that.
    fn look_at_errors(&mut self) {
        let errors = self.errors.read();
        if errors.is_empty() {
            return;
        }
        let last_words = self.relay.last_words();
        let now = Instant::now();
        let told = |error: LastError| {
            let at = now.checked_sub(error.age()).unwrap_or(now);
            let its = last_words.get(error.rank as usize);
            let went_on = its.is_some_and(|its| its.go_on_after(&error.text, at));
            Told { error, at, went_on }
        };
        let told = errors.into_iter().map(told).collect();
        self.feed(Input::Told(told));
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
            // By now all is read that ranks have said.
            self.look_at_errors();
        }
        self.guard.dismiss();
        self.processes.reap();
        self.supervision.exit_code()
    }
}
