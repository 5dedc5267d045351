//! A real `fsgather` process whose output and end can be waited for.
#![allow(
    dead_code,
    reason = "every test program uses another part of this module"
)]

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    os::fd::OwnedFd,
    process::{Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Instant,
};

use fsgather_testkit::process::{self, Started, TIME_LIMIT};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};

/// One line of a stream (1 or 2), as bytes without the line break.
type Line = (u8, Vec<u8>);

/// A running command.
pub(crate) struct Running {
    child: Started,
    lines: Receiver<Line>,
    seen: Vec<Line>,
    waited_for: BTreeSet<usize>,
}

/// The result of a command.
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Finished {
    /// Standard output as lines of text.
    pub(crate) fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.stdout.clone()).expect("text");
        text.lines().map(str::to_owned).collect()
    }

    /// The output of one rank, without the prefix `[rank] `.
    pub(crate) fn lines_of(&self, rank: u32) -> Vec<String> {
        let prefix = format!("[{rank}] ");
        self.lines()
            .iter()
            .filter_map(|line| line.strip_prefix(&prefix).map(str::to_owned))
            .collect()
    }
}

/// The path of the command, which may have spaces. Scripts of tests find it as `"$TOOL"`.
pub(crate) const TOOL: &str = env!("CARGO_BIN_EXE_fsgather");

/// `fsgather`, with none of the variables that choose a directory and no input.
pub(crate) fn fsgather(arguments: &[&str]) -> Command {
    let mut command = Command::new(TOOL);
    command
        .args(arguments)
        .env("TOOL", TOOL)
        .env_remove("FSGATHER_DIR")
        .env_remove("EXP_DIR")
        .stdin(Stdio::null());
    command
}

/// `fsgather run -n RANKS OPTIONS -- sh -c SCRIPT`, gathering in the temporary directory.
pub(crate) fn run_script(ranks: u32, options: &[&str], script: &str) -> Command {
    let mut command = fsgather(&["run", "-n", &ranks.to_string(), "--dir"]);
    command.arg(std::env::temp_dir());
    command.args(options).args(["--", "sh", "-c", script]);
    command
}

/// A command of the shell on a terminal of this width, without the variables that choose a directory.
pub(crate) fn on_terminal(columns: u32, command: &str) -> Command {
    let script = format!("stty rows 24 cols {columns}; {command}");
    let mut terminal = Command::new("script");
    terminal
        .args(["-qefc", &script, "/dev/null"])
        .env("TOOL", TOOL)
        .env_remove("FSGATHER_DIR")
        .env_remove("EXP_DIR")
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null());
    terminal
}

/// Reads the next line without its terminator: terminals also use a carriage return, to draw a line again.
fn next_line(source: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    loop {
        let bytes = source.fill_buf().expect("read");
        if bytes.is_empty() {
            return (!line.is_empty()).then_some(line);
        }
        let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        line.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
        let read = end.map_or(bytes.len(), |end| end + 1);
        source.consume(read);
        if end.is_some() {
            return Some(line);
        }
    }
}

/// Starts a command on a terminal and reads its drawings.
pub(crate) fn start_drawing(command: &mut Command) -> Running {
    start_reading(command, |fd, send| {
        let mut source = BufReader::new(fd);
        while let Some(line) = next_line(&mut source) {
            if send(line).is_err() {
                break;
            }
        }
    })
}

/// Starts a command and reads its output.
pub(crate) fn start(command: &mut Command) -> Running {
    start_reading(command, |fd, send| {
        for line in BufReader::new(fd).split(b'\n') {
            if send(line.expect("read")).is_err() {
                break;
            }
        }
    })
}

type Send<'a> = &'a dyn Fn(Vec<u8>) -> Result<(), mpsc::SendError<Line>>;

fn start_reading(command: &mut Command, read: fn(fs::File, Send<'_>)) -> Running {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = process::spawn(command).expect("start");
    let (send, lines) = mpsc::channel();
    let sources: [(u8, OwnedFd); 2] = [
        (1, child.stdout.take().expect("stdout").into()),
        (2, child.stderr.take().expect("stderr").into()),
    ];
    for (stream, fd) in sources {
        let send = send.clone();
        thread::spawn(move || {
            let send = |line| send.send((stream, line));
            read(fs::File::from(fd), &send);
        });
    }
    Running {
        child,
        lines,
        seen: Vec::new(),
        waited_for: BTreeSet::new(),
    }
}

/// Runs a command to its end.
pub(crate) fn finish(command: &mut Command) -> Finished {
    start(command).finish()
}

impl Running {
    /// The first line on either stream that contains a text and was not returned before.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let deadline = Instant::now() + TIME_LIMIT;
        let mut next = 0;
        loop {
            while let Some(line) = self.seen.get(next) {
                let found = String::from_utf8_lossy(&line.1).into_owned();
                if found.contains(text) && self.waited_for.insert(next) {
                    return found;
                }
                next += 1;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                self.child.kill().ok();
                panic!("`{text}` did not come; seen: {}", self.transcript());
            };
            self.seen.push(line);
        }
    }

    /// Ends the input of the command, if it was given a pipe.
    pub(crate) fn close_input(&mut self) {
        self.child.stdin = None;
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(pid(self.child.id()), signal).expect("signal");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end.
    pub(crate) fn finish(mut self) -> Finished {
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.seen.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    self.child.kill().ok();
                    panic!("no end; seen: {}", self.transcript());
                }
            }
        }
        let code = self.child.wait().expect("wait").code();
        let stream = |wanted: u8| {
            let lines = self.seen.iter().filter(|(stream, _)| *stream == wanted);
            lines
                .flat_map(|(_, line)| [line.as_slice(), b"\n"].concat())
                .collect::<Vec<u8>>()
        };
        Finished {
            code,
            stdout: stream(1),
            stderr: String::from_utf8_lossy(&stream(2)).into_owned(),
        }
    }

    fn transcript(&self) -> String {
        let lines = self.seen.iter().map(|(stream, line)| {
            let text = String::from_utf8_lossy(line);
            format!("{stream}: {text}")
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// The pids of a process's children, in the order in which they were started.
pub(crate) fn children_of(pid: u32) -> Vec<String> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let children = fs::read_to_string(path).expect("a running process");
    children.split_whitespace().map(str::to_owned).collect()
}

/// Returns true if a child of `run` is not a rank, but the guard that ends the ranks if `run` is killed.
pub(crate) fn is_guard(pid: &str) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.ends_with(b"\0guard-run\0")
}

pub(crate) fn pid(raw: u32) -> Pid {
    Pid::from_raw(raw.try_into().expect("pid")).expect("pid")
}

/// A process that need not be our child.
pub(crate) struct Watched(OwnedFd);

/// Watches a process that runs now.
pub(crate) fn watch(raw: &str) -> Watched {
    let raw = raw.trim().parse().expect("a process id");
    Watched(pidfd_open(pid(raw), PidfdFlags::empty()).expect("a running process"))
}

impl Watched {
    /// Waits until the process has ended.
    pub(crate) fn wait(&self) {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let timeout = Timespec::try_from(TIME_LIMIT).expect("fits");
        assert_eq!(poll(&mut fds, Some(&timeout)), Ok(1), "still running");
    }
}
