//! The verb `inspect`: shows the contents of shared directories, and whether their owners are alive, with the reasons.

pub(super) mod frames;
mod report;
mod text;

use std::{
    io,
    path::PathBuf,
    thread,
    time::{Duration, SystemTime},
};

use crate::housekeeping;
use clap::Args;
use fsgather::{Rank, WorldSize};
use fsgather_config::{environment::Variables, settings::Settings};
use fsgather_store::Rules;

use crate::{
    duration::positive_duration,
    exit,
    failure::Failure,
    log, output,
    table::{TableStyle, plain},
};
use frames::Frames;
pub(super) use report::ErrorReport;

const EXAMPLES: &str = "\
Examples:
  fsgather inspect /shared/scratch
      gather directories in it: live, stale, finished or unknown, and why
  fsgather inspect --long /shared/scratch
      the same, with a row for each of them
  fsgather inspect --watch --interval 5s /shared/scratch
      every 5 seconds; heartbeats that change show which jobs run
  fsgather inspect --json | jq '.directories[].gather_dirs[] | .state'
      for programs

DIR is a directory that jobs gather through, the all_gather_via_filesys in it,
or one gather directory. Nothing is changed; a small file is made and removed at
once, to learn the file server's time. `fsgather clean` removes leftovers.

Of more than 12 rows, more than 5 that are alike become one line. On a narrow
terminal these are left out, in this order: the number of files, the pid, the
beginning of names and jobs, ranks, job, owner, age. A pipe gets everything.

With --json, standard output carries
  {schema_version, directories, errors}; docs/reference/json.md has it all.
It exits with 12 when a directory cannot be read.";

/// Show what lies in shared directories, whether it is alive, and why.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct InspectArguments {
    /// Where to look; without it `FSGATHER_DIR`, else `EXP_DIR`, else the default directories.
    #[arg(value_name = "DIR")]
    directories: Vec<PathBuf>,

    /// Show a row for everything; without it, of many rows those that are alike become one line.
    #[arg(long)]
    long: bool,

    /// Look again and again until interrupted.
    #[arg(long)]
    watch: bool,

    /// How often to look again.
    #[arg(long, value_name = "D", value_parser = positive_duration, default_value = "2s", requires = "watch")]
    interval: Duration,
}

/// Resolves the settings of a command that is not a rank, and ignores the ranks of any launcher or shell. The log of the library starts
/// here.
pub(super) fn settings() -> Result<Settings, Failure> {
    let variables = Variables::of_process();
    let settings = Settings::resolve_as(Rank::ZERO, WorldSize::ONE, &variables)?;
    log::start_with(&settings)?;
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    Ok(settings)
}

/// The named directories, otherwise those that a gather would use.
pub(super) fn directories(named: &[PathBuf], settings: &Settings) -> Result<Vec<PathBuf>, Failure> {
    if !named.is_empty() {
        return Ok(named.to_vec());
    }
    Ok(housekeeping::default_directories(settings)?)
}

/// Shows the contents of shared directories.
///
/// # Errors
///
/// Returns an error if they cannot be shown.
pub(crate) fn inspect(arguments: &InspectArguments, json: bool) -> Result<u8, Failure> {
    let directories = directories(&arguments.directories, &settings()?)?;
    let surveyor = housekeeping::surveyor(Rules::default())?;
    let is_root = rustix::process::geteuid().is_root();
    let mut frames = Frames::new(arguments.watch.then_some(arguments.interval));
    loop {
        let mut surveys = Vec::new();
        let mut errors = Vec::new();
        for directory in &directories {
            match surveyor.survey(directory) {
                Ok(mut survey) => {
                    survey.count_samples();
                    surveys.push(survey);
                }
                Err(error) => errors.push((directory.clone(), error)),
            }
        }
        let shown = if json {
            output::json(&report::report(&surveys, &errors))
        } else {
            let look = TableStyle::of_output();
            let text = text::text(&surveys, arguments.long, is_root, &look);
            frames.show(&text, &errors, SystemTime::now())
        };
        let is_read = is_read(shown)?;
        if !arguments.watch {
            for (_, error) in &errors {
                output::say(&format!("fsgather inspect: {}", plain(&error.to_string())));
            }
        }
        if !(arguments.watch && is_read) {
            return Ok(if errors.is_empty() {
                exit::DONE
            } else {
                exit::STORAGE
            });
        }
        pause(arguments.interval);
    }
}

/// Returns true if the output is still being read. A closed pipe, as of `| head`, is not a failure.
pub(super) fn is_read(shown: io::Result<()>) -> Result<bool, Failure> {
    match shown {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::system("write standard output")(error)),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells when another host changes a directory"
)]
pub(in crate::verbs) fn pause(interval: Duration) {
    thread::sleep(interval);
}
