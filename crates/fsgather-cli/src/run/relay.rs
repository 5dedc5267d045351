//! Forwards the output of the ranks: [`Relay`], one thread for standard output and one for standard error.
//!
//! A slow reader of our output slows the ranks down, as if they wrote to it themselves. It delays nothing else: signals are
//! still handled, and a reader of standard output that has stopped delays no line on standard error.

use std::{
    io::{self, IsTerminal, Write},
    net::Shutdown,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::Sender,
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use fsgather_core::sys::explain_denial;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::{
    event::Event,
    lines::Lines,
    progress::{ProgressLine, RunProgress},
};
use crate::output::{self, Stream};

/// Maximum number of bytes of one read.
const READ_BYTES: usize = 64 * 1024;

/// Number of times that everything is read once more after the order to stop: enough for the usual capacity of a pipe several times
/// over, and finite if a process that ranks left behind continues to write.
const MAX_LAST_ROUNDS: u32 = 16;

/// One stream of one rank.
#[derive(Debug)]
pub(super) struct OutputSource {
    pub(super) fd: OwnedFd,
    /// The destination of its output.
    pub(super) stream: Stream,
    /// The line splitter for its output.
    pub(super) lines: Lines,
}

/// The relay of a run.
///
/// Our own lines go through it too. They appear after the lines that ranks have printed on standard error before, and printing them never
/// blocks.
#[derive(Debug)]
pub(super) struct Relay {
    own_lines: UnixStream,
    /// Its end is the order to stop.
    order: Option<UnixStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Starts to forward `sources`, and to draw the progress line if there is one. Our own lines name `verb`.
    pub(super) fn start(
        verb: &str,
        sources: Vec<OutputSource>,
        progress: Option<RunProgress>,
        events: &Sender<Event>,
    ) -> io::Result<Self> {
        let (own_lines, own_lines_end) = UnixStream::pair()?;
        own_lines.set_nonblocking(true)?;
        let (order, order_end) = UnixStream::pair()?;
        let line = progress.as_ref().map(RunProgress::line);
        let open_pumps = Arc::new(AtomicUsize::new(2));
        let is_stderr = |source: &OutputSource| source.stream == Stream::Stderr;
        let (errors, data) = sources.into_iter().partition(is_stderr);
        let pump = |stream, sources: Vec<OutputSource>, control: UnixStream, is_terminal| Pump {
            stream,
            sources,
            control: Some(OutputSource {
                fd: control.into(),
                stream,
                lines: Lines::with_prefix(format!("fsgather {verb}: ")),
            }),
            line_owner: None,
            progress: None,
            line: line.clone().filter(|_| is_terminal),
            is_broken: false,
            chunk: vec![0; READ_BYTES],
            out: Vec::new(),
            open_pumps: Arc::clone(&open_pumps),
            events: events.clone(),
        };
        let mut stdout = pump(Stream::Stdout, data, order_end, io::stdout().is_terminal());
        let mut stderr = pump(
            Stream::Stderr,
            errors,
            own_lines_end,
            io::stderr().is_terminal(),
        );
        stderr.progress = progress;
        // Standard error ends last, so that lines can be printed while a reader of standard output delays the end.
        let last = own_lines.try_clone()?;
        let stdout = thread::Builder::new()
            .name("stdout".into())
            .spawn(move || {
                stdout.run();
                let _ = last.shutdown(Shutdown::Write);
            })?;
        let stderr = thread::Builder::new()
            .name("stderr".into())
            .spawn(move || {
                stderr.run();
                stderr.send(Event::RelayEnded);
            })?;
        Ok(Self {
            own_lines,
            order: Some(order),
            threads: vec![stdout, stderr],
        })
    }

    /// Prints a line on standard error, after the output of the ranks until now.
    pub(super) fn say(&mut self, line: &str) {
        // Our few lines fit into the socket even if standard error takes none of them.
        let _ = self.own_lines.write_all(format!("{line}\n").as_bytes());
    }

    /// Orders the relay to deliver what can be read now, and then to end.
    pub(super) fn stop(&mut self) {
        self.order = None;
    }

    /// Waits until the relay has ended.
    pub(super) fn join(&mut self) {
        self.stop();
        for thread in self.threads.drain(..) {
            // It cannot panic.
            let _ = thread.join();
        }
    }
}

/// The state of a thread, which writes to one of our streams.
struct Pump {
    stream: Stream,
    sources: Vec<OutputSource>,
    /// Its end is the order to stop; our own lines come from it.
    control: Option<OutputSource>,
    /// The descriptor of the source that has begun a line and not ended it.
    line_owner: Option<RawFd>,
    /// Drawn until all sources are closed.
    progress: Option<RunProgress>,
    /// The progress line, if our stream is a terminal that shows it.
    line: Option<ProgressLine>,
    /// True if our stream has failed.
    is_broken: bool,
    chunk: Vec<u8>,
    out: Vec<u8>,
    /// The number of pumps that have open sources.
    open_pumps: Arc<AtomicUsize>,
    events: Sender<Event>,
}

impl Pump {
    fn run(&mut self) {
        let mut is_drained = false;
        while self.control.is_some() {
            if self.sources.is_empty() && !is_drained {
                is_drained = true;
                if self.open_pumps.fetch_sub(1, Ordering::AcqRel) == 1 {
                    self.send(Event::Drained);
                }
            }
            let now = Instant::now();
            let drawn = self.progress.as_mut().map(|progress| progress.draw(now));
            let flushed = self
                .sources
                .iter()
                .filter_map(|source| source.lines.flush_at());
            let flushed = flushed.min().map(|at| at.saturating_duration_since(now));
            let timeout = drawn.into_iter().chain(flushed).min();
            self.forward(timeout.and_then(|timeout| Timespec::try_from(timeout).ok()));
        }
        self.progress = None;
        for _ in 0..MAX_LAST_ROUNDS {
            if !self.forward(Some(Timespec::default())) {
                break;
            }
        }
        for mut source in std::mem::take(&mut self.sources) {
            self.pass_on(&mut source, Lines::finish);
        }
    }

    /// Waits until something can be read, and reads once from each source that is ready. Returns whether one was.
    fn forward(&mut self, timeout: Option<Timespec>) -> bool {
        let sources = self.sources.iter().chain(&self.control);
        let mut fds: Vec<PollFd<'_>> = sources
            .map(|source| PollFd::new(&source.fd, PollFlags::IN))
            .collect();
        // After an interruption nothing is ready, and the caller waits again.
        if let Err(errno) = poll(&mut fds, timeout.as_ref())
            && errno != Errno::INTR
        {
            drop(fds);
            self.give_up(errno);
            return false;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut is_ready = ready.iter().copied();
        let now = Instant::now();
        for mut source in std::mem::take(&mut self.sources) {
            if !is_ready.next().unwrap_or(false) || self.read(&mut source) {
                if source.lines.flush_at().is_some_and(|at| at <= now) {
                    self.pass_on(&mut source, Lines::flush);
                }
                self.sources.push(source);
            }
        }
        // Last, so that the output of a rank comes before our lines about it.
        if is_ready.next().unwrap_or(false) {
            let control = self.control.take();
            self.control = control.and_then(|mut own| self.read(&mut own).then_some(own));
        }
        ready.contains(&true)
    }

    /// Ends this pump, whose sources cannot be waited for.
    fn give_up(&mut self, errno: Errno) {
        let why = explain_denial(&errno.into(), "ppoll");
        self.out
            .extend_from_slice(format!("fsgather: cannot relay output: {why}\n").as_bytes());
        self.write();
        self.out.clear();
        self.sources.clear();
        self.control = None;
    }

    /// Reads once and delivers complete lines. Returns false at the end.
    fn read(&mut self, source: &mut OutputSource) -> bool {
        let mut chunk = std::mem::take(&mut self.chunk);
        let count = match rustix::io::read(&source.fd, chunk.as_mut_slice()) {
            Err(Errno::INTR | Errno::AGAIN) => None,
            // A pipe cannot fail in another way; if it does, it gives nothing more.
            read => Some(read.unwrap_or(0)),
        };
        match count {
            None => {}
            Some(0) => self.pass_on(source, Lines::finish),
            Some(count) => {
                let now = Instant::now();
                self.pass_on(source, |lines, out| lines.push(&chunk[..count], now, out));
            }
        }
        self.chunk = chunk;
        count != Some(0)
    }

    /// Writes what `take` takes from a source. A stream that fails is reported once, and left alone from then on.
    fn pass_on(&mut self, source: &mut OutputSource, take: impl FnOnce(&mut Lines, &mut Vec<u8>)) {
        let id = Some(source.fd.as_raw_fd());
        if self.line_owner.is_some() && self.line_owner != id {
            self.out.push(b'\n');
        }
        if self.line_owner != id {
            source.lines.restart();
        }
        let before = self.out.len();
        take(&mut source.lines, &mut self.out);
        if self.out.len() > before {
            self.line_owner = id.filter(|_| source.lines.is_in_line());
            self.write();
        }
        self.out.clear();
    }

    fn write(&mut self) {
        if self.is_broken {
            return;
        }
        let write = || output::write(self.stream, &self.out);
        let written = match &self.line {
            Some(line) => line.write_around(self.stream, self.line_owner.is_some(), write),
            None => write(),
        };
        if let Err(error) = written {
            self.is_broken = true;
            // Without standard error, a job still has its data.
            if self.stream == Stream::Stdout {
                self.send(Event::OutputFailed(error));
            }
        }
    }

    fn send(&self, event: Event) {
        // Nothing receives it if the user did not want to wait for the relay.
        let _ = self.events.send(event);
    }
}
