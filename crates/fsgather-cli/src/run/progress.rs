//! The progress line of `run`: [`RunProgress`].

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use fsgather::{Error, WorldSize};
use fsgather_config::environment;
use fsgather_core::{Phase, bytes_text};
use fsgather_observe::progress::{FILE_NAME, Report};
use indicatif::ProgressBar;

use super::{run_file::RunFile, variables::Variable};
use crate::{output::Stream, progress};

/// The line is drawn this often, and only for calls that last longer.
const REDRAW_INTERVAL: Duration = Duration::from_millis(250);

/// Shows on a terminal how far the ranks are with their current call.
///
/// Ranks write their reports into an unnamed file, each at its own offset.
#[derive(Debug)]
pub(super) struct RunProgress {
    file: RunFile,
    world: WorldSize,
    line: ProgressLine,
    shown_call: Option<CallKey>,
    next_draw: Instant,
}

/// The last line of a terminal, which both output streams may write to.
#[derive(Clone, Debug)]
pub(super) struct ProgressLine {
    bar: ProgressBar,
    /// Whether standard output and standard error have begun a line there and not ended it.
    is_in_line: Arc<[AtomicBool; 2]>,
}

/// The lane and the number of a call.
type CallKey = (u64, u64);

impl ProgressLine {
    /// Hides the line while `write` writes to the terminal, and longer if that does not end a line.
    pub(super) fn write_around(
        &self,
        stream: Stream,
        is_in_line: bool,
        write: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let flag = &self.is_in_line[usize::from(stream == Stream::Stderr)];
        let was_in_line = flag.swap(is_in_line, Ordering::Relaxed);
        if is_in_line || was_in_line {
            self.bar.finish_and_clear();
            write()
        } else {
            self.bar.suspend(write)
        }
    }

    /// Draws the line with a text, or clears it.
    fn draw(&self, text: Option<String>) {
        match text {
            Some(text)
                if !self
                    .is_in_line
                    .iter()
                    .any(|flag| flag.load(Ordering::Relaxed)) =>
            {
                if self.bar.is_finished() {
                    self.bar.reset();
                }
                self.bar.set_message(text);
                self.bar.tick();
            }
            _ => self.bar.finish_and_clear(),
        }
    }
}

impl RunProgress {
    /// Returns the progress line, or `None` if nothing would be drawn.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a variable that is not valid.
    pub(super) fn begin(world: WorldSize) -> Result<Option<Self>, Error> {
        let bar = progress::bar(0, "{wide_msg}")?;
        if bar.is_hidden() {
            return Ok(None);
        }
        Ok(RunFile::create(FILE_NAME).map(|file| Self::new(file, world, bar)))
    }

    fn new(file: RunFile, world: WorldSize, bar: ProgressBar) -> Self {
        Self {
            file,
            world,
            line: ProgressLine {
                bar,
                is_in_line: Arc::default(),
            },
            shown_call: None,
            next_draw: Instant::now(),
        }
    }

    /// The variable with the path of the file.
    pub(super) fn variable(progress: Option<&Self>) -> Variable {
        RunFile::variable(
            progress.map(|progress| &progress.file),
            environment::PROGRESS_FILE,
        )
    }

    /// The line, for those that write to the same terminal.
    pub(super) fn line(&self) -> ProgressLine {
        self.line.clone()
    }

    /// Draws the line if it is due, and returns the time until it is due again.
    pub(super) fn draw(&mut self, now: Instant) -> Duration {
        if now >= self.next_draw {
            self.next_draw = now + REDRAW_INTERVAL;
            let call = current_call(&self.reports());
            let key = call.as_ref().map(|(key, _)| *key);
            let is_shown = key == self.shown_call;
            self.line
                .draw(call.map(|(_, text)| text).filter(|_| is_shown));
            self.shown_call = key;
        }
        self.next_draw.saturating_duration_since(now)
    }

    fn reports(&self) -> Vec<Report> {
        // A short file has no reports at its end.
        let bytes = self.file.read(self.world.count() * Report::SIZE);
        bytes
            .chunks(Report::SIZE)
            .filter_map(Report::from_bytes)
            .collect()
    }
}

impl Drop for RunProgress {
    fn drop(&mut self) {
        self.line.draw(None);
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
    use std::{fs::File, os::unix::fs::FileExt};

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
        let file = RunFile::create(FILE_NAME).unwrap();
        let world = WorldSize::new(3).unwrap();
        let progress = RunProgress::new(file, world, ProgressBar::hidden());
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
