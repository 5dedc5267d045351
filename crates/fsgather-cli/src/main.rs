//! The `fsgather` command: starts ranks, gathers files for shell jobs, and
//! cleans up.
//!
//! Data goes to standard output and everything else to standard error. `arguments` says what can be
//! asked for, `output` is the only writer, and `exit` lists what the command ends with.

mod arguments;
mod delivery;
mod exit;
mod failure;
mod input;
mod interruption;
mod log;
mod membership;
mod output;
mod progress;
mod run;
mod table;
mod verbs;

use std::process::ExitCode;

use arguments::{Arguments, Verb};

fn main() -> ExitCode {
    let arguments = match Arguments::read() {
        Ok(arguments) => arguments,
        Err(code) => return ExitCode::from(code),
    };
    let (verb, result) = match &arguments.verb {
        Verb::Run(run) => ("run", run::run(run, arguments.json)),
        Verb::Demo(demo) => ("demo", verbs::demo::demo(demo, arguments.json)),
        Verb::Gather(gather) => ("gather", verbs::gather::gather(gather, arguments.json)),
        Verb::Broadcast(broadcast) => (
            "broadcast",
            verbs::broadcast::broadcast(broadcast, arguments.json),
        ),
        Verb::Barrier(barrier) => ("barrier", verbs::barrier::barrier(barrier, arguments.json)),
        Verb::Inspect(inspect) => ("inspect", verbs::inspect::inspect(inspect, arguments.json)),
        Verb::Clean(clean) => ("clean", verbs::clean::clean(clean, arguments.json)),
        Verb::Doctor(doctor) => ("doctor", verbs::doctor::doctor(doctor, arguments.json)),
        Verb::Bench(bench) => ("bench", verbs::bench::bench(bench, arguments.json)),
        // To the user a part of the same command.
        Verb::BenchRank(rank) => ("bench", verbs::bench::bench_rank(rank, arguments.json)),
        Verb::DemoRank(rank) => ("demo-rank", verbs::demo::demo_rank(rank)),
        Verb::ExecRank(rank) => ("exec-rank", Ok(run::exec_rank(rank))),
    };
    let code = result.unwrap_or_else(|failure| {
        output::say(&format!("fsgather {verb}: {failure}"));
        failure.exit_code()
    });
    ExitCode::from(code)
}
