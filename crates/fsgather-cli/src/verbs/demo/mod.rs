//! The verb `demo`: runs the main use case on this machine, with real processes and real data.

mod rank;

use std::{
    fs,
    io::Read,
    path::Path,
    process::{Child, Stdio},
};

use clap::Args;
use serde::Serialize;

pub(crate) use rank::{DemoRankArguments, demo_rank};

use crate::{
    exit,
    failure::Failure,
    invocation::Invocation,
    output::{self, Stream},
};
use rank::{DemoOutcome, Phases, classify, report_of};

const EXAMPLES: &str = "\
Examples:
  fsgather demo
      four rank processes classify 1,797 handwritten digits
  fsgather demo -n 8
      the same with eight, and the same result

The data set comes with the command (UCI optdigits test set, CC BY 4.0), and
the classifier gives each digit the label of its nearest neighbours. The results
go through files in a new directory under the system's temporary directory,
which is removed again.

With --json, standard output carries
  {schema_version, ranks, samples, correct, accuracy, equal_to_one_process,
   payload_bytes, payload_files, seconds: {meet, evaluate, gather, close},
   left_behind}.";

/// See the main job run on this machine: real processes, real data, nothing to set up.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DemoArguments {
    /// How many ranks (processes) to start.
    #[arg(short = 'n', long = "ranks", value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    ranks: u32,
}

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
struct Document {
    ranks: u32,
    samples: u32,
    correct: u32,
    accuracy: f64,
    equal_to_one_process: bool,
    payload_bytes: u64,
    payload_files: usize,
    seconds: Phases,
    left_behind: Vec<String>,
}

/// Starts the ranks, shows their results, and checks them.
///
/// # Errors
///
/// Returns an error if a rank fails, or this machine does not allow one to be started.
pub(crate) fn demo(
    arguments: &DemoArguments,
    json: bool,
    invocation: &Invocation,
) -> Result<u8, Failure> {
    let ranks = arguments.ranks;
    let alone = classify(0, 1, None)?;
    let expected = report_of(&alone)?;
    let place = tempfile::Builder::new()
        .prefix("fsgather-demo-")
        .tempdir()
        .map_err(|error| Failure::temporary_directory(&error))?;
    if !json {
        show(&format!(
            "{ranks} rank processes classify {} handwritten digits, each its share\n\n",
            expected.total()
        ))?;
    }
    let outcome = run_ranks(ranks, place.path(), invocation)?;
    let left_behind = leftovers(place.path())?;
    let confusion: Vec<Vec<u32>> = expected
        .confusion()
        .iter()
        .map(|row| row.to_vec())
        .collect();
    let document = Document {
        ranks,
        samples: expected.total(),
        correct: expected.correct(),
        accuracy: expected.accuracy(),
        equal_to_one_process: outcome.confusion == confusion,
        payload_bytes: outcome.payload_bytes,
        payload_files: outcome.payload_files,
        seconds: outcome.seconds,
        left_behind,
    };
    if json {
        output::json(&document).map_err(Failure::system("write standard output"))?;
    } else {
        show(&text(&document, &outcome.table, place.path()))?;
    }
    let good = document.equal_to_one_process && document.left_behind.is_empty();
    Ok(if good { exit::DONE } else { exit::OTHER })
}

/// Runs all ranks to their end, and returns the message of rank 0.
fn run_ranks(
    ranks: u32,
    directory: &Path,
    invocation: &Invocation,
) -> Result<DemoOutcome, Failure> {
    let start = |rank: u32| {
        invocation
            .again()
            .map_err(Failure::system("find this program"))?
            .arg("demo-rank")
            .args(["--rank", &rank.to_string(), "--ranks", &ranks.to_string()])
            .arg("--directory")
            .arg(directory)
            .stdin(Stdio::null())
            .stdout(if rank == 0 {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .spawn()
            .map_err(Failure::system("start a rank process"))
    };
    let mut started = StartedRanks(Vec::new());
    for rank in 0..ranks {
        started.0.push(start(rank)?);
    }
    let mut told = Vec::new();
    if let Some(mut pipe) = started.0.first_mut().and_then(|first| first.stdout.take()) {
        pipe.read_to_end(&mut told)
            .map_err(Failure::system("hear from rank 0"))?;
    }
    for (rank, child) in started.0.iter_mut().enumerate() {
        let status = child.wait().map_err(Failure::system("wait for a rank"))?;
        if !status.success() {
            return Err(Failure::Rank { rank, status });
        }
    }
    serde_json::from_slice(&told).map_err(|error| Failure::System {
        operation: "understand rank 0",
        cause: error.into(),
    })
}

/// Rank processes, which are killed when this is dropped.
struct StartedRanks(Vec<Child>);

impl Drop for StartedRanks {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Processes that have ended already cannot be killed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// All entries of a directory except the rendezvous directory, which may stay if it is empty.
fn leftovers(directory: &Path) -> Result<Vec<String>, Failure> {
    let mut left = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in fs::read_dir(&next).map_err(Failure::file("list", &next))? {
            let path = entry.map_err(Failure::file("list", &next))?.path();
            let is_rendezvous = next == directory && path.is_dir();
            if is_rendezvous {
                pending.push(path);
            } else {
                left.push(path.display().to_string());
            }
        }
    }
    Ok(left)
}

fn text(document: &Document, table: &str, directory: &Path) -> String {
    let seconds = document.seconds;
    let milliseconds = |seconds: f64| format!("{:.1} ms", seconds * 1000.0);
    let equal = if document.equal_to_one_process {
        "equal to what one process computes"
    } else {
        "NOT equal to what one process computes"
    };
    let left = if document.left_behind.is_empty() {
        "nothing".to_owned()
    } else {
        document.left_behind.join(", ")
    };
    format!(
        "{table}\n\
         {equal}\n\n\
         gathered     {} payloads, {:.1} KiB, through files in {}\n\
         rank 0 took  {} to meet, {} to classify, {} to gather, {} to close\n\
         left behind  {left}\n",
        document.payload_files,
        kib(document.payload_bytes),
        directory.display(),
        milliseconds(seconds.meet),
        milliseconds(seconds.evaluate),
        milliseconds(seconds.gather),
        milliseconds(seconds.close),
    )
}

#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
fn kib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}

fn show(text: &str) -> Result<(), Failure> {
    output::write(Stream::Stdout, text.as_bytes()).map_err(Failure::system("write standard output"))
}
