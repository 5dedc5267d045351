//! Steps that are one collective call each.
#![expect(clippy::panic, reason = "a wrong script has to be mended")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Instant,
};

use fsgather::{Communicator, Payload, Pieces, Stream};
use fsgather_tests::Generated;

use crate::{
    Failure, say,
    sources::{Awkward, Broken, Source},
    stop_at,
    values::{check, check_all, check_values, check_values_of, len_of, number, receive, value},
};

/// Makes the call that a step asks for.
pub(crate) fn call(communicator: &Communicator, words: &[&str]) -> Result<(), Failure> {
    let me = communicator.rank().get();
    let stop = words.last().copied().unwrap_or_default();
    let own = |len: &str| Generated::new(me, len_of(len, me)).bytes();
    match words {
        ["barrier"] => {
            say(format_args!("calls barrier at line {}", line!() + 1));
            communicator.barrier()?;
        }
        ["barriers"] => barriers(communicator)?,
        ["timed_barriers", count] => timed_barriers(communicator, number(count))?,
        ["all_gather_bytes", len] => {
            let parts = communicator.all_gather(Pieces::from(own(len).as_slice()))?;
            check_all(communicator, &parts, len)?;
        }
        ["all_gather_from", len, ..] => {
            let parts = communicator.all_gather(Stream::new(&mut Source::new(me, len, stop)))?;
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
            let gathered = communicator.gather(Pieces::from(&own), number(root))?;
            receive(gathered, stop, |rank, part: Payload| {
                check(rank, &part, len)
            })?;
        }
        ["gather_from", root, len, ..] => {
            let gathered =
                communicator.gather(Stream::new(&mut Source::new(me, len, stop)), number(root))?;
            receive(gathered, stop, |rank, part: Payload| {
                check(rank, &part, len)
            })?;
        }
        ["broadcast", root, len] => {
            let root = number(root);
            let payload = communicator.broadcast(Pieces::from(own(len).as_slice()), root)?;
            check(root, &payload, len)?;
        }
        ["encode_panics"] => drop(communicator.all_gather(&Awkward::Panics)?),
        ["encode_fails"] => drop(communicator.all_gather(&Awkward::Fails)?),
        ["source_fails"] => drop(communicator.all_gather(Stream::new(&mut Broken))?),
        _ => panic!("no such step: {words:?}"),
    }
    Ok(())
}

/// Calls until rank 0 is told to stop; rank 0 says when they have begun.
fn timed_barriers(communicator: &Communicator, count: u32) -> Result<(), Failure> {
    let mut took = Vec::new();
    for _ in 0..count {
        let since = Instant::now();
        communicator.barrier()?;
        took.push(since.elapsed().as_micros());
    }
    took.sort_unstable();
    say(format_args!("median {}", took[took.len() / 2]));
    Ok(())
}

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
