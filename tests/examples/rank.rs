//! One rank of a test: does what its arguments say, a step each, and stops where the test wants it to.
//!
//! | step | does |
//! | --- | --- |
//! | `at:NAME` | prints `at NAME` and waits for a line on standard input |
//! | `join`, `barrier`, `close`, `drop` | what they say; `join` prints `joined` |
//! | `all_gather:LEN`, `all_gather_bytes:LEN`, `all_gather_from:LEN` | and checks what it gets |
//! | `gather:ROOT:LEN`, `gather_bytes:ROOT:LEN`, `gather_from:ROOT:LEN` | likewise |
//! | `broadcast:ROOT:LEN` | likewise |
//! | `function:LEN`, `via:DIR:ROOT_ONLY:LEN`, `function_close` | the functions of the process's own communicator |
//! | `barriers` | barriers until rank 0 reads a line |
//! | `panic`, `encode_panics`, `encode_fails`, `source_fails` | fails in that way |
//! | `peak` | prints `peak N`: the most memory it ever had resident, in KiB |
//! | `multi`, `current` | does the rest inside of a tokio runtime of that kind |
//!
//! A `:half` after `LEN` stops `_from` calls half-way through their source, at `publishing`; a `:read` stops
//! gathers on their root after the first part, at `reading`. Each call prints its place in this file first.
#![expect(
    clippy::panic,
    reason = "some ranks are asked to panic, and a wrong script has to be mended"
)]

use std::{
    fmt::Display,
    io::{self, BufRead, Read, Write},
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use bytes::Bytes;
use fsgather::{AllGatherOptions, Communicator, Error, Gathered, Payload};
use fsgather_tests::{Generated, length};
use serde::{Deserialize, Serialize, Serializer};

/// What typed calls hand over.
type Value = (u32, String, Bytes);

/// Why a rank ends.
enum Failure {
    Library(Error),
    Wrong(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_writer(io::stderr)
        .with_ansi(false)
        .without_time()
        .init();
    let steps: Vec<String> = std::env::args().skip(1).collect();
    let (text, code) = match run(&mut None, &steps) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Library(error)) => (error.to_string(), code_of(&error)),
        Err(Failure::Wrong(what)) => (what, 1),
    };
    let _ = writeln!(io::stderr(), "error: {text}");
    ExitCode::from(code)
}

/// The code that the command-line tool exits with for this error.
fn code_of(error: &Error) -> u8 {
    match error.root_cause() {
        Error::Config { .. } => 2,
        Error::Timeout { .. } => 10,
        Error::PeerFailed { .. } => 11,
        Error::Storage { .. } | Error::NotShared { .. } => 12,
        Error::Corrupt { .. } | Error::Incompatible { .. } => 13,
        Error::Desync { .. } | Error::Mismatch { .. } => 14,
        Error::Rendezvous { .. } => 15,
        _ => 1,
    }
}

fn say(text: impl Display) {
    let mut stdout = io::stdout();
    let _ = writeln!(stdout, "{text}");
    let _ = stdout.flush();
}

fn stop_at(name: &str) {
    say(format_args!("at {name}"));
    let mut line = String::new();
    // Without anybody to wait for, there is nothing to stop for.
    let _ = io::stdin().lock().read_line(&mut line);
}

fn run(joined: &mut Option<Communicator>, steps: &[String]) -> Result<(), Failure> {
    for (index, step) in steps.iter().enumerate() {
        let rest = &steps[index + 1..];
        match step.as_str() {
            "multi" => {
                let runtime = tokio::runtime::Builder::new_multi_thread().build();
                return runtime
                    .map_err(|error| Failure::Wrong(error.to_string()))?
                    .block_on(async { run(joined, rest) });
            }
            "current" => {
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                return runtime
                    .map_err(|error| Failure::Wrong(error.to_string()))?
                    .block_on(async { run(joined, rest) });
            }
            _ => take(joined, step)?,
        }
    }
    Ok(())
}

fn take(joined: &mut Option<Communicator>, step: &str) -> Result<(), Failure> {
    let words: Vec<&str> = step.split(':').collect();
    match words.as_slice() {
        ["at", name] => stop_at(name),
        ["join"] => {
            *joined = Some(Communicator::from_env()?);
            say("joined");
        }
        ["drop"] => drop(joined.take()),
        ["close"] => {
            let communicator = joined.take().ok_or_else(not_joined)?;
            say(format_args!("calls close at line {}", line!() + 1));
            communicator.close()?;
        }
        ["panic"] => panic!("as the script says"),
        ["peak"] => peak()?,
        ["function", len] => function(len)?,
        ["via", directory, root_only, len] => via(Path::new(directory), *root_only == "1", len)?,
        ["function_close"] => fsgather::close()?,
        _ => call(joined.as_ref().ok_or_else(not_joined)?, &words)?,
    }
    say(format_args!("done {step}"));
    Ok(())
}

fn not_joined() -> Failure {
    Failure::Wrong("this step needs `join` before it".into())
}

fn call(communicator: &Communicator, words: &[&str]) -> Result<(), Failure> {
    let me = communicator.rank().get();
    let stop = words.last().copied().unwrap_or_default();
    let own = |len: &str| Generated::new(me, len_of(len, me)).bytes();
    match words {
        ["barrier"] => {
            say(format_args!("calls barrier at line {}", line!() + 1));
            communicator.barrier()?;
        }
        ["barriers"] => barriers(communicator)?,
        ["all_gather_bytes", len] => {
            let parts = communicator.all_gather_bytes(&own(len))?;
            check_all(communicator, &parts, len)?;
        }
        ["all_gather_from", len, ..] => {
            let parts = communicator.all_gather_from(&mut Source::new(me, len, stop))?;
            check_all(communicator, &parts, len)?;
        }
        ["all_gather", len] => {
            let values = communicator.all_gather(&value(me, len))?;
            check_values(communicator.world_size().get(), &values, len)?;
        }
        ["gather", root, len, ..] => {
            let value = value(me, len);
            say(format_args!("calls gather at line {}", line!() + 1));
            let gathered = communicator.gather(&value, number(root))?;
            receive(gathered, stop, |rank, value| {
                check_values_of(rank, &value, len)
            })?;
        }
        ["gather_bytes", root, len, ..] => {
            let own = own(len);
            say(format_args!("calls gather at line {}", line!() + 1));
            let gathered = communicator.gather_bytes(&own, number(root))?;
            receive(gathered, stop, |rank, part: Payload| {
                check(rank, &part, len)
            })?;
        }
        ["gather_from", root, len, ..] => {
            let gathered =
                communicator.gather_from(&mut Source::new(me, len, stop), number(root))?;
            receive(gathered, stop, |rank, part: Payload| {
                check(rank, &part, len)
            })?;
        }
        ["broadcast", root, len] => {
            let root = number(root);
            let payload = communicator.broadcast_bytes(&own(len), root)?;
            check(root, &payload, len)?;
        }
        ["encode_panics"] => drop(communicator.all_gather(&Awkward::Panics)?),
        ["encode_fails"] => drop(communicator.all_gather(&Awkward::Fails)?),
        ["source_fails"] => drop(communicator.all_gather_from(&mut Broken)?),
        _ => panic!("no such step: {words:?}"),
    }
    Ok(())
}

/// Calls until rank 0 is told to stop; rank 0 says when they have begun.
fn barriers(communicator: &Communicator) -> Result<(), Failure> {
    let is_root = communicator.rank().get() == 0;
    let told = Arc::new(AtomicBool::new(false));
    if is_root {
        let told = Arc::clone(&told);
        thread::spawn(move || {
            stop_at("barriers");
            told.store(true, Ordering::SeqCst);
        });
    }
    let mut count = 0_u64;
    while !communicator.broadcast(&told.load(Ordering::SeqCst), 0)? {
        communicator.barrier()?;
        count += 1;
    }
    say(format_args!("barriers {count}"));
    Ok(())
}

fn function(len: &str) -> Result<(), Failure> {
    let (rank, ranks) = place()?;
    let values = fsgather::all_gather(&value(rank, len), &AllGatherOptions::default())?;
    got(&values, ranks, len)
}

fn via(directory: &Path, root_only: bool, len: &str) -> Result<(), Failure> {
    let (rank, ranks) = place()?;
    let own = value(rank, len);
    let values = fsgather::all_gather_via_filesys(&own, Some(directory), root_only)?;
    got(&values, ranks, len)
}

fn got(values: &[Value], ranks: u32, len: &str) -> Result<(), Failure> {
    say(format_args!("got {}", values.len()));
    if values.is_empty() {
        return Ok(());
    }
    check_values(ranks, values, len)
}

/// This rank and how many there are, as the variables say.
fn place() -> Result<(u32, u32), Failure> {
    let variables = fsgather::environment::Variables::of_process();
    let settings = fsgather::settings::Settings::resolve(&variables)?;
    let detection = &settings.detection;
    Ok((detection.rank.get(), detection.world_size.get()))
}

fn number(text: &str) -> u32 {
    text.parse()
        .unwrap_or_else(|_| panic!("{text} is no number"))
}

fn len_of(spec: &str, rank: u32) -> usize {
    length(spec, rank).unwrap_or_else(|| panic!("{spec} is no length"))
}

fn value(rank: u32, len: &str) -> Value {
    let bytes = Generated::new(rank, len_of(len, rank)).bytes();
    (rank, format!("of rank {rank}"), bytes.into())
}

fn receive<T>(
    gathered: Gathered<T>,
    stop: &str,
    mut check: impl FnMut(u32, T) -> Result<(), Failure>,
) -> Result<(), Failure>
where
    fsgather::Parts<T>: Iterator<Item = Result<T, Error>>,
{
    let Some(parts) = gathered.all() else {
        return Ok(());
    };
    for (rank, part) in (0..).zip(parts) {
        check(rank, part?)?;
        if rank == 0 && stop == "read" {
            stop_at("reading");
        }
    }
    Ok(())
}

fn check(rank: u32, payload: &[u8], len: &str) -> Result<(), Failure> {
    if Generated::new(rank, len_of(len, rank)).matches(payload) {
        return Ok(());
    }
    let got = payload.len();
    Err(Failure::Wrong(format!(
        "wrong payload of rank {rank}: {got} bytes"
    )))
}

fn check_all(communicator: &Communicator, parts: &[Payload], len: &str) -> Result<(), Failure> {
    count(parts.len(), communicator.world_size().get())?;
    for (rank, part) in (0..).zip(parts) {
        check(rank, part, len)?;
    }
    Ok(())
}

fn check_values(ranks: u32, values: &[Value], len: &str) -> Result<(), Failure> {
    count(values.len(), ranks)?;
    for (rank, value) in (0..).zip(values) {
        check_values_of(rank, value, len)?;
    }
    Ok(())
}

fn check_values_of(rank: u32, value: &Value, len: &str) -> Result<(), Failure> {
    if value.0 != rank || value.1 != format!("of rank {rank}") {
        return Err(Failure::Wrong(format!("wrong value of rank {rank}")));
    }
    check(rank, &value.2, len)
}

fn count(got: usize, ranks: u32) -> Result<(), Failure> {
    if u32::try_from(got) == Ok(ranks) {
        return Ok(());
    }
    Err(Failure::Wrong(format!("{got} parts of {ranks} ranks")))
}

fn peak() -> Result<(), Failure> {
    let status = std::fs::read_to_string("/proc/self/status");
    let status = status.map_err(|error| Failure::Wrong(error.to_string()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let text = line.unwrap_or_default().trim_end_matches("kB").trim();
    say(format_args!("peak {text}"));
    Ok(())
}

/// A payload that is read piece by piece, with a stop half-way if asked for.
struct Source {
    bytes: Generated,
    until_stop: Option<usize>,
}

impl Source {
    fn new(rank: u32, len: &str, stop: &str) -> Self {
        let len = len_of(len, rank);
        Self {
            bytes: Generated::new(rank, len),
            until_stop: (stop == "half").then_some(len / 2),
        }
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = match self.until_stop {
            Some(0) => {
                self.until_stop = None;
                stop_at("publishing");
                buffer.len()
            }
            Some(left) => left.min(buffer.len()),
            None => buffer.len(),
        };
        let read = self.bytes.read(&mut buffer[..most])?;
        if let Some(left) = &mut self.until_stop {
            *left -= read;
        }
        Ok(read)
    }
}

struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the detector is out of film"))
    }
}

/// A value that cannot be handed over.
#[derive(Deserialize)]
enum Awkward {
    Panics,
    Fails,
}

impl Serialize for Awkward {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Panics => panic!("as the script says"),
            Self::Fails => Err(serde::ser::Error::custom("not today")),
        }
    }
}
