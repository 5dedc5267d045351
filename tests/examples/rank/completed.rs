//! Steps whose root gets parts as they come, or what is there at a deadline.
#![expect(clippy::panic, reason = "a wrong script has to be mended")]

use std::time::{Duration, Instant};

use fsgather::{
    CallBuilder, Communicator, Rank,
    parts::{Completed, Missing},
};

use crate::{
    Failure, say, stop_at,
    values::{Value, check_values_of, number, pause_between_parts, receive, value},
};

/// Takes a step, if it is one of these.
pub(crate) fn take(communicator: &Communicator, words: &[&str]) -> Result<bool, Failure> {
    let started = Instant::now();
    match words {
        ["completed", root, len, deadline, rest @ ..] => {
            let parts = start(communicator, root, len, deadline)?;
            read(parts, len, rest)?;
        }
        ["two_completed", len] => {
            // Both begin before either is read; one is read from its end's side.
            let first = start(communicator, "0", len, "never")?;
            let second = start(communicator, "0", len, "never")?;
            read(second, len, &[])?;
            read(first, len, &[])?;
        }
        ["drop_completed", root, len, count] => {
            let mut parts = start(communicator, root, len, "never")?;
            for part in parts.by_ref().take(number(count) as usize) {
                let (rank, value) = part?;
                check_values_of(rank.get(), &value, len)?;
            }
            say("dropping");
        }
        ["partial", root, len, deadline] => {
            let own = value(communicator.rank().get(), len);
            let partial = with(communicator, deadline).gather_partial(&own, number(root))?;
            for (rank, value) in partial.parts.iter().flatten() {
                check_values_of(rank.get(), value, len)?;
            }
            let parts = partial.parts.iter().flatten();
            let parts: Vec<Rank> = parts.map(|(rank, _)| *rank).collect();
            say(format_args!("parts {}", list(&parts)));
            say_missing(&partial.missing);
        }
        ["slow_gather", root, len] => {
            let own = value(communicator.rank().get(), len);
            let gathered = communicator.gather(&own, number(root))?;
            receive(gathered, "", |rank, value| {
                check_values_of(rank, &value, len)
            })?;
        }
        _ => return Ok(false),
    }
    say(format_args!("took {}", started.elapsed().as_millis()));
    Ok(true)
}

fn with(communicator: &Communicator, deadline: &str) -> CallBuilder {
    match deadline {
        "never" => communicator.call(),
        millis => {
            let deadline = Duration::from_millis(number(millis).into());
            communicator.call().deadline(deadline)
        }
    }
}

fn start(
    communicator: &Communicator,
    root: &str,
    len: &str,
    deadline: &str,
) -> Result<Completed<Value>, Failure> {
    let own = value(communicator.rank().get(), len);
    Ok(with(communicator, deadline).gather_as_completed(&own, number(root))?)
}

/// Reads all parts; says whose each is, and stops after it if it is told to.
fn read(mut parts: Completed<Value>, len: &str, rest: &[&str]) -> Result<(), Failure> {
    for part in parts.by_ref() {
        let (rank, value) = part?;
        check_values_of(rank.get(), &value, len)?;
        say(format_args!("part {rank}"));
        pause_between_parts();
        match rest {
            [] => {}
            ["each"] => stop_at("part"),
            _ => panic!("no such way to read: {rest:?}"),
        }
    }
    say_missing(parts.missing());
    Ok(())
}

fn say_missing(missing: &[Missing]) {
    let ranks: Vec<Rank> = missing.iter().map(|missing| missing.rank).collect();
    say(format_args!("missing {}", list(&ranks)));
    for missing in missing {
        say(format_args!("late {missing}"));
    }
}

fn list(ranks: &[Rank]) -> String {
    let ranks: Vec<String> = ranks.iter().map(Rank::to_string).collect();
    if ranks.is_empty() {
        return "none".into();
    }
    ranks.join(",")
}
