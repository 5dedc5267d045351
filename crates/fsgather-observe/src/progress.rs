//! Reports the progress of a rank with its calls: [`Report`].
//!
//! `fsgather run` on a terminal names a file in `FSGATHER_PROGRESS_FILE`. Each rank overwrites [`Report::SIZE`] bytes of it,
//! at an offset by its number: when a phase begins, and ten times a second while bytes move. Without the variable nothing is
//! written.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use fsgather_config::environment::{self, Variables};

use fsgather_core::{Phase, plain_line, run_file};

/// What the file is called that `fsgather run` makes for it; ranks write to no other.
pub const FILE_NAME: &str = "fsgather-progress";

/// The progress of a rank with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The phase of the call; [`Phase::Computing`] once it has ended.
    pub phase: Phase,
    /// The call that the rank is in, or was in last.
    pub call: CallReport,
}

/// One call of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallReport {
    /// Tells the communicators of a world apart.
    pub lane: u64,
    /// The number of the call.
    pub number: u64,
    /// What was called.
    pub operation: String,
    /// Where in the program, as far as that fits.
    pub site: String,
    /// How many ranks are in it.
    pub ranks: u32,
    /// How many bytes have moved in this phase.
    pub done: u64,
    /// How many there will be, where that is known.
    pub total: Option<u64>,
}

/// Phases by the words that stand for them.
const PHASES: [(Phase, &str); 4] = [
    (Phase::Computing, "computing"),
    (Phase::Publishing, "publishing"),
    (Phase::Waiting, "waiting"),
    (Phase::Reading, "reading"),
];

/// Reports of bytes that move are this far apart.
pub const EVERY: Duration = Duration::from_millis(100);

/// The longest name of a place in the program that is told, in bytes.
const LONGEST_SITE: usize = 48;

impl Report {
    /// How many bytes a report takes.
    pub const SIZE: usize = 256;

    /// The bytes of a report, [`Report::SIZE`] of them. `count` differs from that of the report before, so that one that is
    /// read while it is written is known by it.
    #[must_use]
    pub fn to_bytes(&self, count: u32) -> Vec<u8> {
        let phase = PHASES.iter().find(|(phase, _)| *phase == self.phase);
        let phase = phase.map_or("", |(_, word)| word);
        let CallReport {
            lane,
            number,
            operation,
            ranks,
            done,
            ..
        } = &self.call;
        let total = self.call.total.map(|total| total.to_string());
        let total = total.unwrap_or_default();
        let site = short(&self.call.site);
        let call = format!("{lane:x}\t{number}\t{operation}\t{ranks}\t{done}\t{total}\t{site}");
        let mut bytes = format!("{count:08x}\t{phase}\t{call}\t{count:08x}\n").into_bytes();
        bytes.resize(Self::SIZE, 0);
        bytes
    }

    /// Reads a report; `None` where there is none, or not a whole one. Pure.
    ///
    /// ```
    /// use fsgather_observe::progress::Report;
    ///
    /// assert_eq!(Report::from_bytes(&[0; Report::SIZE]), None);
    /// let bytes = b"00000007\treading\t0\t2\tgather\t4\t10\t40\teval.py:3\t00000007\n";
    /// let call = Report::from_bytes(bytes).unwrap().call;
    /// assert_eq!((call.number, call.done, call.total), (2, 10, Some(40)));
    /// ```
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let text = bytes.split(|byte| *byte == b'\n').next()?;
        let (first, rest) = std::str::from_utf8(text).ok()?.split_once('\t')?;
        let (rest, last) = rest.rsplit_once('\t')?;
        if first != last {
            return None;
        }
        let mut parts = rest.split('\t');
        let word = parts.next()?;
        let (phase, _) = PHASES.iter().find(|(_, known)| *known == word)?;
        let parts: Vec<&str> = parts.collect();
        let [lane, number, operation, ranks, done, total, site] = parts[..] else {
            return None;
        };
        let call = CallReport {
            lane: u64::from_str_radix(lane, 16).ok()?,
            number: number.parse().ok()?,
            operation: plain_line(operation).into_owned(),
            site: plain_line(site).into_owned(),
            ranks: ranks.parse().ok()?,
            done: done.parse().ok()?,
            total: match total {
                "" => None,
                total => Some(total.parse().ok()?),
            },
        };
        Some(Self {
            phase: *phase,
            call,
        })
    }
}

/// A place in a program without the directories before its file; nothing where it is none.
fn short(site: &str) -> &str {
    let name = site.rsplit('/').next().unwrap_or(site);
    let is_place = name.contains(':') && !name.contains(char::is_whitespace);
    if is_place && name.len() <= LONGEST_SITE {
        name
    } else {
        ""
    }
}

/// Where a rank leaves its reports, of which the last one counts.
struct ProgressSlot {
    file: File,
    at: u64,
    /// The process that is the rank: its forked children are not.
    process: u32,
}

/// Known once it has been asked for: variables do not change.
fn place() -> Option<&'static ProgressSlot> {
    static PLACE: OnceLock<Option<ProgressSlot>> = OnceLock::new();
    let find = || {
        let variables = Variables::of_process();
        let rank: u64 = variables.get(environment::RANK)?.trim().parse().ok()?;
        let path = variables.get(environment::PROGRESS_FILE)?;
        let mut options = OpenOptions::new();
        Some(ProgressSlot {
            file: run_file::open(Path::new(path), FILE_NAME, options.write(true)).ok()?,
            at: rank.checked_mul(Report::SIZE as u64)?,
            process: std::process::id(),
        })
    };
    let place = PLACE.get_or_init(find).as_ref();
    place.filter(|place| place.process == std::process::id())
}

/// Whether reports are read.
#[must_use]
pub fn is_asked_for() -> bool {
    place().is_some()
}

/// Writes a report, if reports are read. It never waits, and a failure is ignored.
pub fn leave(report: &Report) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    if let Some(place) = place() {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let _ = place.file.write_at(&report.to_bytes(count), place.at);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn places_are_told_without_their_directories() {
        assert_eq!(short("/home/ada/project/eval.py:42"), "eval.py:42");
        assert_eq!(short("src/main.rs:10:5"), "main.rs:10:5");
        assert_eq!(short("`fsgather gather a/b:c --all`"), "");
        assert_eq!(short(&format!("{}:1", "x".repeat(60))), "");
    }

    #[test]
    fn a_report_that_is_not_whole_is_none() {
        let report = |phase| Report {
            phase,
            call: CallReport {
                lane: 0,
                number: 1,
                operation: "gather".into(),
                site: String::new(),
                ranks: 2,
                done: 0,
                total: None,
            },
        };
        let old = report(Phase::Publishing).to_bytes(1);
        assert_eq!(Report::from_bytes(&old), Some(report(Phase::Publishing)));
        // The first bytes of the next one are there already.
        let new = report(Phase::Waiting).to_bytes(2);
        let torn = [&new[..10], &old[10..]].concat();
        assert_eq!(Report::from_bytes(&torn), None);
        assert_eq!(Report::from_bytes(&old[..12]), None);
    }

    proptest! {
        #[test]
        fn reports_convert_both_ways_and_fit(
            phase in 0..PHASES.len(), lane: u64, number: u64, ranks: u32, done: u64, total: Option<u64>,
        ) {
            let call = CallReport {
                lane,
                number,
                operation: "start_all_gather".into(),
                site: "x".repeat(LONGEST_SITE - 2) + ":1",
                ranks,
                done,
                total,
            };
            let report = Report { phase: PHASES[phase].0, call };
            let bytes = report.to_bytes(7);
            prop_assert_eq!(bytes.len(), Report::SIZE);
            prop_assert_eq!(Report::from_bytes(&bytes), Some(report));
        }

        #[test]
        fn arbitrary_bytes_are_refused_or_read(bytes: Vec<u8>) {
            let _ = Report::from_bytes(&bytes);
        }
    }
}
