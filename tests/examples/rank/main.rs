//! One rank of a test: does what its arguments say, a step each, and stops where the test wants it to.
//!
//! | step | does |
//! | --- | --- |
//! | `deaf`, as the first one | listens to no log |
//! | `at:NAME` | prints `at NAME` and waits for a line on standard input |
//! | `join`, `barrier`, `close`, `drop` | what they say; `join` prints `joined` |
//! | `all_gather:LEN`, `all_gather_bytes:LEN`, `all_gather_from:LEN` | and checks what it gets |
//! | `gather:ROOT:LEN`, `gather_bytes:ROOT:LEN`, `gather_from:ROOT:LEN` | likewise |
//! | `broadcast:ROOT:LEN` | likewise |
//! | `function:LEN`, `via:DIR:ROOT_ONLY:LEN`, `function_close` | the functions of the process's own communicator |
//! | `group:RANKS`, `split:COLORS` | makes a group of the innermost one, which the steps after it use |
//! | `leave_group`, `close_group` | ends the innermost group |
//! | `list:MAX:LEN` | a bounded all-gather |
//! | `start_all_gather:LEN`, `start_gather:ROOT:LEN` | starts a call; they are numbered from 0 |
//! | `wait:NUMBER`, `not_yet:NUMBER:MS`, `abandon:NUMBER` | what becomes of it |
//! | `stream:ROOT:LEN` | and checks what it gets |
//! | `routes:ORDER:WAY`, `routes_in_threads:RANKS:ORDER:WAY` | every kind of call by one way, or one by `each`, on all sorts of groups; `world_first` or `groups_first` |
//! | `join_to_set_up_later`, `numbered_groups` | joins a world that finds out with its calls where payloads go; calls on groups that ranks make at different moments |
//! | `storm:CALLS:SEED` | random calls on four groups from four threads |
//! | `introduce:WAY:PLACE` | joins by a rendezvous of the program's own: `note`, `store`, `garbage`, `broken` |
//! | `speak:CODEC:LEN` | calls in `postcard`, `json`, `backwards`; `json` for a length is another type |
//! | `barriers` | barriers until rank 0 reads a line |
//! | `timed_barriers:COUNT` | prints `median N`: how many microseconds half of so many barriers take at most |
//! | `panic`, `encode_panics`, `encode_fails`, `source_fails` | fails in that way |
//! | `fails:STEP` | a step that has to fail; prints `failed` and the error, and goes on |
//! | `unread:LEN` | closes before what was gathered to rank 0 has been read |
//! | `all_gather_pieces:LEN`, `gather_pieces:ROOT:LEN`, `broadcast_pieces:ROOT:LEN`, `start_pieces:ROOT:LEN` | payloads in pieces, which are written to once they have been checked |
//! | `bounded_pieces:MAX:LEN`, `by:TRANSPORT:DIR:LEN`, `timed_barrier:MS` | the same in a way of its own |
//! | `tagged:TAG` | a barrier with a tag |
//! | `barrier_with`, `group_with:RANKS`, `split_with:COLORS`, `rootless_broadcast:ROOT` | calls at `script.py:7` |
//! | `join_asking:FILE` | joins with a switch that waiting threads ask, and that is thrown once the file is there |
//! | `leave_with:REASON` | leaves so that others are told why |
//! | `keep:LEN`, `right`, `let_go` | an all-gather whose result is kept; whether all that is kept has not changed; keeps none any more |
//! | `keep_some:ROOT:LEN:COUNT` | so many parts of a gather, as they come, that are kept; the root does without the others |
//! | `job:NUMBER` | hands over and expects the bytes of that job; groups have their own |
//! | `slow:MS`, `pause:MS` | pauses so long between parts that are read from now on; once |
//! | `read:FILE` | reads a file, as a program of its own does |
//! | `peak` | prints `peak N`: the most memory it ever had resident, in KiB |
//! | `multi`, `current` | does the rest inside of a tokio runtime of that kind |
//!
//! A `:half` after `LEN` stops `_from` calls half-way through their source, at `publishing`; a `:read` stops
//! gathers on their root after the first part, at `reading`. Each call prints its place in this file first.
#![expect(
    clippy::panic,
    reason = "some ranks are asked to panic, and a wrong script has to be mended"
)]

mod calls;
mod codecs;
mod family;
mod functions;
mod introductions;
mod kept;
mod pieces;
mod routes;
mod sources;
mod values;

use std::{
    fmt::Display,
    io::{self, BufRead, Write},
    path::Path,
    process::ExitCode,
};

use family::Family;
use fsgather::{Communicator, Error};

/// The reason why a rank ends.
enum Failure {
    Library(Error),
    Wrong(String),
    /// As a program does that leaves its end to the library.
    Ended(ExitCode),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

/// What a rank has made so far.
#[derive(Default)]
struct State {
    /// Pending calls and groups end before the world does.
    family: Family,
    joined: Option<Communicator>,
    kept: kept::Kept,
}

fn main() -> ExitCode {
    let mut steps: Vec<String> = std::env::args().skip(1).collect();
    if steps.first().is_some_and(|first| first == "deaf") {
        steps.remove(0);
    } else {
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_writer(io::stderr)
            .with_ansi(false)
            .without_time()
            .init();
    }
    let (text, code) = match run(&mut State::default(), &steps) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Library(error)) => {
            let _ = writeln!(io::stderr(), "kind: {}", kind_of(&error));
            (error.to_string(), error.exit_code())
        }
        Err(Failure::Wrong(what)) => (what, 1),
        Err(Failure::Ended(code)) => return code,
    };
    let _ = writeln!(io::stderr(), "error: {text}");
    ExitCode::from(code)
}

/// What the variant of an error is called.
fn kind_of(error: &Error) -> String {
    match error {
        Error::Poisoned { .. } => "Poisoned".into(),
        other => format!("{:?}", other.kind()),
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

fn run(state: &mut State, steps: &[String]) -> Result<(), Failure> {
    for (index, step) in steps.iter().enumerate() {
        let rest = &steps[index + 1..];
        match step.as_str() {
            "multi" => {
                let runtime = tokio::runtime::Builder::new_multi_thread().build();
                return runtime
                    .map_err(|error| Failure::Wrong(error.to_string()))?
                    .block_on(async { run(state, rest) });
            }
            "current" => {
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                return runtime
                    .map_err(|error| Failure::Wrong(error.to_string()))?
                    .block_on(async { run(state, rest) });
            }
            _ => take(state, step)?,
        }
    }
    Ok(())
}

/// Takes a step that needs nothing but a communicator.
fn on(communicator: &Communicator, words: &[&str]) -> Result<(), Failure> {
    if pieces::take(communicator, words)? {
        return Ok(());
    }
    calls::call(communicator, words)
}

fn take(state: &mut State, step: &str) -> Result<(), Failure> {
    let words: Vec<&str> = step.split(':').collect();
    match words.as_slice() {
        ["at", name] => stop_at(name),
        ["join"] => {
            state.joined = Some(Communicator::from_env()?);
            say("joined");
        }
        ["join_to_set_up_later"] => {
            state.joined = Some(Communicator::builder().set_up_later().build()?);
            say("joined");
        }
        ["join_asking", file] => {
            let file = std::path::PathBuf::from(file);
            let interrupt = fsgather::Interrupt::polled_by(move || {
                file.exists().then(|| "KeyboardInterrupt".into())
            });
            let builder = Communicator::builder().interrupt(&interrupt);
            state.joined = Some(builder.build()?);
            say("joined");
        }
        ["introduce", way, place] => {
            state.joined = Some(introductions::join(way, place)?);
            say("joined");
        }
        ["speak", codec, what] => {
            let world = state.joined.as_ref().ok_or_else(not_joined)?;
            codecs::speak(state.family.current(world), codec, what)?;
        }
        ["drop"] => drop(state.joined.take()),
        ["leave_with", reason] => {
            let communicator = state.joined.take().ok_or_else(not_joined)?;
            communicator.leave_with(reason);
        }
        ["close"] => {
            let communicator = state.joined.take().ok_or_else(not_joined)?;
            say(format_args!("calls close at line {}", line!() + 1));
            communicator.close()?;
        }
        ["fails", failing @ ..] => match take(state, &failing.join(":")) {
            Err(Failure::Library(error)) => say(format_args!("failed {error}")),
            Err(wrong) => return Err(wrong),
            Ok(()) => return Err(Failure::Wrong(format!("{step} did not fail"))),
        },
        ["unread", len] => unread(state, len)?,
        ["hold", len] => {
            let communicator = state.joined.as_ref().ok_or_else(not_joined)?;
            let own = values::value(communicator.rank().get(), len);
            // As a program in another language may hold them when it ends.
            std::mem::forget(communicator.gather(&own, 0)?);
        }
        ["keep" | "keep_some", ..] => {
            let world = state.joined.as_ref().ok_or_else(not_joined)?;
            state.kept.take(state.family.current(world), &words)?;
        }
        ["right"] => state.kept.check()?,
        ["let_go"] => state.kept.let_go(),
        ["leave"] => state.joined.take().ok_or_else(not_joined)?.leave(),
        ["main_ends", text] => return Err(main_ends(state, text)),
        ["panic"] => panic!("as the script says"),
        ["job", number] => drop(fsgather_tests::generate_for(values::number(number).into())),
        ["slow", milliseconds] => values::read_slowly(values::number(milliseconds)),
        ["pause", milliseconds] => values::pause(values::number(milliseconds)),
        ["read", file] => read(file)?,
        ["peak"] => peak()?,
        ["routes", order, way] => {
            let world = state.joined.as_ref().ok_or_else(not_joined)?;
            routes::every(world, order, way)?;
        }
        ["numbered_groups"] => {
            let world = state.joined.as_ref().ok_or_else(not_joined)?;
            routes::numbered_groups(world)?;
        }
        ["routes_in_threads", ranks, order, way] => {
            routes::every_in_threads(values::number(ranks), order, way)?;
        }
        ["function", len] => functions::function(len)?,
        ["via", directory, root_only, len] => {
            functions::via(Path::new(directory), *root_only == "1", len)?;
        }
        ["function_close"] => fsgather::compat::close()?,
        _ => {
            let world = state.joined.as_ref().ok_or_else(not_joined)?;
            if !state.family.take(world, &words)? {
                on(state.family.current(world), &words)?;
            }
        }
    }
    say(format_args!("done {step}"));
    Ok(())
}

/// As a program ends that returns an error of its own, having dropped its communicator.
fn main_ends(state: &mut State, text: &str) -> Failure {
    Failure::Ended(fsgather::main(|| {
        drop(state.joined.take());
        Err(io::Error::other(text))
    }))
}

fn not_joined() -> Failure {
    Failure::Wrong("this step needs `join` before it".into())
}

/// Closes before what was gathered has been read.
fn unread(state: &mut State, len: &str) -> Result<(), Failure> {
    let communicator = state.joined.take().ok_or_else(not_joined)?;
    let own = values::value(communicator.rank().get(), len);
    let unread = communicator.gather(&own, 0)?;
    let closed = communicator.close();
    drop(unread);
    Ok(closed?)
}

fn read(file: &str) -> Result<(), Failure> {
    let read = std::fs::read(file).map(drop);
    read.map_err(|error| Failure::Wrong(error.to_string()))
}

fn peak() -> Result<(), Failure> {
    let status = std::fs::read_to_string("/proc/self/status");
    let status = status.map_err(|error| Failure::Wrong(error.to_string()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let text = line.unwrap_or_default().trim_end_matches("kB").trim();
    say(format_args!("peak {text}"));
    Ok(())
}
