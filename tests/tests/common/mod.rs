//! Real rank processes that a test starts, stops at exact points, and ends: [`Stage`].
#![allow(
    dead_code,
    clippy::expect_used,
    clippy::panic,
    reason = "every test program uses another part of this module, and fails with it"
)]

pub(crate) mod agents;
pub(crate) mod build;
pub(crate) mod clock;
pub(crate) mod denial;
pub(crate) mod doctor;
pub(crate) mod double_mount;
pub(crate) mod hosts;
pub(crate) mod leftovers;
pub(crate) mod memory_limit;
pub(crate) mod mounts;
pub(crate) mod process;
pub(crate) mod report;
pub(crate) mod shared_memory;
pub(crate) mod shell;
pub(crate) mod strangers;
pub(crate) mod terminal;
pub(crate) mod tracing;
pub(crate) mod verbs;

use std::{
    cell::Cell,
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc::{self, Receiver, Sender},
    time::{Duration, Instant},
};

use fsgather_testkit::process::TIME_LIMIT;
use rustix::process::Signal;

use process::{Event, Process, What};

/// Exit codes.
pub(crate) const CONFIG: i32 = 2;
pub(crate) const TIMED_OUT: i32 = 10;
pub(crate) const PEER_FAILED: i32 = 11;
pub(crate) const STORAGE: i32 = 12;
pub(crate) const CORRUPT: i32 = 13;
pub(crate) const DESYNC: i32 = 14;
pub(crate) const RENDEZVOUS: i32 = 15;

/// The end of a process.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// Its exit code; 128 + n for signal n.
    pub(crate) code: i32,
    pub(crate) at: Instant,
    pub(crate) stdout: Vec<String>,
    pub(crate) stderr: Vec<String>,
}

impl End {
    /// The line on which a rank reports its failure.
    pub(crate) fn error(&self) -> &str {
        let errors = self.stderr.iter();
        let mut errors = errors.filter_map(|line| line.strip_prefix("error: "));
        errors.next().unwrap_or_default()
    }

    /// The kind of that error.
    pub(crate) fn kind(&self) -> &str {
        let mut kinds = self.stderr.iter();
        let kind = kinds.find_map(|line| line.strip_prefix("kind: "));
        kind.unwrap_or_default()
    }

    /// The last line of the command-line tool, without its name and that of the verb.
    pub(crate) fn told_by_tool(&self) -> &str {
        let mut lines = self.stderr.iter().rev();
        let line = lines.find_map(|line| line.strip_prefix("fsgather "));
        line.and_then(|line| line.split_once(": "))
            .map_or("", |(_, told)| told)
    }

    pub(crate) fn warnings(&self) -> Vec<&str> {
        let lines = self.stderr.iter().map(String::as_str);
        lines.filter(|line| line.contains("WARN")).collect()
    }
}

/// The processes of one test, and all their output.
///
/// Each event that the test waits for must happen within [`TIME_LIMIT`] of its start, or the test fails with the transcript. All processes
/// end when this is dropped.
pub(crate) struct Stage {
    processes: Vec<Process>,
    events: Receiver<Event>,
    send: Sender<Event>,
    started: Instant,
}

impl Stage {
    pub(crate) fn new() -> Self {
        // The time limit does not include building.
        build::rank_program();
        build::command_line_tool();
        let (send, events) = mpsc::channel();
        Self {
            processes: Vec::new(),
            events,
            send,
            started: Instant::now(),
        }
    }

    /// Starts a process; returns its number on this stage.
    pub(crate) fn start(&mut self, command: &mut Command) -> usize {
        let index = self.processes.len();
        self.processes
            .push(Process::start(index, command, &self.send));
        index
    }

    /// Starts a rank that runs, but joins only after [`Stage::go`], so that the meeting can be changed before.
    pub(crate) fn start_late(&mut self, world: &World, rank: u32) -> usize {
        let index = self.start(&mut world.rank(rank, "at:late join close"));
        self.wait_at([index], "late");
        self.age_processes();
        index
    }

    /// Waits until all processes are older than any failure from now on: the error of a meeting is for processes that started before it,
    /// and start times count in ticks of the kernel.
    pub(crate) fn age_processes(&mut self) {
        self.let_pass(Duration::from_millis(100));
    }

    /// Starts all ranks of a world, each with the steps of `script`. If it is the first world on the stage, ranks have their own numbers.
    pub(crate) fn start_all(&mut self, world: &World, script: impl Fn(u32) -> String) {
        for rank in 0..world.ranks {
            self.start(&mut world.rank(rank, &script(rank)));
        }
    }

    /// Waits until a process has printed a line on its standard output.
    pub(crate) fn wait_for(&mut self, index: usize, line: &str) {
        self.wait_for_where(index, line, |said| said == line);
    }

    /// Waits until all these processes have stopped `at` a place in their scripts.
    pub(crate) fn wait_at(&mut self, all: impl IntoIterator<Item = usize>, place: &str) {
        for index in all {
            self.wait_for(index, &format!("at {place}"));
        }
    }

    /// Waits until a rank has learned that rank 0 has accepted it, while the world forms.
    pub(crate) fn wait_until_taken_in(&mut self, index: usize) {
        const SAYS: &str = "has accepted this rank";
        self.wait_for_where(index, SAYS, |line| line.contains(SAYS));
    }

    /// Waits for a line that fits, on either stream, and was not waited for before.
    pub(crate) fn wait_for_where(
        &mut self,
        index: usize,
        what: &str,
        fits: impl Fn(&str) -> bool,
    ) -> String {
        loop {
            if let Some(line) = self.processes[index].find(&fits) {
                return line;
            }
            assert!(
                self.processes[index].ended.is_none() || !self.processes[index].is_silent(),
                "process {index} has ended without `{what}`\n{}",
                self.transcript()
            );
            self.pump(&format!("`{what}` of process {index}"));
        }
    }

    /// Lets a process that has stopped at a place continue.
    pub(crate) fn go(&mut self, index: usize) {
        let process = &mut self.processes[index];
        let stdin = process.stdin.as_mut().expect("a pipe");
        writeln!(stdin).expect("a process that reads");
    }

    /// The same for a process that may have ended before it reached the place.
    pub(crate) fn go_if_it_is_there(&mut self, index: usize) {
        let stdin = self.processes[index].stdin.as_mut().expect("a pipe");
        if let Err(error) = writeln!(stdin) {
            assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe, "{error}");
        }
    }

    pub(crate) fn go_all(&mut self, all: impl IntoIterator<Item = usize>) {
        for index in all {
            self.go(index);
        }
    }

    /// Closes the standard input of a process.
    pub(crate) fn end_input(&mut self, index: usize) {
        self.processes[index].stdin = None;
    }

    /// Shared memory that a process has mapped, in bytes.
    pub(crate) fn shared_by(&self, index: usize) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid(index)));
        let status = status.unwrap_or_default();
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix("RssShmem:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
    }

    pub(crate) fn pid(&self, index: usize) -> u32 {
        self.processes[index].pid
    }

    /// Sends a signal; returns the time just before.
    pub(crate) fn signal(&self, index: usize, signal: Signal) -> Instant {
        let now = Instant::now();
        self.processes[index].signal(signal);
        now
    }

    pub(crate) fn kill(&self, index: usize) -> Instant {
        self.signal(index, Signal::KILL)
    }

    /// Returns true if a process is running.
    pub(crate) fn runs(&mut self, index: usize) -> bool {
        while let Ok(event) = self.events.try_recv() {
            self.record(event);
        }
        self.processes[index].ended.is_none()
    }

    /// The time when a process wrote its first line that fits; waits for that.
    pub(crate) fn time_of(
        &mut self,
        index: usize,
        what: &str,
        fits: impl Fn(&str) -> bool,
    ) -> Instant {
        self.wait_for_where(index, what, &fits);
        let mut lines = self.processes[index].lines.iter();
        let line = lines.find(|line| fits(&line.text));
        line.expect("it was waited for").at
    }

    /// Waits until a process has ended.
    pub(crate) fn end(&mut self, index: usize) -> End {
        loop {
            if let Some(end) = self.processes[index].end() {
                return end;
            }
            self.pump(&format!("the end of process {index}"));
        }
    }

    pub(crate) fn end_all(&mut self, all: impl IntoIterator<Item = usize>) -> Vec<End> {
        all.into_iter().map(|index| self.end(index)).collect()
    }

    /// Waits until all these processes have succeeded.
    pub(crate) fn succeed(&mut self, all: impl IntoIterator<Item = usize>) {
        for index in all {
            let end = self.end(index);
            assert_eq!(end.code, 0, "process {index}\n{}", self.transcript());
        }
    }

    /// Waits until all these processes have ended with one code; returns their error, which must be the same for all, and their ends.
    pub(crate) fn fail_alike(
        &mut self,
        all: impl IntoIterator<Item = usize>,
        code: i32,
    ) -> (String, Vec<End>) {
        let ends = self.end_all(all);
        let error = ends[0].error().to_owned();
        for end in &ends {
            assert_eq!(end.code, code, "{}", self.transcript());
            assert_eq!(end.error(), error, "{}", self.transcript());
        }
        assert!(!error.is_empty(), "no reason\n{}", self.transcript());
        (error, ends)
    }

    /// All output, for messages.
    pub(crate) fn transcript(&self) -> String {
        let mut text = String::new();
        for (index, process) in self.processes.iter().enumerate() {
            let _ = writeln!(text, "--- process {index} (pid {})", process.pid);
            for line in &process.lines {
                let _ = writeln!(text, "{}: {}", line.stream, line.text);
            }
            let _ = writeln!(text, "ended: {:?}", process.ended.map(|(code, _)| code));
        }
        text
    }

    /// Waits for a condition that can only be polled.
    pub(crate) fn wait_until(&mut self, what: &str, is_so: impl Fn() -> bool) {
        while !is_so() {
            let left = TIME_LIMIT.saturating_sub(self.started.elapsed());
            assert!(!left.is_zero(), "{what}: never\n{}", self.transcript());
            if let Ok(event) = self.events.recv_timeout(left.min(Duration::from_millis(2))) {
                self.record(event);
            }
        }
    }

    /// Waits until no process has work to do: all threads sleep, in several checks in a row. All data that these processes have sent to
    /// each other over connections has been received by then. Processes that poll for files also sleep, between two checks.
    pub(crate) fn settle(&mut self) {
        const LOOKS: u32 = 10;
        let pids: Vec<u32> = self.processes.iter().map(|process| process.pid).collect();
        let quiet_looks = Cell::new(0);
        self.wait_until("all processes to sleep", || {
            let is_quiet = pids.iter().all(|pid| process::sleeps(*pid));
            quiet_looks.set(if is_quiet { quiet_looks.get() + 1 } else { 0 });
            quiet_looks.get() == LOOKS
        });
    }

    /// Lets time pass, for promises about time.
    pub(crate) fn let_pass(&mut self, time: Duration) {
        let since = Instant::now();
        self.wait_until("time to pass", || since.elapsed() > time);
    }

    fn pump(&mut self, what: &str) {
        let left = TIME_LIMIT.saturating_sub(self.started.elapsed());
        // This stage keeps a sender, so that only the time-out can end the wait without an event.
        let Ok(event) = self.events.recv_timeout(left) else {
            panic!("{what} did not come\n{}", self.transcript());
        };
        self.record(event);
    }

    fn record(&mut self, (index, what): Event) {
        let process = &mut self.processes[index];
        match what {
            What::Line(line) => process.lines.push(line),
            What::Silence => process.silent_streams += 1,
            What::Ended(code, at) => process.ended = Some((code, at)),
        }
    }
}

/// True if this copy of the tests runs its worlds over marker files.
pub(crate) const OVER_MARKERS: bool = is_text(env!("CARGO_CRATE_NAME"), "over_markers");

const fn is_text(text: &str, other: &str) -> bool {
    let (text, other) = (text.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < text.len() && at < other.len() && text[at] == other[at] {
        at += 1;
    }
    at == text.len() && at == other.len()
}

/// A world of ranks that meet in one directory, by default.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) ranks: u32,
    variables: Vec<(String, String)>,
}

impl World {
    pub(crate) fn new(ranks: u32, directory: &Path) -> Self {
        let world = Self {
            ranks,
            variables: Vec::new(),
        }
        .with("FSGATHER_DIR", directory.to_str().expect("text"))
        .with("FSGATHER_WORLD_SIZE", &ranks.to_string())
        // Ranks stand for ranks of several hosts, with any transport.
        .with("FSGATHER_SHARED_MEMORY", "0");
        if OVER_MARKERS {
            world.with("FSGATHER_CONTROL", "markers")
        } else {
            world
        }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Ranks of one host, which share memory as they do by default.
    pub(crate) fn sharing_memory(self) -> Self {
        self.with("FSGATHER_SHARED_MEMORY", "256MiB")
    }

    /// One rank, which takes the steps of `script`.
    pub(crate) fn rank(&self, rank: u32, script: &str) -> Command {
        self.set_up(Command::new(build::rank_program()), rank, script)
    }

    /// The same behind another command, which must exec it.
    pub(crate) fn rank_behind(&self, prefix: &[String], rank: u32, script: &str) -> Command {
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).arg(build::rank_program());
        self.set_up(command, rank, script)
    }

    /// One rank, which runs the command-line tool.
    pub(crate) fn tool(&self, rank: u32, arguments: &[&str]) -> Command {
        let mut command = self.set_up(Command::new(build::command_line_tool()), rank, "");
        command.args(arguments);
        command
    }

    /// One rank, which runs the command-line tool behind another command, which must exec it.
    pub(crate) fn tool_behind(&self, prefix: &[String], rank: u32, arguments: &[&str]) -> Command {
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).arg(build::command_line_tool());
        let mut command = self.set_up(command, rank, "");
        command.args(arguments);
        command
    }

    /// Sets the arguments and variables of a rank on a command.
    pub(crate) fn set_up(&self, mut command: Command, rank: u32, script: &str) -> Command {
        command
            .args(
                script
                    .split_whitespace()
                    .map(|step| step.replace(SPACE, " ")),
            )
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("FSGATHER_RANK", rank.to_string())
            .envs(self.variables.iter().cloned());
        command
    }
}

/// Stands for a space in a step: a real space would end the step.
const SPACE: char = '\u{1f}';

/// A path as a part of a step.
pub(crate) fn in_step(path: &Path) -> String {
    path.to_str()
        .expect("text")
        .replace(' ', &SPACE.to_string())
}

/// A directory of its own for a test.
pub(crate) fn place() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// The refusals that failed meetings have left for later ranks; they stay on purpose.
pub(crate) fn refusals_in(directory: &Path) -> Vec<PathBuf> {
    let mut found = list(&directory.join("all_gather_via_filesys"));
    found.retain(|path| is_refusal(path));
    found
}

fn is_of_calls(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("calls-"))
}

fn is_refusal(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("refusal-"))
}

/// The files left in a directory after a gather, except refusals, and the last calls of ranks whose job has failed.
pub(crate) fn left_in(directory: &Path) -> Vec<PathBuf> {
    let rendezvous = directory.join("all_gather_via_filesys");
    let mut left = list(directory);
    left.retain(|path| *path != rendezvous);
    if rendezvous.exists() {
        left.extend(list(&rendezvous));
    }
    left.retain(|path| !is_refusal(path) && !is_of_calls(path));
    left
}

/// Number of payloads that have been published.
pub(crate) fn payloads(directory: &Path) -> usize {
    payload_files(directory).len()
}

/// The payloads that have been published.
pub(crate) fn payload_files(directory: &Path) -> Vec<PathBuf> {
    let gathers = left_in(directory).into_iter();
    let payloads = gathers.filter_map(|path| fs::read_dir(path.join("payloads")).ok());
    let names = payloads.flatten().filter_map(Result::ok);
    names
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("payload-"))
        .map(|entry| entry.path())
        .collect()
}

#[track_caller]
pub(crate) fn assert_nothing_left(directory: &Path) {
    let left = left_in(directory);
    assert!(left.is_empty(), "{left:?}");
}

fn list(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory");
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

/// The name of a rank's process in messages.
pub(crate) fn name_of(rank: u32, pid: u32) -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("a host name");
    name_on(host.trim(), rank as usize, pid)
}

/// The same on another host.
pub(crate) fn name_on(host: &str, rank: usize, pid: u32) -> String {
    format!("rank {rank} on {host} (pid {pid})")
}

/// All ranks except one, as numbers on the stage.
pub(crate) fn others(ranks: u32, but: usize) -> Vec<usize> {
    (0..ranks as usize).filter(|rank| *rank != but).collect()
}

/// All ranks, as numbers on the stage.
pub(crate) fn everybody(ranks: u32) -> std::ops::Range<usize> {
    0..ranks as usize
}

/// Copies a program that the test will run. A process of its own does that: while this process had the copy open for writing, a child that
/// another test starts at that moment would inherit it, and a file that is open for writing cannot be run.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    let copied = fsgather_testkit::process::output(command.arg(from).arg(to)).expect("cp");
    assert!(copied.status.success(), "no copy at {}", to.display());
}
