//! The verb `doctor`: reports whether a job could run here, and if not, the remedy.

mod report;
mod row;
mod text;

use std::{path::PathBuf, time::Duration};

use clap::Args;
use fsgather::Interrupt;
use fsgather_config::{arguments::Arguments, environment::Variables, settings::Settings};

use crate::{
    doctor::{Conclusion, diagnose},
    duration::positive_duration,
    exit,
    failure::Failure,
    interruption::Interruption,
    invocation::Invocation,
    log,
    output::{self, Stream},
    table::TableStyle,
};

use super::inspect::is_read;

const EXAMPLES: &str = "\
Examples:
  srun fsgather doctor /shared/scratch
      all ranks of the job step meet and gather through the directory
  mpirun -np 4 fsgather doctor
      the same by another launcher; FSGATHER_DIR names the directory
  fsgather doctor /shared/scratch
      this process alone: its settings, and what the directory can do
  srun -N2 -n4 fsgather doctor --conformance /shared/scratch
      50 calls each way, every byte compared: for a file system not tried before
  fsgather run -n 3 --no-prefix -- fsgather doctor --json | jq .findings
      for programs; here with three ranks on this machine

Start it as the job will be started, in its place: `srun fsgather doctor` for
`srun ./evaluate`. Rank 0 prints one report for all: the conclusion first,
then problems, warnings and notes; --verbose also shows what is right. Where
ranks cannot meet, each prints what is wrong.

Nothing is left behind: a few small files and a payload of 1.5 MB for each rank
are removed again.

With --conformance, ranks then meet twice more and make 50 calls each time,
first with messages over TCP and then in marker files, with payloads of 1 kB
and 1.5 MB in turn; every byte is compared, and nothing may be left. The
report then ends with the row for a table of file systems: for each way the
median and the slowest call in ms, or how many were right.

With --json, standard output carries
  {schema_version, conclusion, exit_code, directory, rank, world_size, met,
   failure, findings, ranks, world}; docs/reference/json.md has it all.
It exits with 0 when a job could run like this, 12 when the directory cannot be
used, 15 when ranks cannot meet or lose each other, 2 when settings are wrong.";

/// Find out whether a job could run here, and if not, what to do.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DoctorArguments {
    /// The shared directory; without it `FSGATHER_DIR`, else `EXP_DIR`, else the default.
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,

    /// How long to wait for other ranks; without it `FSGATHER_JOIN_TIMEOUT`, else 30s, or 3s where a directory cannot be
    /// shared.
    #[arg(long, value_name = "D", value_parser = positive_duration)]
    timeout: Option<Duration>,

    /// Also make many calls, with every byte compared: for a file system that was not tried before. Needs at least two ranks.
    #[arg(long)]
    conformance: bool,

    /// How many calls that are, by each way that messages can go.
    #[arg(long, value_name = "N", default_value_t = 50, requires = "conformance", value_parser = clap::value_parser!(u32).range(1..))]
    calls: u32,
}

/// Diagnoses whether a job could run here, and reports the result.
///
/// # Errors
///
/// Returns an error if the report cannot be written, or a signal ends the command.
pub(crate) fn doctor(
    arguments: &DoctorArguments,
    json: bool,
    is_verbose: bool,
    invocation: &Invocation,
) -> Result<u8, Failure> {
    // Wrong settings become findings, not failures.
    if let Ok(settings) = Settings::resolve(&Variables::of_process()) {
        log::start_with(&settings)?;
    }
    let interrupt = Interrupt::default();
    let interruption = Interruption::watch(&interrupt, invocation.early_end()).map_err(
        Failure::denied("watch signals", "socketpair, rt_sigaction or clone3"),
    )?;
    let calls = arguments.conformance.then_some(arguments.calls);
    let arguments = Arguments {
        directory: arguments.directory.clone(),
        timeout: arguments.timeout,
        join_timeout: arguments.timeout,
        ..Arguments::default()
    };
    let diagnosis = diagnose(&arguments, calls, &interrupt);
    if let Some(error) = &diagnosis.failure {
        let failure = interruption.explain(error.clone());
        if matches!(failure, Failure::Signal { .. }) {
            return Err(failure);
        }
    }
    let code = exit_code(diagnosis.conclusion);
    if diagnosis.is_reported_here {
        let shown = if json {
            output::json(&report::report(&diagnosis, code))
        } else {
            // In one write, so that reports of several ranks do not mix.
            output::write(
                Stream::Stdout,
                text::text(&diagnosis, is_verbose, &TableStyle::of_output()).as_bytes(),
            )
        };
        is_read(shown)?;
    }
    Ok(code)
}

fn exit_code(conclusion: Conclusion) -> u8 {
    match conclusion {
        Conclusion::Usable => exit::DONE,
        Conclusion::NoMeeting => exit::RENDEZVOUS,
        Conclusion::BadDirectory => exit::STORAGE,
        Conclusion::WrongSettings => exit::USAGE,
    }
}
