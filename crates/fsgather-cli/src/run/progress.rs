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
use fsgather_core::bytes_text;
use fsgather_observe::{
    progress::{FILE_NAME, Progress},
    trace::status::RankState,
};
use indicatif::ProgressBar;

use super::{run_file::RunFile, variables::Variable};
use crate::{output::Stream, progress};

/// The line is drawn this often, and only for calls that last longer.
const REDRAW_INTERVAL: Duration = Duration::from_millis(250);

/// Shows on a terminal how far the ranks are with their current call.
///
/// Ranks write their progress into an unnamed file, each at its own offset.
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
    /// True if standard output and standard error have begun a line there and not ended it.
    is_in_line: Arc<[AtomicBool; 2]>,
}

/// The communicator and the number of a call.
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
            let call = current_call(&self.ranks());
            let key = call.as_ref().map(|(key, _)| *key);
            let is_shown = key == self.shown_call;
            self.line
                .draw(call.map(|(_, text)| text).filter(|_| is_shown));
            self.shown_call = key;
        }
        self.next_draw.saturating_duration_since(now)
    }

    fn ranks(&self) -> Vec<Progress> {
        // A short file has no progress at its end.
        let bytes = self.file.read(self.world.count() * Progress::SIZE);
        bytes
            .chunks(Progress::SIZE)
            .filter_map(Progress::from_bytes)
            .collect()
    }
}

impl Drop for RunProgress {
    fn drop(&mut self) {
        self.line.draw(None);
    }
}

/// Finds the call that most ranks are in, and describes it. Pure.
fn current_call(ranks: &[Progress]) -> Option<(CallKey, String)> {
    let mut calls: BTreeMap<CallKey, Vec<(RankState, &Progress)>> = BTreeMap::new();
    for rank in ranks {
        let state = RankState::of_running(&rank.call);
        if state != RankState::Computing {
            let key = (rank.call.channel, rank.call.number);
            calls.entry(key).or_default().push((state, rank));
        }
    }
    // The earliest of several.
    let (key, ranks) = calls
        .into_iter()
        .rev()
        .max_by_key(|(_, ranks)| ranks.len())?;
    let (_, first) = ranks.first()?;
    let count = |state| ranks.iter().filter(|rank| rank.0 == state).count();
    let (handing_in, reading) = (count(RankState::HandingIn), count(RankState::Reading));
    let (verb, state) = if reading > 0 {
        ("receiving", RankState::Reading)
    } else {
        ("publishing", RankState::HandingIn)
    };
    let mut text = first.call.name();
    let site = short(&first.call.site);
    if !site.is_empty() {
        text = format!("{text} at {site}");
    }
    let moving = || ranks.iter().filter(|rank| rank.0 == state);
    if moving().next().is_some() {
        let done: u64 = moving().map(|(_, rank)| rank.done).sum();
        let total: Option<u64> = moving().map(|(_, rank)| rank.total).sum();
        let total = total.map(|total| format!(" of {}", bytes_text(total)));
        text = format!(
            "{text}: {verb} {}{}",
            bytes_text(done),
            total.unwrap_or_default()
        );
    }
    if reading == 0 {
        let arrived = ranks.len() - handing_in;
        text = format!("{text}, {arrived} of {} ranks in", first.call.ranks);
    }
    Some((key, text))
}

/// The longest name of a place in the program that the line has room for, in bytes.
const LONGEST_SITE: usize = 48;

/// Returns a place in a program without the directories before its file; nothing for other names.
fn short(site: &str) -> &str {
    let name = site.rsplit('/').next().unwrap_or(site);
    let is_place = name.contains(':') && !name.contains(char::is_whitespace);
    if is_place && name.len() <= LONGEST_SITE {
        name
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use fsgather_observe::trace::record::{CallRecord, Outcome};

    use super::*;

    fn progress(number: u64, state: RankState, done: u64, total: Option<u64>) -> Progress {
        let in_state = |states: &[RankState]| states.contains(&state).then_some(2);
        let ended = in_state(&[RankState::Computing]);
        Progress {
            call: CallRecord {
                number,
                ranks: 3,
                outcome: ended.map_or(Outcome::Open, |_| Outcome::Done),
                handed_in: in_state(&[RankState::Waiting, RankState::Reading]),
                decided: in_state(&[RankState::Reading]),
                ended,
                operation: "gather".into(),
                site: "/home/ada/eval.py:3".into(),
                ..CallRecord::default()
            },
            done,
            total,
        }
    }

    #[test]
    fn places_are_shown_without_their_directories() {
        assert_eq!(short("/home/ada/project/eval.py:42"), "eval.py:42");
        assert_eq!(short("src/main.rs:10:5"), "main.rs:10:5");
        assert_eq!(short("`fsgather gather a/b:c --all`"), "");
        assert_eq!(short(&format!("{}:1", "x".repeat(60))), "");
    }

    #[test]
    fn the_line_is_about_the_call_that_most_ranks_are_in() {
        use RankState::{Computing, HandingIn, Reading, Waiting};
        let line = |ranks: &[Progress]| current_call(ranks).map(|(_, text)| text);
        assert_eq!(line(&[progress(1, Computing, 0, None)]), None);
        let published = [
            progress(2, Waiting, 0, None),
            progress(2, HandingIn, 1 << 20, None),
            progress(1, Computing, 0, None),
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
            progress(2, Reading, 1 << 20, Some(2 << 20)),
            progress(2, Reading, 1 << 20, Some(4 << 20)),
            progress(3, Waiting, 0, None),
        ];
        assert_eq!(
            line(&read).unwrap(),
            "gather #2 at eval.py:3: receiving 2.0 MiB of 6.0 MiB"
        );
    }
}
