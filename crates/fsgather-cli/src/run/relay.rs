//! Passing on what ranks print: [`Relay`], one thread for all of them.
//!
//! A reader of our output that is slow slows the ranks down, as if they wrote to it themselves; it does
//! not keep signals from being heard, because only this thread waits for it.

use std::{
    io::{self, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use fsgather::{Rank, WorldSize};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::{Event, fold::Fold, last_words::LastWords, lines::Lines, screen::Screen};
use crate::{
    colour::Paint,
    output::{self, Stream},
};

/// How much is read at once.
const CHUNK: usize = 64 * 1024;

/// How often everything is read once more after the order to stop: enough for a pipe's usual capacity
/// several times over, and not endless if something that ranks have left behind goes on writing.
const LAST_ROUNDS: u32 = 16;

/// How long the relay is waited for until it has read what ranks have printed: it may wait for who reads our output.
const CATCH_UP: Duration = Duration::from_millis(200);

/// Something to relay.
#[derive(Debug)]
pub(super) struct OutputSource {
    fd: OwnedFd,
    stream: Stream,
    lines: Lines,
    speaker: Speaker,
    /// The rank whose standard error it is.
    errors_of: Option<Rank>,
}

/// Whose lines they are, as far as that matters for passing them on.
#[derive(Clone, Copy, Debug)]
enum Speaker {
    /// One whose lines are passed on as they come.
    Anybody,
    /// A rank whose lines are said together with the same ones of others.
    Rank(Rank),
    /// We.
    Ourselves,
}

impl OutputSource {
    /// A rank's output, where it goes, and how it is cut.
    pub(super) const fn new(fd: OwnedFd, stream: Stream, lines: Lines) -> Self {
        Self {
            fd,
            stream,
            lines,
            speaker: Speaker::Anybody,
            errors_of: None,
        }
    }

    /// A rank's standard error, passed on unchanged.
    pub(super) fn errors(fd: OwnedFd, rank: Rank) -> Self {
        Self {
            errors_of: Some(rank),
            ..Self::new(fd, Stream::Stderr, Lines::unchanged())
        }
    }

    /// What a rank says for people to read, on standard error: what several say is said once.
    pub(super) fn folded(fd: OwnedFd, rank: Rank) -> Self {
        Self {
            fd,
            stream: Stream::Stderr,
            lines: Lines::with_prefix(""),
            speaker: Speaker::Rank(rank),
            errors_of: Some(rank),
        }
    }
}

/// The relay of a run.
///
/// Our own lines go through it as well: they come between lines of the ranks, after what had been printed
/// before, and saying them never blocks.
#[derive(Debug)]
pub(super) struct Relay {
    voice: Option<UnixStream>,
    /// Where the relay is asked to read what is there, and where it says that it has.
    question: UnixStream,
    answer: Receiver<()>,
    last_words: Arc<Mutex<Vec<LastWords>>>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts relaying, for a verb that our own lines name; and drawing on a screen, if there is one.
    pub(super) fn start(
        verb: &str,
        world: WorldSize,
        sources: Vec<OutputSource>,
        screen: Option<Screen>,
        events: Sender<Event>,
    ) -> io::Result<Self> {
        let (voice, ear) = UnixStream::pair()?;
        voice.set_nonblocking(true)?;
        let ear = OutputSource {
            fd: ear.into(),
            stream: Stream::Stderr,
            lines: Lines::with_prefix(format!("fsgather {verb}: ")),
            speaker: Speaker::Ourselves,
            errors_of: None,
        };
        let (question, asked) = UnixStream::pair()?;
        question.set_nonblocking(true)?;
        let (answering, answer) = mpsc::channel();
        let last_words = Arc::new(Mutex::new(vec![LastWords::default(); world.count()]));
        let mut pump = Pump {
            sources,
            ear: Some(ear),
            asked: asked.into(),
            answering,
            last_words: Arc::clone(&last_words),
            broken: [false; 2],
            fold: Fold::new(world, Paint::of(Stream::Stderr)),
            screen,
            chunk: vec![0; CHUNK],
            out: Vec::new(),
            events,
        };
        let thread = thread::Builder::new()
            .name("relay".into())
            .spawn(move || pump.run())?;
        Ok(Self {
            voice: Some(voice),
            question,
            answer,
            last_words,
            thread: Some(thread),
        })
    }

    /// What each rank has said last on standard error, as far as it is read: all that ranks have said which have ended, but
    /// where whoever reads our output keeps the relay.
    pub(super) fn last_words(&mut self) -> Vec<LastWords> {
        // One that came too late for the question before.
        while self.answer.try_recv().is_ok() {}
        if self.question.write_all(b"?").is_ok() {
            let _ = self.answer.recv_timeout(CATCH_UP);
        }
        let last_words = self.last_words.lock();
        last_words.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says a line on standard error, after what ranks have printed until now.
    pub(super) fn say(&mut self, line: &str) {
        if let Some(voice) = &mut self.voice {
            // Our few lines fit into the socket even when standard error takes none of them.
            let _ = voice.write_all(format!("{line}\n").as_bytes());
        }
    }

    /// Tells the relay to deliver what is there and then to end, whether or not more could come.
    pub(super) fn stop(&mut self) {
        self.voice = None;
    }

    /// Waits until the relay has ended.
    pub(super) fn join(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // It cannot panic, and there would be nothing left to do about it.
            let _ = thread.join();
        }
    }
}

/// What the thread works with.
struct Pump {
    sources: Vec<OutputSource>,
    /// Where our own lines come from; its end is the order to stop.
    ear: Option<OutputSource>,
    /// Where we are asked to read what is there, and where that is answered.
    asked: OwnedFd,
    answering: Sender<()>,
    last_words: Arc<Mutex<Vec<LastWords>>>,
    /// Whether standard output and standard error take nothing any more.
    broken: [bool; 2],
    fold: Fold,
    /// As long as ranks may get on.
    screen: Option<Screen>,
    chunk: Vec<u8>,
    out: Vec<u8>,
    events: Sender<Event>,
}

impl Pump {
    fn run(&mut self) {
        let mut drained = false;
        loop {
            if self.sources.is_empty() && !drained {
                drained = true;
                self.screen = None;
                // Nobody can say the same any more.
                self.fold.finish(&mut self.out);
                self.deliver(Stream::Stderr);
                self.tell(Event::Drained);
            }
            self.fold.release(Instant::now(), &mut self.out);
            self.deliver(Stream::Stderr);
            if let Some(screen) = &mut self.screen {
                screen.draw(Instant::now());
            }
            let now = Instant::now();
            let drawn = self.screen.as_ref().map(|screen| screen.next(now));
            let next = self.fold.next(now).into_iter().chain(drawn).min();
            let timeout = next.and_then(|next| Timespec::try_from(next).ok());
            let ready = self.wait(timeout.as_ref());
            let is_asked = ready.get(self.sources.len()) == Some(&true);
            let spoken_to = ready.get(self.sources.len() + 1) == Some(&true);
            self.relay(&ready);
            if is_asked {
                self.answer();
            }
            // Last, so that what a rank has printed comes before what we say of it.
            if spoken_to && !self.listen() {
                break;
            }
        }
        self.screen = None;
        for _ in 0..LAST_ROUNDS {
            let ready = self.wait(Some(&Timespec::default()));
            let mut of_sources = ready.iter().take(self.sources.len());
            if !of_sources.any(|ready| *ready) {
                break;
            }
            self.relay(&ready);
        }
        for mut source in std::mem::take(&mut self.sources) {
            source.lines.finish(&mut self.out);
            self.pass_on(&source);
        }
        self.fold.finish(&mut self.out);
        self.deliver(Stream::Stderr);
        self.tell(Event::RelayEnded);
    }

    /// Waits until something can be read; returns which of the sources, then whether we are asked, and last whether the ear.
    fn wait(&self, timeout: Option<&Timespec>) -> Vec<bool> {
        let sources = self.sources.iter().map(|source| &source.fd);
        let ear = self.ear.iter().map(|ear| &ear.fd);
        let mut fds: Vec<PollFd<'_>> = sources
            .chain([&self.asked])
            .chain(ear)
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        // When waiting is interrupted, nothing is ready, and we wait again.
        let _ = poll(&mut fds, timeout);
        fds.iter().map(|fd| !fd.revents().is_empty()).collect()
    }

    /// Reads once from every source that is ready, and forgets those that have ended.
    fn relay(&mut self, ready: &[bool]) {
        let mut kept = Vec::with_capacity(self.sources.len());
        for (mut source, ready) in std::mem::take(&mut self.sources).into_iter().zip(ready) {
            let open = !ready || self.read(&mut source);
            if open {
                kept.push(source);
            }
        }
        self.sources = kept;
    }

    /// Reads our own lines; false when there will be no more.
    fn listen(&mut self) -> bool {
        let Some(mut ear) = self.ear.take() else {
            return false;
        };
        let open = self.read(&mut ear);
        if open {
            self.ear = Some(ear);
        }
        open
    }

    /// Says that what could be read when we were asked is read.
    fn answer(&mut self) {
        let _ = rustix::io::read(&self.asked, self.chunk.as_mut_slice());
        // Who has asked may not have waited.
        let _ = self.answering.send(());
    }

    /// Reads once and delivers what is complete; false at the end.
    fn read(&mut self, source: &mut OutputSource) -> bool {
        let count = match rustix::io::read(&source.fd, self.chunk.as_mut_slice()) {
            Ok(count) => count,
            Err(Errno::INTR | Errno::AGAIN) => return true,
            // A pipe cannot fail in another way; if it does, nothing more will come from it.
            Err(_) => 0,
        };
        if count == 0 {
            source.lines.finish(&mut self.out);
        } else {
            source.lines.push(&self.chunk[..count], &mut self.out);
        }
        self.pass_on(source);
        count > 0
    }

    /// Writes the whole lines that have been collected, or has them wait for their like.
    fn pass_on(&mut self, source: &OutputSource) {
        let now = Instant::now();
        if let Some(rank) = source.errors_of {
            let mut last_words = self
                .last_words
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if let Some(its) = last_words.get_mut(rank.index()) {
                its.hear(&self.out, now);
            }
        }
        match source.speaker {
            Speaker::Anybody => return self.deliver(source.stream),
            Speaker::Rank(rank) => {
                for line in self.out.split_inclusive(|byte| *byte == b'\n') {
                    self.fold.take(rank, line, now);
                }
            }
            Speaker::Ourselves => self.fold.take_own(&self.out, now),
        }
        self.out.clear();
    }

    /// Writes what has been collected; a stream that takes nothing is told of once, then left alone.
    fn deliver(&mut self, stream: Stream) {
        if self.out.is_empty() {
            return;
        }
        let broken = &mut self.broken[usize::from(stream == Stream::Stderr)];
        let write = || output::write(stream, &self.out);
        let written = || match &self.screen {
            Some(screen) => screen.aside(write),
            None => write(),
        };
        if !*broken && let Err(error) = written() {
            *broken = true;
            // Without standard error a job still has its data.
            if stream == Stream::Stdout {
                self.tell(Event::OutputFailed(error.kind()));
            }
        }
        self.out.clear();
    }

    fn tell(&self, event: Event) {
        // Nobody hears it when the user did not want to wait for us.
        let _ = self.events.send(event);
    }
}
