//! The errors that ranks report to `run`, and the ends that `run` reports to ranks: [`ErrorFile`].

use std::time::{Duration, Instant};

use fsgather::Rank;
use fsgather_config::environment;
use fsgather_core::{
    ended_rank::EndedRank,
    last_error::{self, LastError},
};

use super::{outcome::RankOutcome, run_file::RunFile, variables::Variable};

/// Maximum number of bytes that are read.
const MAX_READ_BYTES: usize = 8 << 20;

/// The last error that a rank has reported, and when.
#[derive(Clone, Debug)]
pub(super) struct ReportedError {
    pub(super) error: LastError,
    pub(super) at: Instant,
}

impl ReportedError {
    /// Returns true if it blames a rank.
    pub(super) fn blames(&self, rank: Rank) -> bool {
        self.error.blames.contains(&rank.get())
    }
}

/// The file to which ranks append their errors. Without it a run names causes by exit codes alone.
#[derive(Debug)]
pub(super) struct ErrorFile(Option<RunFile>);

impl ErrorFile {
    /// Makes the file, and announces reports about ranks that show no sign of work for the time `idle_limit`.
    pub(super) fn create(idle_limit: Duration) -> Self {
        let file = Self(RunFile::create(last_error::FILE_NAME));
        file.append(&EndedRank::watch_line(idle_limit));
        file
    }

    fn append(&self, line: &str) {
        if let Some(file) = &self.0
            && let Err(error) = file.append(line.as_bytes())
        {
            tracing::debug!("ranks cannot read `{}`: {error}", line.trim_end());
        }
    }

    /// The variable with its path. A rank that cannot see this process reports nothing.
    pub(super) fn variable(&self) -> Variable {
        RunFile::variable(self.0.as_ref(), environment::ERROR_FILE)
    }

    /// The last error of each rank, in the order in which they were reported.
    pub(super) fn read(&self) -> Vec<ReportedError> {
        let bytes = self.0.as_ref().map(|file| file.read(MAX_READ_BYTES));
        let now = Instant::now();
        LastError::read(&String::from_utf8_lossy(&bytes.unwrap_or_default()))
            .into_iter()
            .map(|error| ReportedError {
                at: now.checked_sub(error.age()).unwrap_or(now),
                error,
            })
            .collect()
    }

    /// Reports to ranks that wait for this one to join whether it is idle.
    pub(super) fn report_idle(&self, rank: Rank, pid: u32, is_idle: bool) {
        self.append(&EndedRank::idle_line(rank.get(), pid, is_idle));
    }

    /// Reports the end of a rank to those that still wait for it to join.
    pub(super) fn report_end(&self, rank: Rank, pid: u32, outcome: RankOutcome) {
        let ended = EndedRank {
            rank: rank.get(),
            pid,
            outcome: outcome.to_string(),
        };
        self.append(&ended.to_line());
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write};

    use super::*;

    #[test]
    fn errors_are_read_that_ranks_append() {
        let errors = ErrorFile::create(Duration::from_secs(1800));
        let (_, path) = errors.variable();
        errors.report_end(Rank::new(2), 7, RankOutcome::Code(0));
        for line in ["1\t\t1\tno room\n", "0\t1\t2\trank 1 failed\n"] {
            let mut file = File::options()
                .append(true)
                .open(path.clone().unwrap())
                .unwrap();
            file.write_all(line.as_bytes()).unwrap();
        }
        let read = errors.read();
        assert_eq!(read.len(), 2);
        assert_eq!(read[0].error.rank, 1);
        assert!(read[1].blames(Rank::new(1)) && !read[0].blames(Rank::ZERO));
    }

    #[test]
    fn without_a_file_nothing_is_reported() {
        let none = ErrorFile(None);
        none.report_end(Rank::ZERO, 7, RankOutcome::Code(0));
        assert!(none.read().is_empty());
        assert_eq!(none.variable().1, None);
    }
}
