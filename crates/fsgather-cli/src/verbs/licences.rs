//! The verb `licences`: prints the licences of this program and of everything that it contains.

use clap::Args;
use serde::Serialize;

use super::inspect::is_read;
use crate::{
    exit,
    failure::Failure,
    output::{self, Stream},
};

/// Written by `scripts/collect-licences`.
const TEXTS: &str = include_str!("../../licences.txt");

const EXAMPLES: &str = "\
Examples:
  fsgather licences | less
      the texts, each after the names of the packages that it is for

With --json, standard output carries
  {schema_version, licence, texts}.";

/// Show the licences of this program and of everything that it contains.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct LicencesArguments {}

#[derive(Serialize)]
struct LicencesReport {
    licence: &'static str,
    texts: &'static str,
}

/// Prints the licences.
///
/// # Errors
///
/// Returns an error if standard output cannot be written.
pub(crate) fn licences(json: bool) -> Result<u8, Failure> {
    let report = LicencesReport {
        licence: env!("CARGO_PKG_LICENSE"),
        texts: TEXTS,
    };
    is_read(if json {
        output::json(&report)
    } else {
        output::write(Stream::Stdout, report.texts.as_bytes())
    })?;
    Ok(exit::DONE)
}
