//! The verb `samples`: shows the results in a directory of samples, and adds those of shell jobs.

mod add;
mod ids;
mod summary;

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use clap::Args;
use fsgather::{
    codec::Postcard,
    samples::{JSON_LINES, PLAIN_DATA, SampleId, SampleResults},
};
use serde_json::json;

use self::{
    add::AddedResults,
    ids::{id_as_json, parse_expected},
    summary::Summary,
};
use super::inspect::{is_read, settings};
use crate::{
    delivery::NewFile,
    exit,
    failure::Failure,
    invocation::{Invocation, ResultAsJson},
    output::{self, Stream},
    table::{TableStyle, plain},
};

/// Bytes of lines that are written together.
const BUFFER_BYTES: usize = 1 << 20;

const EXAMPLES: &str = "\
Examples:
  fsgather samples runs/mmlu
      how many samples are done, failed and missing, and a row for each attempt
  fsgather samples runs/mmlu --missing
      ids without a result, a line each
  fsgather samples runs/mmlu --out results.jsonl
      {\"id\": ..., \"result\": ...} for each sample, in order
  fsgather samples runs/mmlu --add part-3.jsonl --key id --expect 2000
      adds each line of a file, in a shell job; 0 to 1999 are expected

Results of all attempts count, each sample once. Only the command of the Python
package can write results of Python as JSON.

--expect takes a number, or a file with one id in JSON for each line. Without it
those samples are expected that the last attempt expected.

With --json, standard output carries
  {schema_version, directory, expected, gathered, missing, failed, repeated,
    conflicts, unexpected, attempts: [{attempt, ranks, hosts, job, results,
    failures, bytes, damaged_bytes, began_seconds_ago, changed_seconds_ago,
    results_per_second}]}
with or without --missing, and of --add {schema_version, directory, added,
unexpected}.
It exits with 14 when --out finds samples missing or failed.";

/// Show, write or add results of evaluations by name.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct SamplesArguments {
    /// The directory of samples.
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Write all results to a file, or to standard output (`-`), a line of JSON for each.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Write what there is, even if samples are missing or have failed.
    #[arg(long, requires = "out")]
    partial: bool,

    /// Replace an existing file.
    #[arg(long, requires = "out")]
    force: bool,

    /// Print the ids of samples without a result, a line each.
    #[arg(long, conflicts_with = "out")]
    missing: bool,

    /// Add a result for each line of a file of JSON objects.
    #[arg(long, value_name = "FILE", requires = "key", conflicts_with_all = ["out", "missing"])]
    add: Option<PathBuf>,

    /// The field of those objects that is the sample's id.
    #[arg(long, value_name = "FIELD", requires = "add")]
    key: Option<String>,

    /// Settings under which the added results hold, as a JSON object; a directory takes no results of others.
    #[arg(long, value_name = "JSON", requires = "add")]
    config: Option<String>,

    /// The samples that are expected: a number, or a file with one id in JSON for each line.
    #[arg(long, value_name = "N|FILE")]
    expect: Option<String>,
}

/// Shows, writes or adds samples.
///
/// # Errors
///
/// When the directory cannot be read or written, and for samples that are missing where all are wanted.
pub(crate) fn samples(
    arguments: &SamplesArguments,
    json: bool,
    invocation: &Invocation,
) -> Result<u8, Failure> {
    settings()?;
    let directory = &arguments.directory;
    let expected = arguments.expect.as_deref().map(parse_expected);
    let mut options = expected.transpose()?.unwrap_or_default();
    if let (Some(file), Some(key)) = (&arguments.add, &arguments.key) {
        if let Some(config) = &arguments.config {
            options = add::with_config(options, config)?;
        }
        let AddedResults { added, unexpected } = add::add(directory, file, key, options)?;
        if json {
            let document =
                json!({"directory": directory, "added": added, "unexpected": unexpected});
            is_read(output::json(&document))?;
        } else {
            let note = match unexpected {
                0 => String::new(),
                count => format!("; {count} of them are not expected, and do not count"),
            };
            output::say(&format!(
                "fsgather samples: added {added} results to {}{note}",
                directory.display()
            ));
        }
        return Ok(exit::DONE);
    }
    let results = SampleResults::read_with(directory, Postcard, options, None)?;
    if let Some(file) = &arguments.out {
        return write(&results, file, arguments, invocation);
    }
    let shown = if json {
        output::json(&Summary::of(directory, &results).to_json())
    } else if arguments.missing {
        let mut text = String::new();
        let report = results.report();
        let failed = report.failed.iter().map(|(id, _)| id);
        for id in report.missing.iter().chain(failed) {
            text.push_str(&line_of(id));
            text.push('\n');
        }
        output::write(Stream::Stdout, text.as_bytes())
    } else {
        let text = Summary::of(directory, &results).text(&TableStyle::of_output());
        output::write(Stream::Stdout, text.as_bytes())
    };
    is_read(shown)?;
    Ok(exit::DONE)
}

/// An id as scripts use it: texts without quotes, unless they have control characters.
fn line_of(id: &SampleId) -> String {
    match id {
        SampleId::Text(text) if plain(text) == **text && !text.contains('\n') => text.to_string(),
        id => id_as_json(id).to_string(),
    }
}

fn write(
    results: &SampleResults,
    file: &Path,
    arguments: &SamplesArguments,
    invocation: &Invocation,
) -> Result<u8, Failure> {
    let report = results.report();
    if !arguments.partial && !report.is_complete() {
        output::say(&format!(
            "fsgather samples: {}; start the job again, or write what there is with --partial",
            plain(&report.to_string())
        ));
        return Ok(exit::DIFFERENT_CALLS);
    }
    let as_json: ResultAsJson = match (results.encoding(), invocation.result_as_json()) {
        (JSON_LINES, _) => |bytes| String::from_utf8(bytes).map_err(|error| error.to_string()),
        (PLAIN_DATA, Some(as_json)) => as_json,
        (PLAIN_DATA, None) => {
            let directory = arguments.directory.display();
            return Err(Failure::usage(format!(
                "results of {directory} were added by Python; use the command of the Python package, or \
                 fsgather.read_samples(\"{directory}\").write_jsonl(\"{}\")",
                file.display()
            )));
        }
        (other, _) => {
            return Err(Failure::usage(format!(
                "results of {} are encoded in {other}, which only the program that added them can read",
                arguments.directory.display()
            )));
        }
    };
    let is_file = file != Path::new("-");
    let mut new = is_file
        .then(|| NewFile::begin(file, arguments.force))
        .transpose()?;
    let mut lines = String::new();
    for (position, id) in results.ids().enumerate() {
        let encoded = results.encoded_at(position)?.unwrap_or_default();
        let result = as_json(encoded)
            .map_err(|reason| Failure::usage(format!("the result of sample {id}: {reason}")))?;
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            lines,
            "{{\"id\": {}, \"result\": {result}}}",
            id_as_json(id)
        );
        if lines.len() < BUFFER_BYTES && position + 1 < results.len() {
            continue;
        }
        match &mut new {
            Some(new) => new.write(lines.as_bytes())?,
            None if is_read(output::write(Stream::Stdout, lines.as_bytes()))? => {}
            None => return Ok(exit::DONE),
        }
        lines.clear();
    }
    new.map(NewFile::finish).transpose()?;
    output::say(&format!(
        "fsgather samples: wrote {}",
        plain(&report.to_string())
    ));
    Ok(exit::DONE)
}
