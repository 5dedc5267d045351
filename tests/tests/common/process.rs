//! One process, watched by threads that report its output and its end.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    process::{ChildStdin, Command, Stdio},
    sync::mpsc::Sender,
    thread,
    time::Instant,
};

use fsgather_testkit::process;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// An event of a process, by its number.
pub(crate) type Event = (usize, What);

pub(crate) enum What {
    Line(Line),
    /// The end of a stream.
    Silence,
    /// Its exit code or 128 + its signal.
    Ended(i32, Instant),
}

/// One line that a process has written.
pub(crate) struct Line {
    /// 1 for standard output, 2 for standard error.
    pub(crate) stream: u8,
    pub(crate) text: String,
    /// The time when it was read.
    pub(crate) at: Instant,
}

pub(crate) struct Process {
    pub(crate) pid: u32,
    handle: OwnedFd,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) lines: Vec<Line>,
    /// True for each line that has been waited for.
    seen: Vec<bool>,
    pub(crate) silent_streams: u8,
    pub(crate) ended: Option<(i32, Instant)>,
}

impl Process {
    pub(crate) fn start(index: usize, command: &mut Command, events: &Sender<Event>) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = process::spawn(command)
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let pid = child.id();
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let handle = pidfd_open(raw.expect("a pid"), PidfdFlags::empty()).expect("our child");
        let stdin = child.stdin.take();
        let stdout: Box<dyn Read + Send> = Box::new(child.stdout.take().expect("a pipe"));
        let stderr: Box<dyn Read + Send> = Box::new(child.stderr.take().expect("a pipe"));
        for (stream, source) in [(1, stdout), (2, stderr)] {
            let events = events.clone();
            thread::spawn(move || {
                for line in BufReader::new(source).split(b'\n') {
                    let Ok(line) = line else { break };
                    let line = Line {
                        stream,
                        text: String::from_utf8_lossy(&line).into_owned(),
                        at: Instant::now(),
                    };
                    let _ = events.send((index, What::Line(line)));
                }
                let _ = events.send((index, What::Silence));
            });
        }
        let events = events.clone();
        thread::spawn(move || {
            let status = child.wait().expect("our child");
            let at = Instant::now();
            let by_signal = status.signal().map(|signal| 128 + signal);
            let code = status.code().or(by_signal).expect("an end");
            let _ = events.send((index, What::Ended(code, at)));
        });
        Self {
            pid,
            handle,
            stdin,
            lines: Vec::new(),
            seen: Vec::new(),
            silent_streams: 0,
            ended: None,
        }
    }

    /// The first line that fits and was not returned before.
    pub(crate) fn find(&mut self, fits: impl Fn(&str) -> bool) -> Option<String> {
        self.seen.resize(self.lines.len(), false);
        let lines = self.lines.iter().zip(&mut self.seen);
        for (line, seen) in lines {
            if !*seen && fits(&line.text) {
                *seen = true;
                return Some(line.text.clone());
            }
        }
        None
    }

    /// Returns true if all its output has been received.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent_streams == 2
    }

    pub(crate) fn end(&self) -> Option<super::End> {
        let (code, at) = self.ended.filter(|_| self.is_silent())?;
        let of = |wanted| {
            let lines = self.lines.iter().filter(|line| line.stream == wanted);
            lines.map(|line| line.text.clone()).collect()
        };
        Some(super::End {
            code,
            at,
            stdout: of(1),
            stderr: of(2),
        })
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // A process that has just ended needs none.
        let _ = pidfd_send_signal(&self.handle, signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Returns true if every thread of a process sleeps, is stopped or has ended.
pub(crate) fn sleeps(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    threads.into_iter().flatten().flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name, which may have any characters in it.
        let state = stat.rsplit_once(") ").map_or("", |(_, state)| state);
        stat.is_empty() || state.starts_with(['S', 'T', 't', 'Z', 'X'])
    })
}
