//! The end of a rank, as `fsgather run` reports it to the ranks that wait for it: [`EndedRank`].
//!
//! `run` appends a line to the file in which ranks write their errors. Ranks that are joining read it.

use std::{collections::BTreeMap, fs::OpenOptions, io::Read as _, path::Path, time::Duration};

use crate::{
    Activity, Error, Peer, PeerFailure, Phase, Rank, last_error::FILE_NAME, plain_line, run_file,
};

/// The first word of a line. Lines of errors begin with a number.
const MARK: &str = "ended";

/// The first word of the line that announces reports about idle ranks.
const WATCH_MARK: &str = "watch";

/// The first words of lines about ranks that show no sign of work, and that do so again.
const IDLE_MARK: &str = "idle";
const WORKS_MARK: &str = "works";

/// A rank whose process has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedRank {
    /// The rank.
    pub rank: u32,
    /// Its process id.
    pub pid: u32,
    /// The way in which it ended: `exited with code 0`.
    pub outcome: String,
}

impl EndedRank {
    /// Returns the line that reports the end.
    #[must_use]
    pub fn to_line(&self) -> String {
        format!("{MARK}\t{}\t{}\t{}\n", self.rank, self.pid, self.outcome)
    }

    /// Reads the ends in the file at a path, in their order; none if `fsgather run` has not made that file.
    #[must_use]
    pub fn read(path: &Path) -> Vec<Self> {
        Self::parse(&read_text(path))
    }

    /// Returns the error of a rank that waits for this one, which runs on the same host.
    #[must_use]
    pub fn error(&self, host: &str) -> Error {
        let peer = Peer {
            rank: Rank::new(self.rank),
            host: host.to_owned(),
            pid: self.pid,
        };
        let how = format!("it {} before it joined", self.outcome);
        let computing = Activity::outside(Phase::Computing);
        Error::peer_failed(peer, computing, PeerFailure::Lost { how })
    }

    /// Returns the line that announces reports about ranks that show no sign of work for this time.
    #[must_use]
    pub fn watch_line(idle_limit: Duration) -> String {
        format!("{WATCH_MARK}\t{}\n", idle_limit.as_millis())
    }

    /// Reads the time without a sign of work after which ranks are reported, from the file at a path; none if they are not reported.
    #[must_use]
    pub fn read_idle_limit(path: &Path) -> Option<Duration> {
        let text = read_text(path);
        let mut lines = text.lines().filter_map(|line| line.split_once('\t'));
        let (_, millis) = lines.find(|(mark, _)| *mark == WATCH_MARK)?;
        Some(Duration::from_millis(millis.parse().ok()?))
    }

    /// Returns the line that reports that a rank shows no sign of work, or again one.
    #[must_use]
    pub fn idle_line(rank: u32, pid: u32, is_idle: bool) -> String {
        let mark = if is_idle { IDLE_MARK } else { WORKS_MARK };
        format!("{mark}\t{rank}\t{pid}\n")
    }

    /// Reads the ranks that show no sign of work, with their process ids, from the file at a path.
    #[must_use]
    pub fn read_idle(path: &Path) -> BTreeMap<u32, u32> {
        let mut idle = BTreeMap::new();
        for line in read_text(path).split_inclusive('\n') {
            let mut parts = line.trim_end().split('\t');
            let (mark, rank, pid) = (parts.next(), parts.next(), parts.next());
            let number = |text: Option<&str>| text?.parse::<u32>().ok();
            let (Some(rank), Some(pid)) = (number(rank), number(pid)) else {
                continue;
            };
            match mark {
                Some(IDLE_MARK) => drop(idle.insert(rank, pid)),
                Some(WORKS_MARK) => drop(idle.remove(&rank)),
                _ => {}
            }
        }
        idle
    }

    fn parse(text: &str) -> Vec<Self> {
        // A line without an end is not complete yet.
        let lines = text.split_inclusive('\n');
        lines
            .filter_map(|line| Self::from_line(line.strip_suffix('\n')?))
            .collect()
    }

    fn from_line(line: &str) -> Option<Self> {
        let mut parts = line.splitn(4, '\t');
        if parts.next()? != MARK {
            return None;
        }
        Some(Self {
            rank: parts.next()?.parse().ok()?,
            pid: parts.next()?.parse().ok()?,
            outcome: plain_line(parts.next()?).into_owned(),
        })
    }
}

/// Returns the text of the file at a path; none if `fsgather run` has not made that file.
fn read_text(path: &Path) -> String {
    let mut text = Vec::new();
    let file = run_file::open(path, FILE_NAME, OpenOptions::new().read(true));
    match file.and_then(|mut file| file.read_to_end(&mut text)) {
        Ok(_) => String::from_utf8_lossy(&text).into_owned(),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write as _, os::fd::AsRawFd as _};

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn ends_are_read_back_among_errors() {
        let ended = EndedRank {
            rank: 1,
            pid: 7,
            outcome: "exited with code 0".into(),
        };
        let mut file = File::from(memfd_create(FILE_NAME, MemfdFlags::CLOEXEC).unwrap());
        let lines = format!(
            "{}2\t\t1\tno room\n{}{}{}{}ended\tx\nended\t3\t4\tcut",
            EndedRank::watch_line(Duration::from_secs(1800)),
            ended.to_line(),
            EndedRank::idle_line(4, 8, true),
            EndedRank::idle_line(5, 9, true),
            EndedRank::idle_line(4, 8, false),
        );
        file.write_all(lines.as_bytes()).unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        assert_eq!(
            EndedRank::read(Path::new(&path)),
            std::slice::from_ref(&ended)
        );
        assert_eq!(
            EndedRank::read_idle(Path::new(&path)),
            BTreeMap::from([(5, 9)])
        );
        let limit = EndedRank::read_idle_limit(Path::new(&path));
        assert_eq!(limit, Some(Duration::from_secs(1800)));
        assert_eq!(EndedRank::read_idle_limit(Path::new("/nowhere")), None);
        assert_eq!(EndedRank::read(Path::new("/nowhere")), []);
        assert_eq!(
            ended.error("n1").to_string(),
            "rank 1 on n1 (pid 7) was lost (it exited with code 0 before it joined) while computing"
        );
    }
}
