//! The verb `bench`: how long calls take on this machine, between real rank processes.
//!
//! This process starts the ranks and makes the directory they gather through; `rank` is what each of them
//! does, `course` how one operation is measured, `library` what is measured, `report` what is shown.

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

/// Starts ranks that measure, and ends with their code; rank 0 prints what they have found.
///
/// # Errors
///
/// When the arguments ask for the impossible, or this machine does not let us start ranks.
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
            // What came first is the cause.
            output::say(&format!("fsgather bench: {failure}"));
            Ok(code)
        }
    }
}

/// Makes a directory that nobody else uses, in the one that was named or where temporary files go.
fn make_place(named: Option<&Path>) -> Result<tempfile::TempDir, Failure> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("fsgather-bench-");
    match named {
        Some(named) => builder
            .tempdir_in(named)
            .map_err(Failure::file("make a directory in", named)),
        None => builder
            .tempdir()
            .map_err(Failure::system("make a temporary directory")),
    }
}
