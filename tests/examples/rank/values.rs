//! Makes the values that ranks hand over, and checks that others got them.
#![expect(clippy::panic, reason = "a wrong script has to be mended")]

use std::{
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use bytes::Bytes;
use fsgather::{Communicator, Error, Payload, Rank, parts::Parts};
use fsgather_tests::{Generated, length};

use crate::{Failure, stop_at};

/// How long this rank pauses after each part that it reads, in milliseconds.
static PAUSE: AtomicU32 = AtomicU32::new(0);

/// Has this rank pause so many milliseconds after each part that it reads.
pub(crate) fn read_slowly(milliseconds: u32) {
    PAUSE.store(milliseconds, Ordering::SeqCst);
}

/// What a slow reader does after each part.
pub(crate) fn pause_between_parts() {
    pause(PAUSE.load(Ordering::SeqCst));
}

/// Does nothing for so many milliseconds.
#[expect(
    clippy::disallowed_methods,
    reason = "some ranks are asked to be late, and nothing else is waited for"
)]
pub(crate) fn pause(milliseconds: u32) {
    if milliseconds > 0 {
        thread::sleep(Duration::from_millis(milliseconds.into()));
    }
}

/// What typed calls hand over.
pub(crate) type Value = (u32, String, Bytes);

/// A number of a script.
pub(crate) fn number(text: &str) -> u32 {
    text.parse()
        .unwrap_or_else(|_| panic!("{text} is no number"))
}

/// A length of a script.
pub(crate) fn len_of(spec: &str, rank: u32) -> usize {
    length(spec, rank).unwrap_or_else(|| panic!("{spec} is no length"))
}

/// What a rank hands over in typed calls.
pub(crate) fn value(rank: u32, len: &str) -> Value {
    let bytes = Generated::new(rank, len_of(len, rank)).bytes();
    (rank, format!("of rank {rank}"), bytes.into())
}

/// Checks what a gather has brought, if this rank is its root.
pub(crate) fn receive<T>(
    gathered: Option<Parts<T>>,
    stop: &str,
    mut check: impl FnMut(u32, T) -> Result<(), Failure>,
) -> Result<(), Failure>
where
    Parts<T>: Iterator<Item = Result<(Rank, T), Error>>,
{
    let Some(parts) = gathered else {
        return Ok(());
    };
    for part in parts {
        let (rank, part) = part?;
        check(rank.get(), part)?;
        pause_between_parts();
        if rank == 0 && stop == "read" {
            stop_at("reading");
        }
    }
    Ok(())
}

/// Checks the bytes of one rank.
pub(crate) fn check(rank: u32, payload: &[u8], len: &str) -> Result<(), Failure> {
    if Generated::new(rank, len_of(len, rank)).matches(payload) {
        return Ok(());
    }
    let got = payload.len();
    Err(Failure::Wrong(format!(
        "wrong payload of rank {rank}: {got} bytes"
    )))
}

/// Checks the bytes of all ranks.
pub(crate) fn check_all(
    communicator: &Communicator,
    parts: &[Payload],
    len: &str,
) -> Result<(), Failure> {
    count(parts.len(), communicator.world_size().get())?;
    for (rank, part) in (0..).zip(parts) {
        check(rank, part, len)?;
    }
    Ok(())
}

/// Checks the values of all ranks.
pub(crate) fn check_values(ranks: u32, values: &[Value], len: &str) -> Result<(), Failure> {
    count(values.len(), ranks)?;
    for (rank, value) in (0..).zip(values) {
        check_values_of(rank, value, len)?;
    }
    Ok(())
}

/// Checks the value of one rank.
pub(crate) fn check_values_of(rank: u32, value: &Value, len: &str) -> Result<(), Failure> {
    if value.0 != rank || value.1 != format!("of rank {rank}") {
        return Err(Failure::Wrong(format!("wrong value of rank {rank}")));
    }
    check(rank, &value.2, len)
}

/// Checks how many parts have come.
pub(crate) fn count(got: usize, ranks: u32) -> Result<(), Failure> {
    if u32::try_from(got) == Ok(ranks) {
        return Ok(());
    }
    Err(Failure::Wrong(format!("{got} parts of {ranks} ranks")))
}
