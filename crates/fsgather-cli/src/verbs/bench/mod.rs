//! The verb `bench`: measures the duration of calls on this machine, between real rank processes.
//!
//! This process starts the ranks and makes the directory that they gather through. `rank` is the program of each rank, `course` measures
//! one operation, `library` performs it, and `report` shows the results.

mod arguments;
mod course;
mod library;
mod operation;
mod rank;
mod report;
mod resources;
mod statistics;

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    path::Path,
};

use fsgather_config::settings::{ShowProgress, Transport};

pub(crate) use arguments::BenchArguments;
pub(crate) use rank::{BenchRankArguments, bench_rank};

use super::inspect::settings;
use crate::{exit, failure::Failure, invocation::Invocation, output, run};

/// Starts ranks that measure, and returns their exit code; rank 0 prints the results.
///
/// # Errors
///
/// Returns an error if the arguments contradict each other, or this machine does not allow ranks to be started.
pub(crate) fn bench(
    arguments: &BenchArguments,
    json: bool,
    invocation: &Invocation,
) -> Result<u8, Failure> {
    let settings = settings()?;
    let mut work = arguments.work()?;
    if work.transports.is_empty() {
        work.transports = vec![match settings.transport.value {
            Transport::Auto => Transport::Filesys,
            chosen => chosen,
        }];
    }
    work.control.get_or_insert(settings.control.value);
    run::allow_open_files(arguments.ranks)?;
    let named = run::named_directory(arguments.dir.as_deref())?;
    let place = make_place(named.as_deref())?;
    let mut command = vec![
        OsString::from("bench-rank"),
        "--place".into(),
        place.path().into(),
    ];
    if io::stderr().is_terminal() && settings.progress.value != ShowProgress::Off {
        command.push("--announce".into());
    }
    if json {
        command.push("--json".into());
    }
    command.extend(work.to_arguments());
    let code = run::run_own("bench", arguments.ranks, place.path(), command, invocation)?;
    let path = place.path().to_owned();
    match place.close() {
        Ok(()) => Ok(code),
        Err(error) => {
            let failure = Failure::file("remove", &path)(error);
            if code == exit::DONE {
                return Err(failure);
            }
            // The first failure is the cause.
            output::say(&format!("fsgather bench: {failure}"));
            Ok(code)
        }
    }
}

/// Makes a directory that no other process uses, in the named one or in the directory for temporary files.
fn make_place(named: Option<&Path>) -> Result<tempfile::TempDir, Failure> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("fsgather-bench-");
    match named {
        Some(named) => builder
            .tempdir_in(named)
            .map_err(Failure::file("make a directory in", named)),
        None => builder
            .tempdir()
            .map_err(|error| Failure::temporary_directory(&error)),
    }
}
