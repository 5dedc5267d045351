//! How far long work has come: a [`bar`] on a terminal, and elsewhere a line after a second and now and then
//! ([`Received`]).

use std::{
    io::{self, IsTerminal},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use fsgather::{
    Error, Rank, bytes_text, duration_text,
    environment::Variables,
    settings::{Progress, Settings},
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{log, output};

/// When the first line is said where there is no terminal, and how often after that.
const FIRST: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_secs(30);

/// A bar of `length` steps on standard error. It draws nothing where that is no terminal, or where
/// `FSGATHER_PROGRESS=off` is set.
///
/// # Errors
///
/// [`Error::Config`] for a variable that cannot be understood.
pub(crate) fn bar(length: u64, template: &str) -> Result<ProgressBar, Error> {
    Ok(bar_for(setting()?, length, template))
}

fn setting() -> Result<Progress, Error> {
    let settings = Settings::resolve(&Variables::of_process())?;
    if log::is_quiet() {
        return Ok(Progress::Off);
    }
    Ok(settings.progress.value)
}

fn bar_for(progress: Progress, length: u64, template: &str) -> ProgressBar {
    let target = match progress {
        Progress::Auto => ProgressDrawTarget::stderr(),
        Progress::Off => ProgressDrawTarget::hidden(),
    };
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(length), target).with_style(style)
}

/// What one rank has received so far: a bar on a terminal, elsewhere a line after a second and every 30 seconds.
pub(crate) struct Received {
    bar: ProgressBar,
    tally: Arc<Mutex<Tally>>,
    began: Instant,
    _lines: Option<Lines>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    ranks: u64,
    bytes: u64,
    /// How many there will be, once that is known.
    total: Option<u64>,
}

impl Received {
    /// Begins to show what `rank` receives from so many ranks. A rank that is not to `report` says no lines.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a variable that cannot be understood.
    pub(crate) fn begin(rank: Rank, ranks: u64, report: bool) -> Result<Self, Error> {
        let progress = setting()?;
        let tally = Arc::default();
        let says_lines = report && progress == Progress::Auto && !io::stderr().is_terminal();
        let lines = says_lines.then(|| {
            Lines::start([FIRST, EVERY], &tally, move |now, since| {
                output::say(&line(rank, ranks, now, since));
            })
        });
        Ok(Self {
            bar: bar_for(
                progress,
                ranks,
                "  received from {pos}/{len} ranks  {wide_bar} {msg}",
            ),
            tally,
            began: Instant::now(),
            _lines: lines,
        })
    }

    /// Notes that all ranks have handed in their parts, of so many bytes together, and that these come from now on.
    pub(crate) fn expect(&mut self, bytes: u64) {
        self.began = Instant::now();
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.total = Some(bytes);
    }

    /// Notes that so many bytes have come.
    pub(crate) fn take(&self, bytes: u64) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.bytes += bytes;
        let since = Since {
            bytes: tally.bytes,
            time: self.began.elapsed(),
        };
        self.bar.set_message(figures(*tally, since));
    }

    /// Notes that all of one more rank has come.
    pub(crate) fn end_of_rank(&self) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.ranks += 1;
        self.bar.inc(1);
    }

    /// All that has come.
    pub(crate) fn bytes(&self) -> u64 {
        let tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.bytes
    }

    /// Takes the bar away.
    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }
}

/// What has come since the line before.
#[derive(Clone, Copy, Debug)]
struct Since {
    bytes: u64,
    time: Duration,
}

fn line(rank: Rank, ranks: u64, now: Tally, since: Since) -> String {
    format!(
        "fsgather: rank {rank}: received from {} of {ranks} ranks, {}",
        now.ranks,
        figures(now, since)
    )
}

/// How much has come, of how much, how fast, and for how long it goes on so.
fn figures(now: Tally, since: Since) -> String {
    let millis = since.time.as_millis().max(1);
    let rate = u64::try_from(u128::from(since.bytes) * 1000 / millis).unwrap_or(u64::MAX);
    let mut text = bytes_text(now.bytes);
    if let Some(total) = now.total {
        text = format!("{text} of {}", bytes_text(total));
    }
    text = format!("{text}, {}/s", bytes_text(rate));
    let left = now.total.map(|total| total.saturating_sub(now.bytes));
    match left.and_then(|left| left.checked_div(rate)) {
        Some(seconds) => format!(
            "{text}, {} left",
            duration_text(Duration::from_secs(seconds))
        ),
        None => text,
    }
}

/// A thread that says lines until this is dropped.
struct Lines {
    _stop: mpsc::Sender<()>,
}

impl Lines {
    /// The first one comes after the first of these times, the others that far apart.
    fn start(
        [first, every]: [Duration; 2],
        tally: &Arc<Mutex<Tally>>,
        say: impl Fn(Tally, Since) + Send + 'static,
    ) -> Self {
        let (stop, stopped) = mpsc::channel();
        let tally = Arc::clone(tally);
        let speak = move || {
            let mut before = Tally::default();
            let mut from = Instant::now();
            let mut pause = first;
            while stopped.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
                pause = every;
                let now = *tally.lock().unwrap_or_else(PoisonError::into_inner);
                let since = Since {
                    bytes: now.bytes.saturating_sub(before.bytes),
                    time: from.elapsed(),
                };
                say(now, since);
                (before, from) = (now, Instant::now());
            }
        };
        // Without a thread there are no lines, which is no reason to fail.
        let _ = thread::Builder::new()
            .name("fsgather-progress".into())
            .spawn(speak);
        Self { _stop: stop }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_tell_ranks_bytes_and_rate() {
        let now = Tally {
            ranks: 3,
            bytes: 96 << 20,
            total: None,
        };
        let since = Since {
            bytes: 60 << 20,
            time: Duration::from_secs(30),
        };
        assert_eq!(
            line(Rank::ZERO, 8, now, since),
            "fsgather: rank 0: received from 3 of 8 ranks, 96.0 MiB, 2.0 MiB/s"
        );
        let now = Tally {
            total: Some(256 << 20),
            ..now
        };
        assert_eq!(
            line(Rank::ZERO, 8, now, since),
            "fsgather: rank 0: received from 3 of 8 ranks, 96.0 MiB of 256.0 MiB, 2.0 MiB/s, 1 min 20 s left"
        );
        // Nothing has come yet: nobody knows how long it takes.
        let since = Since { bytes: 0, ..since };
        assert!(line(Rank::ZERO, 8, now, since).ends_with(" of 256.0 MiB, 0 bytes/s"));
    }

    #[test]
    fn lines_come_again_and_again_until_the_work_is_done() {
        let tally = Arc::new(Mutex::new(Tally {
            ranks: 1,
            bytes: 10,
            total: None,
        }));
        let (send, said) = mpsc::channel();
        let lines = Lines::start([Duration::from_millis(1); 2], &tally, move |now, since| {
            let _ = send.send((now, since.bytes));
        });
        let next = || said.recv_timeout(Duration::from_mins(1)).unwrap();
        assert_eq!((next().1, next().1), (10, 0));
        *tally.lock().unwrap() = Tally {
            ranks: 2,
            bytes: 25,
            total: None,
        };
        let second = std::iter::repeat_with(next).find(|(now, _)| now.ranks == 2);
        assert_eq!(second.unwrap().1, 15);
        drop(lines);
        // The thread ends, and with it the only sender.
        while said.recv_timeout(Duration::from_mins(1)) != Err(mpsc::RecvTimeoutError::Disconnected)
        {
        }
    }
}
