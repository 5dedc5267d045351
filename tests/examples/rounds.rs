//! One rank of many calls in a row: `rounds COUNT SMALL LARGE`, with the rank and the rest from the environment.
//!
//! Calls alternate between payloads of about `SMALL` and about `LARGE` bytes. Four in five are gathers, each five
//! to another root; the fifth is an all-gather. Every payload of every call is another one, so that nothing old
//! passes for new, and each recipient compares all bytes. Prints `joined MILLISECONDS`, then for each call
//! `call NUMBER KIND MILLISECONDS` once what it received was found right, then `closed`.

use std::{
    fmt::Display,
    io::{self, Write},
    process::ExitCode,
    time::Instant,
};

use fsgather::{Communicator, Error, Payload, Pieces};
use fsgather_tests::Generated;

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(io::stderr)
        .with_ansi(false)
        .without_time()
        .init();
    let numbers: Vec<u32> = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    let [count, small, large] = numbers[..] else {
        complain("usage: rounds COUNT SMALL LARGE");
        return ExitCode::from(2);
    };
    match run(count, small, large) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            complain(&text);
            ExitCode::FAILURE
        }
    }
}

fn run(count: u32, small: u32, large: u32) -> Result<(), String> {
    let text = |error: Error| format!("error: {error}");
    let since = Instant::now();
    let world = Communicator::from_env().map_err(text)?;
    say(format_args!("joined {}", millis(since)));
    let (me, ranks) = (world.rank().get(), world.world_size().get());
    for number in 0..count {
        let expected = |rank| payload(number, rank, if number % 2 == 0 { small } else { large });
        let own = expected(me).bytes();
        let since = Instant::now();
        let kind = if number % 5 == 4 {
            "all-gather"
        } else {
            "gather"
        };
        let parts = if number % 5 == 4 {
            Some(world.all_gather(Pieces::from(&own)).map_err(text)?)
        } else {
            let gathered = world.gather(Pieces::from(&own), number / 5 % ranks);
            let parts = gathered.map_err(text)?;
            let parts = parts.map(|parts| parts.map(|part| Ok(part?.1)).collect());
            let parts: Option<Result<Vec<Payload>, Error>> = parts;
            parts.transpose().map_err(text)?
        };
        let took = millis(since);
        if let Some(parts) = parts {
            count_parts(parts.len(), ranks)?;
            for (rank, part) in (0..ranks).zip(parts) {
                check(number, rank, &part, expected(rank))?;
            }
        }
        say(format_args!("call {number} {kind} {took}"));
    }
    world.close().map_err(text)?;
    say("closed");
    Ok(())
}

/// What `rank` hands over in call `number`; lengths differ a little too.
fn payload(number: u32, rank: u32, length: u32) -> Generated {
    let length = usize::try_from(length + 7 * rank).unwrap_or(usize::MAX);
    Generated::new(rank + 1000 * (number + 1), length)
}

fn count_parts(got: usize, ranks: u32) -> Result<(), String> {
    if u32::try_from(got) == Ok(ranks) {
        return Ok(());
    }
    Err(format!("wrong: {got} parts of {ranks} ranks"))
}

fn check(number: u32, rank: u32, got: &[u8], expected: Generated) -> Result<(), String> {
    if expected.matches(got) {
        return Ok(());
    }
    let length = got.len();
    Err(format!(
        "wrong: payload of rank {rank} in call {number}, {length} bytes"
    ))
}

fn millis(since: Instant) -> String {
    format!("{:.1}", since.elapsed().as_secs_f64() * 1000.0)
}

fn say(text: impl Display) {
    let mut stdout = io::stdout();
    let _ = writeln!(stdout, "{text}");
    let _ = stdout.flush();
}

fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
