//! Keeps the ends of the ranks of a run, and the errors that they reported: [`RankEnds`]. Pure.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use fsgather::Rank;
use fsgather_core::duration_text;
use rustix::process::Signal;

use super::{error_file::ReportedError, outcome::RankOutcome};

/// An error may be the reason for the end of the rank that reported it if the rank ends within this time.
pub(super) const MAX_ERROR_AGE: Duration = Duration::from_secs(30);

/// Ranks may report the failure of another one before the system reports its end, but at most by this time.
pub(super) const MAX_REPORT_LEAD: Duration = Duration::from_secs(1);

/// The ends of all ranks that were started, and the errors that ranks have reported.
#[derive(Debug)]
pub(super) struct RankEnds {
    pids: Vec<u32>,
    ends: Vec<Option<(RankOutcome, Instant)>>,
    /// The last error of each rank, in the order in which they were reported.
    errors: Vec<ReportedError>,
}

impl RankEnds {
    /// Begins with running ranks that have these process ids.
    pub(super) fn new(pids: Vec<u32>) -> Self {
        Self {
            ends: vec![None; pids.len()],
            pids,
            errors: Vec::new(),
        }
    }

    /// Notes that ranks have ended, and all errors reported until then.
    pub(super) fn record(
        &mut self,
        now: Instant,
        ended: &[(Rank, RankOutcome)],
        errors: Vec<ReportedError>,
    ) {
        for (rank, outcome) in ended {
            self.ends[rank.index()] = Some((*outcome, now));
        }
        self.errors = errors;
    }

    /// The process ids, by rank.
    pub(super) fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// The end of a rank; `None` if it is running.
    pub(super) fn outcome(&self, rank: Rank) -> Option<RankOutcome> {
        let end = self.ends.get(rank.index()).copied().flatten();
        end.map(|(outcome, _)| outcome)
    }

    /// The ranks that have not ended.
    pub(super) fn running(&self) -> Vec<Rank> {
        let ends = (0..).map(Rank::new).zip(&self.ends);
        ends.filter(|(_, end)| end.is_none())
            .map(|(rank, _)| rank)
            .collect()
    }

    /// Returns true if no rank is running.
    pub(super) fn have_all_ended(&self) -> bool {
        self.ends.iter().all(Option::is_some)
    }

    /// The last error that a rank has reported.
    pub(super) fn last_error(&self, rank: Rank) -> Option<&ReportedError> {
        let mut errors = self.errors.iter();
        errors.find(|reported| reported.error.rank == rank.get())
    }

    /// A sentence about the end of a rank, with its last error, or else with the report of another rank about it.
    pub(super) fn sentence(&self, rank: Rank, outcome: RankOutcome) -> String {
        let how = format!("rank {rank} (pid {}) {outcome}", self.pids[rank.index()]);
        if let Some(own) = self.last_error(rank) {
            let age = self.age_at_end(own, rank);
            let age = if age > MAX_REPORT_LEAD {
                format!(" ({} before)", duration_text(age))
            } else {
                String::new()
            };
            let text = &own.error.text;
            return format!("{how}; last error{age}: {text}{}", self.early_ends(own));
        }
        let mut reports = self.errors.iter();
        match reports.find(|reported| reported.blames(rank) && self.is_about_end(reported, rank)) {
            Some(ReportedError { error, .. }) => {
                format!("{how}; rank {} reports: {}", error.rank, error.text)
            }
            None => how,
        }
    }

    /// Names the ranks that an error blames although their processes had ended with code 0.
    fn early_ends(&self, reported: &ReportedError) -> String {
        let ranks = reported.error.blames.iter().copied().map(Rank::new);
        let mut text = String::new();
        for rank in ranks.filter(|rank| self.outcome(*rank) == Some(RankOutcome::Code(0))) {
            let pid = self.pids[rank.index()];
            // Writing to a string cannot fail.
            let _ = write!(text, "; rank {rank} (pid {pid}) exited with code 0");
        }
        text
    }

    /// Returns true if a rank says by its exit code, or by its last error, that it failed because of another one.
    pub(super) fn blames_another(&self, rank: Rank, outcome: RankOutcome) -> bool {
        let last = self.final_error(rank);
        let blames = last.map(|reported| !reported.error.blames.is_empty());
        match outcome {
            // Programs that catch no error abort with it.
            RankOutcome::Signal(signal) if signal == Signal::ABORT.as_raw() => {
                blames.unwrap_or(false)
            }
            RankOutcome::Signal(_) => false,
            RankOutcome::Code(_) => blames.unwrap_or_else(|| outcome.blames_another()),
        }
    }

    /// Returns true if the last error of rank `by` blames a rank.
    pub(super) fn is_blamed_by(&self, rank: Rank, by: Rank) -> bool {
        self.final_error(by)
            .is_some_and(|reported| reported.blames(rank))
    }

    /// The time from the report of an error to the end of a rank.
    fn age_at_end(&self, reported: &ReportedError, rank: Rank) -> Duration {
        let end = self.ends.get(rank.index()).copied().flatten();
        end.map_or(Duration::ZERO, |(_, ended)| {
            ended.saturating_duration_since(reported.at)
        })
    }

    /// Returns true if an error that blames a rank is about its end: not if it was reported long before, unless the reporting
    /// rank failed too, and not if the reporting rank succeeded in spite of it.
    fn is_about_end(&self, reported: &ReportedError, rank: Rank) -> bool {
        let is_recent = self.age_at_end(reported, rank) <= MAX_REPORT_LEAD;
        match self.outcome(Rank::new(reported.error.rank)) {
            // Others may have been ended by `run`.
            Some(RankOutcome::Code(code)) => code != 0,
            Some(RankOutcome::Signal(_)) | None => is_recent,
        }
    }

    /// The error that a rank has probably ended with.
    fn final_error(&self, rank: Rank) -> Option<&ReportedError> {
        self.last_error(rank)
            .filter(|reported| self.age_at_end(reported, rank) <= MAX_ERROR_AGE)
    }
}
