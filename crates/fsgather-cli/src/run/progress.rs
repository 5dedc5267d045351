//! The progress line of `run`: [`RunProgress`].

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    os::{fd::AsRawFd, unix::fs::FileExt},
    time::{Duration, Instant},
};

use fsgather::{Error, WorldSize};
use fsgather_config::environment;
use fsgather_core::{Phase, bytes_text};
use fsgather_observe::progress::{FILE_NAME, Report};
use indicatif::ProgressBar;
use rustix::fs::{MemfdFlags, memfd_create};

use super::variables::Variable;
use crate::progress;

/// The line is drawn this often, and only for calls that last longer.
const REDRAW_INTERVAL: Duration = Duration::from_millis(250);

/// Shows on a terminal how far the ranks are with their current call.
///
/// Ranks write their reports into an unnamed file, each at its own offset.
#[derive(Debug)]
pub(super) struct RunProgress {
    file: File,
    world: WorldSize,
    line: ProgressBar,
    shown_call: Option<CallKey>,
    next_draw: Instant,
}

/// The lane and the number of a call.
type CallKey = (u64, u64);

impl RunProgress {
    /// Returns the progress line, or `None` if nothing would be drawn.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a variable that is not valid.
    pub(super) fn begin(world: WorldSize) -> Result<Option<Self>, Error> {
        let line = progress::bar(0, "{wide_msg}")?;
        if line.is_hidden() {
            return Ok(None);
        }
        // The job runs without a progress line too.
        let Ok(file) = memfd_create(FILE_NAME, MemfdFlags::CLOEXEC) else {
            return Ok(None);
        };
        Ok(Some(Self {
            file: file.into(),
            world,
            line,
            shown_call: None,
            next_draw: Instant::now(),
        }))
    }

    /// The variable with the path of the file. Without progress it is removed: it may name the file of another run.
    pub(super) fn variable(progress: Option<&Self>) -> Variable {
        let path = progress.map(|progress| {
            let (pid, fd) = (std::process::id(), progress.file.as_raw_fd());
            OsString::from(format!("/proc/{pid}/fd/{fd}"))
        });
        (environment::PROGRESS_FILE, path)
    }

    /// Draws the line if it is due, and returns the time until it is due again.
    pub(super) fn draw(&mut self, now: Instant) -> Duration {
        if now >= self.next_draw {
            self.next_draw = now + REDRAW_INTERVAL;
            let call = current_call(&self.reports());
            let key = call.as_ref().map(|(key, _)| *key);
            match call {
                Some((_, text)) if key == self.shown_call => {
                    if self.line.is_finished() {
                        self.line.reset();
                    }
                    self.line.set_message(text);
                    self.line.tick();
                }
                _ => self.line.finish_and_clear(),
            }
            self.shown_call = key;
        }
        self.next_draw.saturating_duration_since(now)
    }

    /// Hides the line while `write` may write to the terminal.
    pub(super) fn suspend<R>(&self, write: impl FnOnce() -> R) -> R {
        self.line.suspend(write)
    }

    fn reports(&self) -> Vec<Report> {
        let mut bytes = vec![0; self.world.count() * Report::SIZE];
        // A short file has no reports at its end.
        let length = self.file.read_at(&mut bytes, 0).unwrap_or_default();
        bytes[..length]
            .chunks(Report::SIZE)
            .filter_map(Report::from_bytes)
            .collect()
    }
}

impl Drop for RunProgress {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}

/// Finds the call that most ranks are in, and describes it. Pure.
fn current_call(reports: &[Report]) -> Option<(CallKey, String)> {
    let mut calls: BTreeMap<CallKey, Vec<&Report>> = BTreeMap::new();
    for report in reports {
        if matches!(
            report.phase,
            Phase::Publishing | Phase::Waiting | Phase::Reading
        ) {
            let key = (report.call.lane, report.call.number);
            calls.entry(key).or_default().push(report);
        }
    }
    // The earliest of several.
    let (key, ranks) = calls
        .into_iter()
        .rev()
        .max_by_key(|(_, ranks)| ranks.len())?;
    let first = &ranks.first()?.call;
    let count = |phase| ranks.iter().filter(|rank| rank.phase == phase).count();
    let (publishing, reading) = (count(Phase::Publishing), count(Phase::Reading));
    let (verb, phase) = if reading > 0 {
        ("receiving", Phase::Reading)
    } else {
        ("publishing", Phase::Publishing)
    };
    let mut text = format!("{} #{}", first.operation, first.number);
    if !first.site.is_empty() {
        text = format!("{text} at {}", first.site);
    }
    let moving = || ranks.iter().filter(|rank| rank.phase == phase);
    if moving().next().is_some() {
        let done: u64 = moving().map(|rank| rank.call.done).sum();
        let total: Option<u64> = moving().map(|rank| rank.call.total).sum();
        let total = total.map(|total| format!(" of {}", bytes_text(total)));
        text = format!(
            "{text}: {verb} {}{}",
            bytes_text(done),
            total.unwrap_or_default()
        );
    }
    if reading == 0 {
        let arrived = ranks.len() - publishing;
        text = format!("{text}, {arrived} of {} ranks in", first.ranks);
    }
    Some((key, text))
}

#[cfg(test)]
mod tests {
    use fsgather_observe::progress::CallReport;

    use super::*;

    fn report(number: u64, phase: Phase, done: u64, total: Option<u64>) -> Report {
        Report {
            phase,
            call: CallReport {
                lane: 0,
                number,
                operation: "gather".into(),
                site: "eval.py:3".into(),
                ranks: 3,
                done,
                total,
            },
        }
    }

    #[test]
    fn reports_are_read_through_the_path_in_the_variable() {
        let progress = RunProgress {
            file: memfd_create(FILE_NAME, MemfdFlags::CLOEXEC).unwrap().into(),
            world: WorldSize::new(3).unwrap(),
            line: ProgressBar::hidden(),
            shown_call: None,
            next_draw: Instant::now(),
        };
        assert_eq!(progress.reports(), []);
        let (_, path) = RunProgress::variable(Some(&progress));
        let file = File::options().write(true).open(path.unwrap()).unwrap();
        let left = report(4, Phase::Reading, 10, Some(40));
        file.write_all_at(&left.to_bytes(1), 2 * Report::SIZE as u64)
            .unwrap();
        assert_eq!(progress.reports(), [left]);
    }

    #[test]
    fn the_line_is_about_the_call_that_most_ranks_are_in() {
        use Phase::{Computing, Publishing, Reading, Waiting};
        let line = |reports: &[Report]| current_call(reports).map(|(_, text)| text);
        assert_eq!(line(&[report(1, Computing, 0, None)]), None);
        let published = [
            report(2, Waiting, 0, None),
            report(2, Publishing, 1 << 20, None),
            report(1, Computing, 0, None),
        ];
        assert_eq!(
            line(&published).unwrap(),
            "gather #2 at eval.py:3: publishing 1.0 MiB, 1 of 3 ranks in"
        );
        assert_eq!(
            line(&published[..1]).unwrap(),
            "gather #2 at eval.py:3, 1 of 3 ranks in"
        );
        let read = [
            report(2, Reading, 1 << 20, Some(2 << 20)),
            report(2, Reading, 1 << 20, Some(4 << 20)),
            report(3, Waiting, 0, None),
        ];
        assert_eq!(
            line(&read).unwrap(),
            "gather #2 at eval.py:3: receiving 2.0 MiB of 6.0 MiB"
        );
    }
}
