//! Shows the progress of long work: a [`bar`], or a [`Line`] that changes, on a terminal; elsewhere what one rank says after a
//! second and now and then ([`Received`]).

use std::{
    io::{self, IsTerminal, Write},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use fsgather::{Error, Rank};
use fsgather_config::{
    environment::Variables,
    settings::{Settings, ShowProgress},
};
use fsgather_core::{StandardError, lock, plain_text};
use fsgather_report::progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{
    log,
    picture::{Moved, Picture, ShownCall, Stage, Standing},
};

/// When the first line is said where there is no terminal, and how often after that.
const FIRST: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_secs(30);

/// How often a line on a terminal is drawn.
pub(crate) const REDRAW: Duration = Duration::from_millis(200);

/// For how long bytes are counted for the rate that a terminal shows.
const RECENTLY: Duration = Duration::from_secs(3);

/// A bar of `length` steps on standard error. It draws nothing where that is no terminal, or where
/// `FSGATHER_PROGRESS=off` is set.
///
/// # Errors
///
/// [`Error::Config`] for a variable that cannot be understood.
pub(crate) fn bar(length: u64, template: &str) -> Result<ProgressBar, Error> {
    let settings = Settings::resolve(&Variables::of_process())?;
    let target = if is_wanted(&settings) {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    Ok(ProgressBar::with_draw_target(Some(length), target).with_style(style(template)))
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn is_wanted(settings: &Settings) -> bool {
    !log::is_quiet() && settings.progress.value == ShowProgress::Auto
}

/// Whether standard error is a terminal on which lines can change.
fn can_draw() -> bool {
    io::stderr().is_terminal() && Variables::of_process().get("TERM") != Some("dumb")
}

/// One line on a terminal that changes.
#[derive(Debug)]
pub(crate) struct Line(ProgressBar);

impl Line {
    /// One on standard error; none where that is no terminal, or where nothing is to be shown.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a variable that cannot be understood.
    pub(crate) fn begin() -> Result<Option<Self>, Error> {
        let settings = Settings::resolve(&Variables::of_process())?;
        Ok((is_wanted(&settings) && can_draw()).then(Self::new))
    }

    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        Self(bar.with_style(style("{wide_msg}")))
    }

    /// Shows a text, cut to the width of the terminal; nothing takes the line away.
    pub(crate) fn show(&self, text: Option<String>) {
        match text {
            Some(text) => {
                if self.0.is_finished() {
                    self.0.reset();
                }
                self.0.set_message(text);
                self.0.tick();
            }
            None if self.0.is_finished() => {}
            None => self.0.finish_and_clear(),
        }
    }

    /// Takes the line away, does something that may write to the terminal, and shows it again.
    pub(crate) fn aside<R>(&self, act: impl FnOnce() -> R) -> R {
        self.0.suspend(act)
    }
}

/// What one rank has handed in and received so far: a line on a terminal, elsewhere one after a second and every 30
/// seconds. Under a launcher that shows all ranks together nothing.
pub(crate) struct Received {
    /// Whether whoever has started this rank is told what it takes: the call itself is over.
    hands_on: bool,
    tally: Arc<Mutex<Option<Moved>>>,
    showing: Option<Showing>,
}

impl Received {
    /// Begins to show how far this rank has come; it says lines if it is one that `reports`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a variable that cannot be understood.
    pub(crate) fn begin(reports: impl FnOnce(Rank) -> bool) -> Result<Self, Error> {
        let settings = Settings::resolve(&Variables::of_process())?;
        let rank = settings.detection.rank;
        let tally: Arc<Mutex<Option<Moved>>> = Arc::default();
        let showing = if !is_wanted(&settings) || progress::is_shown_by_launcher() {
            None
        } else if can_draw() {
            let line = Line::new();
            let pauses = [REDRAW, REDRAW];
            let show = move |picture: &Picture, now| {
                line.show(picture.line(now));
                true
            };
            Some(Showing::start(pauses, RECENTLY, &tally, show))
        } else if reports(rank) {
            let say = move |picture: &Picture, now| {
                let line = picture.line(now);
                if let Some(line) = &line {
                    let line = format!("fsgather: rank {rank}: {line}\n");
                    // Others wait for this rank, which must not wait for whoever reads that.
                    let _ = StandardError.write_all(plain_text(&line).as_bytes());
                }
                line.is_some()
            };
            Some(Showing::start([FIRST, EVERY], EVERY, &tally, say))
        } else {
            None
        };
        Ok(Self {
            hands_on: false,
            tally,
            showing,
        })
    }

    /// Notes that all ranks have handed in their parts, of so many bytes together, and that these come from now on.
    pub(crate) fn expect(&mut self, bytes: u64) {
        *lock(&self.tally) = Some(Moved {
            done: 0,
            total: Some(bytes),
        });
    }

    /// Notes that all that [is expected](Self::expect) is here, and is only handed on.
    pub(crate) fn hand_on(&mut self) {
        self.hands_on = true;
    }

    /// Notes that so many bytes have come.
    pub(crate) fn take(&self, bytes: u64) {
        let moved = {
            let mut tally = lock(&self.tally);
            let moved = tally.get_or_insert_default();
            moved.done += bytes;
            *moved
        };
        if let (true, Some(total)) = (self.hands_on, moved.total) {
            progress::deliver(moved.done, total);
        }
    }

    /// All that has come.
    pub(crate) fn bytes(&self) -> u64 {
        lock(&self.tally).map_or(0, |moved| moved.done)
    }

    /// Takes the line away.
    pub(crate) fn finish(self) {
        drop(self.showing);
    }
}

/// How long a terminal may take to have the line taken away.
const LAST_LINE: Duration = Duration::from_millis(500);

/// A thread that shows how far this process has come, until this is dropped.
struct Showing {
    stop: Option<mpsc::Sender<()>>,
    /// Its end is that of the thread.
    shown: mpsc::Receiver<()>,
}

impl Showing {
    /// It shows something after the first of these times, then again and again after the other; `show` says whether there
    /// was something to be shown.
    fn start(
        [first, every]: [Duration; 2],
        window: Duration,
        tally: &Arc<Mutex<Option<Moved>>>,
        show: impl Fn(&Picture, Instant) -> bool + Send + 'static,
    ) -> Self {
        progress::watch();
        let (stop, stopped) = mpsc::channel();
        let (showing, shown) = mpsc::channel::<()>();
        let tally = Arc::clone(tally);
        let work = move || {
            let _showing = showing;
            let mut picture = Picture::of_one(window);
            let mut due = Instant::now() + first;
            picture.look(Instant::now(), [standing(&tally)]);
            // It looks more often than it speaks: what lasts has begun when it is first seen.
            let pause = REDRAW.min(first).min(every);
            while stopped.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
                let now = Instant::now();
                picture.look(now, [standing(&tally)]);
                if first > REDRAW && picture.is_of_meeting() {
                    // Where lines stay, rank 0 warns of a meeting that takes long, and that is enough.
                    due = now + first;
                } else if now >= due && show(&picture, now) {
                    due = now + every;
                }
            }
        };
        // Without a thread nothing is shown, which is no reason to fail.
        let _ = thread::Builder::new()
            .name("fsgather-progress".into())
            .spawn(work);
        Self {
            stop: Some(stop),
            shown,
        }
    }
}

impl Drop for Showing {
    fn drop(&mut self) {
        self.stop = None;
        // It takes its line away before anything else is written, unless nobody takes that.
        let _ = self.shown.recv_timeout(LAST_LINE);
    }
}

/// What this rank does: what the library says of it, until the command itself hands on what has come.
fn standing(tally: &Mutex<Option<Moved>>) -> Option<Standing> {
    let taken = *lock(tally);
    match taken {
        Some(moved) => Some(Standing {
            stage: Stage::Reading,
            call: Some(ShownCall {
                lane: 0,
                number: u64::MAX,
                name: String::new(),
                ranks: 1,
                moved,
            }),
        }),
        None => progress::latest().map(Standing::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_again_and_again_until_the_work_is_done() {
        let tally = Arc::new(Mutex::new(Some(Moved {
            done: 10 << 20,
            total: Some(40 << 20),
        })));
        let (send, said) = mpsc::channel();
        let pauses = [Duration::from_millis(1); 2];
        let showing = Showing::start(pauses, EVERY, &tally, move |picture, now| {
            let line = picture.line(now);
            let is_said = line.is_some();
            let _ = send.send(line);
            is_said
        });
        let next = || said.recv_timeout(Duration::from_mins(1)).unwrap();
        let first = std::iter::repeat_with(next).flatten().next().unwrap();
        assert!(
            first.starts_with("received 10/40 MiB, 25 %, 0 bytes/s"),
            "{first}"
        );
        lock(&tally).as_mut().unwrap().done = 30 << 20;
        let second = std::iter::repeat_with(next).flatten();
        let second = { second }
            .find(|line| line.starts_with("received 30/40 MiB, 75 %"))
            .unwrap();
        assert!(second.ends_with(" left"), "{second}");
        drop(showing);
        // The thread has ended, and with it the only sender.
        while said.recv_timeout(Duration::from_mins(1)) != Err(mpsc::RecvTimeoutError::Disconnected)
        {
        }
    }
}
