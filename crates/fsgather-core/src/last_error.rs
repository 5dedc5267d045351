//! The last error of a rank, left for the process that started it: [`LastError`].
//!
//! `fsgather run` names a file in `FSGATHER_ERROR_FILE` and sets `FSGATHER_RANK`. Ranks append lines to it; the last
//! line of a rank counts. So `run` can say which rank has failed first and why, even if a rank that only learned of the
//! failure ends before it.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::Path,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

use crate::{Error, PeerFailure, Rank, floor_boundary, plain_line, run_file};

/// The name of the file that `fsgather run` makes for errors; ranks write errors to no other file.
pub const FILE_NAME: &str = "fsgather-errors";

/// Maximum length of the text, in bytes.
const MAX_TEXT_BYTES: usize = 4096;

/// The last error of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// The rank that reports it.
    pub rank: u32,
    /// The other ranks that it blames: ranks that it has lost, waited for in vain, or knows to have failed. Empty if
    /// the rank itself has failed.
    pub blames: Vec<u32>,
    /// The time of the report, by the monotonic clock of this machine.
    pub told_at: Duration,
    /// The reason, as a sentence.
    pub text: String,
}

impl LastError {
    /// Returns the report about `error` of the rank that got it.
    #[must_use]
    pub fn of(rank: Rank, error: &Error) -> Self {
        let error = error.root_cause();
        let mut blamed = error.blamed_by(rank);
        if let Error::Storage {
            peer: Some(peer), ..
        } = error
            && peer.rank != rank
        {
            blamed.push(peer.rank);
        }
        let text = match error {
            // The rank knows its own name.
            Error::PeerFailed {
                peer,
                failure: PeerFailure::Raised { message },
                ..
            } if peer.rank == rank => message.clone(),
            error => error.to_string(),
        };
        Self {
            rank: rank.get(),
            blames: blamed.into_iter().map(Rank::get).collect(),
            told_at: time(),
            text,
        }
    }

    /// Returns an error of the rank's own, from outside of the library, such as an exception that its program does not
    /// catch.
    #[must_use]
    pub fn own(rank: Rank, text: &str) -> Self {
        Self {
            rank: rank.get(),
            blames: Vec::new(),
            told_at: time(),
            text: text.to_owned(),
        }
    }

    /// Appends it to the file that `fsgather run` has made.
    ///
    /// # Errors
    ///
    /// If that file is gone, or the path leads to another one.
    pub fn append_to(&self, path: &Path) -> io::Result<()> {
        let mut file = run_file::open(path, FILE_NAME, OpenOptions::new().append(true))?;
        file.write_all(self.to_line().as_bytes())
    }

    /// Returns the time since the report.
    #[must_use]
    pub fn age(&self) -> Duration {
        time().saturating_sub(self.told_at)
    }

    /// Returns the last error of each rank in the content of the file, in the order in which the ranks wrote them.
    /// Pure.
    ///
    /// ```
    /// use fsgather_core::last_error::LastError;
    ///
    /// let left = "1\t\t70400\tno room\n0\t1\t70401\trank 1 failed (no room)\n";
    /// let errors = LastError::read(left);
    /// assert_eq!((errors[0].rank, errors[0].text.as_str()), (1, "no room"));
    /// assert_eq!(errors[1].blames, [1]);
    /// assert_eq!(errors[1].told_at - errors[0].told_at, std::time::Duration::from_millis(1));
    /// ```
    #[must_use]
    pub fn read(left: &str) -> Vec<Self> {
        let mut errors: Vec<Self> = Vec::new();
        // A line without an end is not complete yet.
        let lines = left
            .split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n'));
        for mut error in lines.filter_map(Self::from_line) {
            let earlier = errors.iter().position(|earlier| earlier.rank == error.rank);
            if let Some(earlier) = earlier.map(|at| errors.remove(at)) {
                // A rank that ends because of a failure that it received may put words of its own around it.
                if error.blames.is_empty() && error.text.contains(&earlier.text) {
                    error.blames = earlier.blames;
                }
            }
            errors.push(error);
        }
        errors
    }

    fn from_line(line: &str) -> Option<Self> {
        let mut parts = line.splitn(4, '\t');
        let rank = parts.next()?.parse().ok()?;
        let blames = parts.next()?.split(',').filter(|rank| !rank.is_empty());
        Some(Self {
            rank,
            blames: blames.map(str::parse).collect::<Result<_, _>>().ok()?,
            told_at: Duration::from_millis(parts.next()?.parse().ok()?),
            // Parts of it may come from outside: names of files, command lines.
            text: plain_line(parts.next()?).into_owned(),
        })
    }

    fn to_line(&self) -> String {
        let blames: Vec<String> = self.blames.iter().map(ToString::to_string).collect();
        let end = floor_boundary(&self.text, MAX_TEXT_BYTES);
        // Indented lines continue the text, such as activities of ranks; other lines are of programs.
        let text = self.text[..end].replace("\n  ", "; ");
        let text = text.replace(['\n', '\t', '\r'], " ");
        format!(
            "{}\t{}\t{}\t{}\n",
            self.rank,
            blames.join(","),
            self.told_at.as_millis(),
            text.trim()
        )
    }
}

fn time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsRawFd as _};

    use crate::{Activity, Peer, Phase};
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    fn raised(rank: u32) -> Error {
        let peer = Peer {
            rank: Rank::new(rank),
            host: "n1".into(),
            pid: 7,
        };
        Error::raised(peer, Activity::outside(Phase::Computing), "no\troom\nleft")
    }

    #[test]
    fn a_rank_speaks_for_itself_and_others_name_it() {
        let own = LastError::of(Rank::new(1), &raised(1));
        assert_eq!((own.blames.len(), own.text.as_str()), (0, "no\troom\nleft"));
        let other = LastError::of(Rank::ZERO, &raised(1).poisoned());
        assert_eq!(other.blames, [1]);
        assert!(other.text.starts_with("rank 1 on n1 (pid 7) failed ("));
        let unknown = LastError::of(Rank::ZERO, &Error::config("x"));
        assert!(unknown.blames.is_empty());
    }

    #[test]
    fn errors_are_read_back_and_the_last_of_each_rank_counts() {
        let file = File::from(memfd_create(FILE_NAME, MemfdFlags::CLOEXEC).unwrap());
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let path = Path::new(&path);
        for (rank, of) in [(1, 1), (0, 0), (0, 1)] {
            LastError::of(Rank::new(rank), &raised(of))
                .append_to(path)
                .unwrap();
        }
        let mut left = std::fs::read_to_string(path).unwrap();
        left.push_str("4\t\t1\t\u{1b}[2J\nnonsense\n2\tx\t1\ty\n5\t\tlong ago\tx\n3\t\t1\tcut sho");
        let mut errors = LastError::read(&left);
        assert!(!errors.pop().unwrap().text.contains('\u{1b}'));
        let ranks: Vec<u32> = errors.iter().map(|error| error.rank).collect();
        assert_eq!(ranks, [1, 0]);
        assert_eq!(errors[0].text, "no room left");
        assert_eq!(errors[1].blames, [1]);
        assert!(errors[0].told_at <= errors[1].told_at);
        assert!(errors[1].told_at <= time());
    }

    #[test]
    fn lines_that_go_on_with_a_sentence_are_a_part_of_it() {
        let told = LastError {
            rank: 1,
            blames: vec![0],
            told_at: Duration::from_millis(1500),
            text: "timed out: waiting for rank 0\n  rank 0: stopped\n  rank 2: in load".into(),
        };
        assert_eq!(
            told.to_line(),
            "1\t0\t1500\ttimed out: waiting for rank 0; rank 0: stopped; rank 2: in load\n"
        );
    }

    #[test]
    fn who_ends_by_what_it_has_heard_still_blames_the_other() {
        let heard = "1\t0\t1\trank 0 failed (no room)\n";
        let ended = "1\t\t2\tPeerFailed: rank 0 failed (no room)\n";
        let errors = LastError::read(&format!("{heard}{ended}"));
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].blames, [0]);
        assert_eq!(errors[0].text, "PeerFailed: rank 0 failed (no room)");
        // Something else that it fails with later is its own.
        let own = "1\t\t2\tValueError: of its own\n";
        let errors = LastError::read(&format!("{heard}{own}"));
        assert_eq!(errors[0].blames, [0; 0]);
    }
}
