//! The `fsgather` command, as a function: starts ranks, gathers files for shell jobs, and
//! cleans up.
//!
//! [`main`] is the whole interface. The program of this package calls it, and so can other programs that contain the command, such as an
//! interpreter of another language: each passes the words that start it again as another process.
//!
//! Data goes to standard output and everything else to standard error. `arguments` defines the command line, `output` is the only writer,
//! and `exit` lists the exit codes.

mod alike;
mod arguments;
mod colour;
mod delivery;
mod demo;
mod doctor;
mod duration;
mod exit;
mod failure;
mod heeded;
mod heeded_variables;
mod housekeeping;
mod input;
mod interruption;
mod invocation;
mod kept_names;
mod log;
pub mod log_filter;
mod membership;
mod output;
mod progress;
mod purpose;
mod run;
mod shell_word;
mod standard_streams;
mod table;
mod verbs;

use std::{
    ffi::OsString,
    sync::{Arc, mpsc},
    thread,
};

use arguments::{Arguments, Verb};
use failure::Failure;
use fsgather_core::sys::thread::explain_failure;
use invocation::Invocation;
pub use invocation::ResultAsJson;

/// Runs the command line and returns the exit code.
///
/// `arguments` are the words after the command's own name. `program` are the words that start the same command in another process, such as
/// its path, or `python -m fsgather`: ranks of `run`, `demo` and `bench` start with them.
///
/// `result_as_json` converts results that Python has added to JSON; without it such results cannot be shown.
///
/// Must be called only once, on the main thread of a process that exits with the returned code. It handles the signals that end commands,
/// and owns the standard streams. If a system call hangs when a signal ends the command, its thread is abandoned.
pub fn main(
    arguments: impl IntoIterator<Item = OsString>,
    program: Vec<OsString>,
    result_as_json: Option<ResultAsJson>,
) -> u8 {
    let words: Vec<OsString> = arguments.into_iter().collect();
    let arguments = match Arguments::read(&words) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    log::be(arguments.loudness());
    colour::choose(arguments.color);
    interruption::survive_large_files();
    let (ended, end) = mpsc::channel();
    let invocation = Arc::new(Invocation::new(
        program,
        words,
        ended.clone(),
        result_as_json,
    ));
    if !arguments.verb.may_be_left_behind() {
        return act(&arguments, &invocation);
    }
    let working = thread::Builder::new()
        .name("fsgather-verb".into())
        .spawn(move || {
            let end = LastWord(ended);
            // The receiver is gone if the command has ended early.
            let _ = end.0.send(act(&arguments, &invocation));
        });
    match working {
        Ok(_) => end.recv().unwrap_or(exit::OTHER),
        Err(error) => {
            let why = explain_failure(&error);
            output::say(&format!("fsgather: cannot start a thread: {why}"));
            exit::OTHER
        }
    }
}

/// Ends the command even if its verb panics; the panic prints its own message.
struct LastWord(mpsc::Sender<u8>);

impl Drop for LastWord {
    fn drop(&mut self) {
        let _ = self.0.send(exit::OTHER);
    }
}

/// Runs a verb and returns the exit code.
fn act(arguments: &Arguments, invocation: &Invocation) -> u8 {
    let json = arguments.json;
    let (verb, result): (_, Result<u8, Failure>) = match &arguments.verb {
        Verb::Run(run) => ("run", run::run(run, json, invocation)),
        Verb::Demo(demo) => ("demo", verbs::demo::demo(demo, json, invocation)),
        Verb::Gather(gather) => ("gather", verbs::gather::gather(gather, json, invocation)),
        Verb::Broadcast(broadcast) => (
            "broadcast",
            verbs::broadcast::broadcast(broadcast, json, invocation),
        ),
        Verb::Barrier(barrier) => (
            "barrier",
            verbs::barrier::barrier(barrier, json, invocation),
        ),
        Verb::Ps(ps) => ("ps", verbs::ps::ps(ps, json, invocation)),
        Verb::Trace(trace) => ("trace", verbs::trace::trace(trace, json)),
        Verb::Inspect(inspect) => ("inspect", verbs::inspect::inspect(inspect, json)),
        Verb::Clean(clean) => ("clean", verbs::clean::clean(clean, json, invocation)),
        Verb::Doctor(doctor) => (
            "doctor",
            verbs::doctor::doctor(doctor, json, arguments.verbose > 0, invocation),
        ),
        Verb::Bench(bench) => ("bench", verbs::bench::bench(bench, json, invocation)),
        Verb::Samples(samples) => (
            "samples",
            verbs::samples::samples(samples, json, invocation),
        ),
        Verb::Licences(_) => ("licences", verbs::licences::licences(json)),
        Verb::Completions(completions) => (
            "completions",
            verbs::completions::completions(completions, arguments::command()),
        ),
        Verb::Manual(manual) => (
            "manual",
            verbs::manual::manual(manual, arguments::command()),
        ),
        // For the user, it is part of the same command.
        Verb::BenchRank(rank) => ("bench", verbs::bench::bench_rank(rank, json, invocation)),
        Verb::DemoRank(rank) => ("demo-rank", verbs::demo::demo_rank(rank)),
        Verb::GuardRun => ("guard-run", Ok(run::guard_run())),
    };
    result.unwrap_or_else(|failure| {
        output::say(&format!("fsgather {verb}: {failure}"));
        failure.exit_code()
    })
}
