//! Reports how far a rank has come with its calls: [`Report`], for whoever shows it.
//!
//! `fsgather run` on a terminal names a file in `FSGATHER_PROGRESS_FILE` and says `FSGATHER_RANK`. Each rank has a place of
//! [`Report::SIZE`] bytes in it, by its number, which it writes over: when a phase begins, and ten times a second
//! while bytes move. Nothing grows and nobody waits; what a reader misses is old by then. Where nobody has named a file, and
//! the program does not [watch] itself, nothing is written.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use fsgather_core::{Phase, plain_line};

use fsgather_config::environment::{self, Variables};

use crate::file_of_run;

/// What the file is called that `fsgather run` makes for it; ranks write to no other.
pub const FILE_NAME: &str = "fsgather-progress";

/// How far a rank has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What it does.
    pub phase: Phase,
    /// The call that it is in, or was in last.
    pub call: Option<CallReport>,
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
const PHASES: [(Phase, &str); 6] = [
    (Phase::Joining, "joining"),
    (Phase::Computing, "computing"),
    (Phase::Publishing, "publishing"),
    (Phase::Waiting, "waiting"),
    (Phase::Reading, "reading"),
    (Phase::Closing, "closing"),
];

/// What is said before an operation whose results are handed on.
const OUTPUT: &str = "output of ";

/// Reports of bytes that move are this far apart.
pub const EVERY: Duration = Duration::from_millis(100);

/// The longest name of a place in the program that is told, in bytes.
const LONGEST_SITE: usize = 48;

impl Report {
    /// How many bytes a report takes.
    pub const SIZE: usize = 256;

    /// A phase outside of any call.
    #[must_use]
    pub const fn outside(phase: Phase) -> Self {
        Self { phase, call: None }
    }

    /// The bytes of a report, [`Report::SIZE`] of them. `count` differs from that of the report before, so that one that is
    /// read while it is written is known by it.
    #[must_use]
    pub fn to_bytes(&self, count: u32) -> Vec<u8> {
        let phase = PHASES.iter().find(|(phase, _)| *phase == self.phase);
        let phase = phase.map_or("", |(_, word)| word);
        let call = match &self.call {
            None => String::new(),
            Some(call) => format!(
                "{:x}\t{}\t{}\t{}\t{}\t{}\t{}",
                call.lane,
                call.number,
                call.operation,
                call.ranks,
                call.done,
                call.total
                    .map(|total| total.to_string())
                    .unwrap_or_default(),
                short(&call.site),
            ),
        };
        let mut bytes = format!("{count:08x}\t{phase}\t{call}\t{count:08x}\n").into_bytes();
        bytes.resize(Self::SIZE, 0);
        bytes
    }

    /// Reads a report; `None` where there is none, or not a whole one. Pure.
    ///
    /// ```
    /// use fsgather_report::progress::Report;
    ///
    /// assert_eq!(Report::from_bytes(&[0; Report::SIZE]), None);
    /// let bytes = b"00000007\treading\t0\t2\tgather\t4\t10\t40\teval.py:3\t00000007\n";
    /// let call = Report::from_bytes(bytes).and_then(|report| report.call).unwrap();
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
        let call = match parts.as_slice() {
            [""] => None,
            [lane, number, operation, ranks, done, total, site] => Some(CallReport {
                lane: u64::from_str_radix(lane, 16).ok()?,
                number: number.parse().ok()?,
                operation: plain_line(operation).into_owned(),
                site: plain_line(site).into_owned(),
                ranks: ranks.parse().ok()?,
                done: done.parse().ok()?,
                total: match *total {
                    "" => None,
                    total => Some(total.parse().ok()?),
                },
            }),
            _ => return None,
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
            file: file_of_run::open(Path::new(path), FILE_NAME, options.write(true)).ok()?,
            at: rank.checked_mul(Report::SIZE as u64)?,
            process: std::process::id(),
        })
    };
    let place = PLACE.get_or_init(find).as_ref();
    place.filter(|place| place.process == std::process::id())
}

/// The last report of this process, if somebody looks.
static LATEST: Mutex<Option<Report>> = Mutex::new(None);
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// Whether somebody looks.
pub fn is_asked_for() -> bool {
    IS_WATCHED.load(Ordering::Relaxed) || place().is_some()
}

/// Whether whoever has started this rank shows how far it has come.
#[must_use]
pub fn is_shown_by_launcher() -> bool {
    place().is_some()
}

/// Has this process's own reports kept from now on, for [`latest`].
pub fn watch() {
    IS_WATCHED.store(true, Ordering::Relaxed);
}

/// The last report of this process since it [watches](watch) itself.
#[must_use]
pub fn latest() -> Option<Report> {
    LATEST.try_lock().ok()?.clone()
}

/// Says how far this rank has come with handing on what its last call has brought, for programs that are longer at that than
/// the call was.
pub fn deliver(done: u64, total: u64) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    if !is_asked_for() {
        return;
    }
    let now = Instant::now();
    let is_recent = |last: Instant| now.saturating_duration_since(last) < EVERY;
    let Ok(mut last) = LAST.try_lock() else {
        return;
    };
    if done < total && last.is_some_and(is_recent) {
        return;
    }
    *last = Some(now);
    let Some(mut call) = latest().and_then(|report| report.call) else {
        return;
    };
    if !call.operation.starts_with(OUTPUT) {
        call.operation.insert_str(0, OUTPUT);
        // No call has this lane.
        call.lane = !call.lane;
    }
    (call.done, call.total) = (done, Some(total));
    let phase = if done < total {
        Phase::Reading
    } else {
        Phase::Computing
    };
    leave(&Report {
        phase,
        call: Some(call),
    });
}

/// Leaves a report, where somebody looks for it. It never waits, and it is no failure if nobody can read it.
pub fn leave(report: &Report) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Nobody waits for the lock: in a forked child it may be held for ever.
    if is_asked_for()
        && let Ok(mut latest) = LATEST.try_lock()
    {
        *latest = Some(report.clone());
    }
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
        let report = Report::outside(Phase::Joining);
        let old = report.to_bytes(1);
        assert_eq!(Report::from_bytes(&old), Some(report));
        // The first bytes of the next one are there already.
        let new = Report::outside(Phase::Closing).to_bytes(2);
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
                operation: "output of start_all_gather".into(),
                site: "x".repeat(LONGEST_SITE - 2) + ":1",
                ranks,
                done,
                total,
            };
            let report = Report { phase: PHASES[phase].0, call: Some(call) };
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
