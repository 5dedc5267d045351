//! Forwards the output of the ranks: [`Relay`], one thread for all of them.
//!
//! A slow reader of our output slows the ranks down, as if they wrote to it themselves. Signals are still handled, because
//! only this thread waits for the reader.

use std::{
    io::{self, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::mpsc::Sender,
    thread::{self, JoinHandle},
    time::Instant,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::{Event, lines::Lines, progress::RunProgress};
use crate::output::{self, Stream};

/// How much is read at once.
const READ_BYTES: usize = 64 * 1024;

/// How often everything is read once more after the order to stop: enough for the usual capacity of a pipe several times
/// over, and finite if a process that ranks left behind continues to write.
const MAX_LAST_ROUNDS: u32 = 16;

/// One stream of one rank.
#[derive(Debug)]
pub(super) struct OutputSource {
    pub(super) fd: OwnedFd,
    /// Where it goes.
    pub(super) stream: Stream,
    /// How it is cut into lines.
    pub(super) lines: Lines,
}

/// The relay of a run.
///
/// Our own lines go through it too. They appear after what ranks have printed before, and saying them never blocks.
#[derive(Debug)]
pub(super) struct Relay {
    own_lines: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts to forward `sources`, and to draw the progress line if there is one. Our own lines name `verb`.
    pub(super) fn start(
        verb: &str,
        sources: Vec<OutputSource>,
        progress: Option<RunProgress>,
        events: Sender<Event>,
    ) -> io::Result<Self> {
        let (own_lines, read_end) = UnixStream::pair()?;
        own_lines.set_nonblocking(true)?;
        let mut pump = Pump {
            sources,
            own_lines: Some(OutputSource {
                fd: read_end.into(),
                stream: Stream::Stderr,
                lines: Lines::with_prefix(format!("fsgather {verb}: ")),
            }),
            progress,
            is_broken: [false; 2],
            chunk: vec![0; READ_BYTES],
            out: Vec::new(),
            events,
        };
        let thread = thread::Builder::new()
            .name("relay".into())
            .spawn(move || pump.run())?;
        Ok(Self {
            own_lines: Some(own_lines),
            thread: Some(thread),
        })
    }

    /// Says a line on standard error, after what ranks have printed until now.
    pub(super) fn say(&mut self, line: &str) {
        if let Some(own_lines) = &mut self.own_lines {
            // Our few lines fit into the socket even if standard error takes none of them.
            let _ = own_lines.write_all(format!("{line}\n").as_bytes());
        }
    }

    /// Orders the relay to deliver what can be read now, and then to end.
    pub(super) fn stop(&mut self) {
        self.own_lines = None;
    }

    /// Waits until the relay has ended.
    pub(super) fn join(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // It cannot panic.
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Pump {
    sources: Vec<OutputSource>,
    /// Our own lines; their end is the order to stop.
    own_lines: Option<OutputSource>,
    /// Shown until all output of the ranks is closed.
    progress: Option<RunProgress>,
    /// Whether standard output and standard error have failed.
    is_broken: [bool; 2],
    chunk: Vec<u8>,
    out: Vec<u8>,
    events: Sender<Event>,
}

impl Pump {
    fn run(&mut self) {
        let mut is_drained = false;
        while self.own_lines.is_some() {
            if self.sources.is_empty() && !is_drained {
                is_drained = true;
                self.progress = None;
                self.send(Event::Drained);
            }
            let progress = self.progress.as_mut();
            let timeout = progress.map(|progress| progress.draw(Instant::now()));
            self.forward(timeout.and_then(|timeout| Timespec::try_from(timeout).ok()));
        }
        self.progress = None;
        for _ in 0..MAX_LAST_ROUNDS {
            if !self.forward(Some(Timespec::default())) {
                break;
            }
        }
        for mut source in std::mem::take(&mut self.sources) {
            source.lines.finish(&mut self.out);
            self.deliver(source.stream);
        }
        self.send(Event::RelayEnded);
    }

    /// Waits until something can be read, and reads once from each source that is ready. Returns whether one was.
    fn forward(&mut self, timeout: Option<Timespec>) -> bool {
        let sources = self.sources.iter().chain(&self.own_lines);
        let mut fds: Vec<PollFd<'_>> = sources
            .map(|source| PollFd::new(&source.fd, PollFlags::IN))
            .collect();
        // After an interruption nothing is ready, and the caller waits again.
        let _ = poll(&mut fds, timeout.as_ref());
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut is_ready = ready.iter().copied();
        for mut source in std::mem::take(&mut self.sources) {
            if !is_ready.next().unwrap_or(false) || self.read(&mut source) {
                self.sources.push(source);
            }
        }
        // Last, so that what a rank has printed comes before what we say about it.
        if is_ready.next().unwrap_or(false) {
            let own_lines = self.own_lines.take();
            self.own_lines = own_lines.and_then(|mut own| self.read(&mut own).then_some(own));
        }
        ready.contains(&true)
    }

    /// Reads once and delivers complete lines. Returns false at the end.
    fn read(&mut self, source: &mut OutputSource) -> bool {
        let count = match rustix::io::read(&source.fd, self.chunk.as_mut_slice()) {
            Ok(count) => count,
            Err(Errno::INTR | Errno::AGAIN) => return true,
            // A pipe cannot fail in another way; if it does, it gives nothing more.
            Err(_) => 0,
        };
        if count == 0 {
            source.lines.finish(&mut self.out);
        } else {
            source.lines.push(&self.chunk[..count], &mut self.out);
        }
        self.deliver(source.stream);
        count > 0
    }

    /// Writes the collected lines. A stream that fails is reported once, and left alone from then on.
    fn deliver(&mut self, stream: Stream) {
        let is_broken = &mut self.is_broken[usize::from(stream == Stream::Stderr)];
        if !self.out.is_empty() && !*is_broken {
            let write = || output::write(stream, &self.out);
            let written = match &self.progress {
                Some(progress) => progress.suspend(write),
                None => write(),
            };
            if let Err(error) = written {
                *is_broken = true;
                // Without standard error a job still has its data.
                if stream == Stream::Stdout {
                    self.send(Event::OutputFailed(error.kind()));
                }
            }
        }
        self.out.clear();
    }

    fn send(&self, event: Event) {
        // Nothing receives it if the user did not want to wait for the relay.
        let _ = self.events.send(event);
    }
}
