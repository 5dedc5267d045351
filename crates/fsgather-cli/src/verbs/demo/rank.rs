//! One rank of the demo: an example of a user's program, with timers.

use std::{
    io,
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::Args;
use fsgather::{Communicator, Transport};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};

use crate::{
    demo::{self, DigitsReport, Prediction, samples, shard},
    exit,
    failure::Failure,
    log, output, progress,
};

/// Time for which ranks of the demo wait for each other.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// One rank of the demo: a process of its own.
#[derive(Args, Debug)]
#[command(hide = true)]
pub(crate) struct DemoRankArguments {
    #[arg(long)]
    rank: u32,
    #[arg(long)]
    ranks: u32,
    #[arg(long)]
    directory: PathBuf,
}

/// The message of rank 0 to the process that started it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DemoOutcome {
    pub(super) confusion: Vec<Vec<u32>>,
    pub(super) table: String,
    pub(super) payload_bytes: u64,
    pub(super) payload_files: usize,
    pub(super) seconds: Phases,
}

/// Time that rank 0 took for each phase.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Phases {
    pub(super) meet: f64,
    pub(super) evaluate: f64,
    pub(super) gather: f64,
    pub(super) close: f64,
}

/// Time since the last lap.
struct Laps(Instant);

impl Laps {
    fn lap(&mut self) -> f64 {
        let now = Instant::now();
        let lap = now.saturating_duration_since(self.0);
        self.0 = now;
        lap.as_secs_f64()
    }
}

/// The work of one rank: an example of a user's program.
///
/// # Errors
///
/// Returns any error of this rank or another one.
pub(crate) fn demo_rank(arguments: &DemoRankArguments) -> Result<u8, Failure> {
    log::start()?;
    let mut laps = Laps(Instant::now());
    let world = Communicator::builder()
        .rank(arguments.rank)
        .world_size(arguments.ranks)
        // No other job uses this directory.
        .directory(&arguments.directory)
        .timeout(TIME_LIMIT)
        .join_timeout(TIME_LIMIT)
        // Through the file system, even for small payloads.
        .transport(Transport::Filesys)
        .inline_limit(0)
        .build()?;
    let meet = laps.lap();

    let template = "  rank 0  {wide_bar} {pos}/{len} digits";
    let bar = match arguments.rank {
        0 => Some(progress::bar(0, template)?),
        _ => None,
    };
    let mine = classify(
        world.rank().index(),
        world.world_size().count(),
        bar.as_ref(),
    )?;
    let evaluate = laps.lap();

    let mut report = DigitsReport::default();
    let (mut payload_bytes, mut payload_files) = (0, 0);
    if let Some(parts) = world.gather(&mine, 0)? {
        (payload_bytes, payload_files) = (parts.bytes_left(), parts.files_left());
        for part in parts {
            add(&mut report, &part?.1)?;
        }
    }
    let gather = laps.lap();

    world.close()?;
    if arguments.rank == 0 {
        let outcome = DemoOutcome {
            confusion: report.confusion().iter().map(|row| row.to_vec()).collect(),
            table: report.to_string(),
            payload_bytes,
            payload_files,
            seconds: Phases {
                meet,
                evaluate,
                gather,
                close: laps.lap(),
            },
        };
        output::json(&outcome).map_err(Failure::system("tell the result"))?;
    }
    Ok(exit::DONE)
}

/// Classifies one share of the data set.
pub(super) fn classify(
    index: usize,
    count: usize,
    bar: Option<&ProgressBar>,
) -> Result<Vec<Prediction>, Failure> {
    let samples = samples().map_err(broken)?;
    let share = shard(&samples, index, count);
    if let Some(bar) = bar {
        bar.set_length(share.len() as u64);
    }
    let predictions = share
        .iter()
        .map(|sample| {
            if let Some(bar) = bar {
                bar.inc(1);
            }
            demo::classify(&samples, sample)
        })
        .collect();
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(predictions)
}

pub(super) fn report_of(predictions: &[Prediction]) -> Result<DigitsReport, Failure> {
    let mut report = DigitsReport::default();
    add(&mut report, predictions)?;
    Ok(report)
}

fn add(report: &mut DigitsReport, predictions: &[Prediction]) -> Result<(), Failure> {
    for prediction in predictions {
        report.add(prediction).map_err(broken)?;
    }
    Ok(())
}

/// The data set of this program is damaged.
fn broken(error: String) -> Failure {
    Failure::system("use the data set of this program")(io::Error::other(error))
}
