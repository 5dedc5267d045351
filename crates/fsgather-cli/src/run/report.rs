//! Reports the end of a run to users and programs: [`RunReport`].

use std::{collections::BTreeMap, path::Path, time::Duration};

use fsgather::Rank;
use serde::Serialize;

use super::{
    outcome::{RankOutcome, rank_list, signal_text},
    supervision::Supervision,
    variables::Job,
};

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct RunReport<'a> {
    job: &'a str,
    world_size: u32,
    directory: &'a Path,
    exit_code: u8,
    seconds: f64,
    failed_first: Option<Rank>,
    cause: Option<String>,
    ranks: Vec<RankReport>,
    #[serde(skip)]
    also_failed: BTreeMap<RankOutcome, Vec<Rank>>,
}

#[derive(Debug, Serialize)]
struct RankReport {
    rank: Rank,
    pid: u32,
    exit_code: Option<i32>,
    signal: Option<String>,
    error: Option<String>,
}

impl<'a> RunReport<'a> {
    /// Makes the report of a run that is over.
    pub(super) fn new(job: &'a Job, supervision: &Supervision, elapsed: Duration) -> Self {
        let ends = supervision.ends();
        let ranks = (0..).map(Rank::new).zip(ends.pids()).map(|(rank, pid)| {
            let error = ends.last_error(rank);
            let error = error.map(|reported| reported.error.text.clone());
            RankReport::new(rank, *pid, ends.outcome(rank), error)
        });
        let mut also_failed: BTreeMap<RankOutcome, Vec<Rank>> = BTreeMap::new();
        for (rank, outcome) in supervision.also_failed() {
            also_failed.entry(*outcome).or_default().push(*rank);
        }
        for ranks in also_failed.values_mut() {
            ranks.sort_unstable();
        }
        Self {
            job: &job.name,
            world_size: job.world.get(),
            directory: &job.directory,
            exit_code: supervision.exit_code(),
            seconds: elapsed.as_secs_f64(),
            failed_first: supervision.failed_first(),
            cause: supervision.reason(),
            ranks: ranks.collect(),
            also_failed,
        }
    }

    /// Lists the ranks that failed besides the first one and were not reported during the run, one line for each way of failing.
    pub(super) fn lines(&self) -> Vec<String> {
        self.also_failed
            .iter()
            .map(|(outcome, ranks)| match ranks.as_slice() {
                [_] => format!("{} {outcome} as well", rank_list(ranks)),
                _ => format!("{} {} as well", rank_list(ranks), outcome.of_several()),
            })
            .collect()
    }
}

impl RankReport {
    fn new(rank: Rank, pid: u32, outcome: Option<RankOutcome>, error: Option<String>) -> Self {
        let (exit_code, signal) = match outcome {
            Some(RankOutcome::Code(code)) => (Some(code), None),
            Some(RankOutcome::Signal(signal)) => (None, Some(signal_text(signal))),
            None => (None, None),
        };
        Self {
            rank,
            pid,
            exit_code,
            signal,
            error: error.filter(|_| outcome.is_some_and(RankOutcome::is_failure)),
        }
    }
}
