//! Steps as bindings to other languages make them: payloads in pieces, calls with options.
#![expect(clippy::panic, reason = "a wrong script has to be mended")]

use std::time::Duration;

use bytes::Bytes;
use fsgather::{Communicator, Payload, Pieces, Transport, bindings::CallOptions};
use fsgather_tests::Generated;

use crate::{
    Failure,
    values::{check, check_all, len_of, number, receive},
};

/// Takes a step, if it is one of these.
pub(crate) fn take(communicator: &Communicator, words: &[&str]) -> Result<bool, Failure> {
    let me = communicator.rank().get();
    let plain = CallOptions {
        site: Some("script.py:7".into()),
        ..CallOptions::default()
    };
    match words {
        ["timed_barrier", milliseconds] => {
            let timeout = Some(Duration::from_millis(number(milliseconds).into()));
            communicator
                .call_with(&CallOptions { timeout, ..plain })
                .barrier()?;
        }
        ["tagged", tag] => communicator.call().tag(*tag).barrier()?,
        ["barrier_with"] => communicator.call_with(&plain).barrier()?,
        ["all_gather_pieces", len] => all_gather(communicator, len, &plain)?,
        ["by", transport, directory, len] => {
            let mut handle = communicator.with_transport(match *transport {
                "filesys" => Transport::Filesys,
                "memory" => Transport::Memory,
                other => panic!("{other} is no transport"),
            });
            if *directory != "-" {
                handle = handle.with_directory(*directory);
            }
            all_gather(&handle, len, &plain)?;
        }
        ["bounded_pieces", max, len] => {
            let how = CallOptions {
                bound: Some(number(max).into()),
                ..plain
            };
            all_gather(communicator, len, &how)?;
        }
        ["gather_pieces", root, len, ..] => {
            let stop = words.last().copied().unwrap_or_default();
            let gathered = communicator
                .call_with(&plain)
                .gather_bytes(own(me, len), number(root))?;
            receive(gathered, stop, |rank, part: Payload| {
                check_and_overwrite(rank, part, len)
            })?;
        }
        ["broadcast_pieces", root, len] => {
            let root = number(root);
            let own = if me == root {
                own(me, len)
            } else {
                (&[]).into()
            };
            let payload = communicator.call_with(&plain).broadcast_bytes(own, root)?;
            check_and_overwrite(root, payload, len)?;
        }
        ["rootless_broadcast", root] => {
            let none = Pieces::failing("it has nothing to hand over");
            drop(
                communicator
                    .call_with(&plain)
                    .broadcast_bytes(none, number(root))?,
            );
        }
        ["start_pieces", root, len] => {
            let first = communicator
                .call_with(&plain)
                .start_all_gather_bytes(own(me, len))?;
            let second = communicator
                .call_with(&plain)
                .start_gather_bytes(own(me, len), number(root))?;
            receive(second.wait()?, "", |rank, part: Payload| {
                check_and_overwrite(rank, part, len)
            })?;
            check_all(communicator, &first.wait()?, len)?;
        }
        ["group_with", ranks] => {
            let ranks: Vec<u32> = ranks.split(',').map(number).collect();
            let group = communicator.call_with(&plain).group(&ranks)?;
            all_gather(&group, "1000", &plain)?;
            group.call_with(&plain).close()?;
        }
        ["split_with", colors] => {
            let group = communicator
                .call_with(&plain)
                .split(Some(me % number(colors)), 0)?;
            let group = group.ok_or_else(|| Failure::Wrong("no group".into()))?;
            group.call_with(&plain).barrier()?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn all_gather(communicator: &Communicator, len: &str, how: &CallOptions) -> Result<(), Failure> {
    let me = communicator.rank().get();
    let parts = communicator.call_with(how).all_gather_bytes(own(me, len))?;
    check_all(communicator, &parts, len)?;
    // Others may still be reading, and have to find what was handed in.
    for part in parts {
        part.into_writable().fill(0xa5);
    }
    Ok(())
}

fn check_and_overwrite(rank: u32, part: Payload, len: &str) -> Result<(), Failure> {
    check(rank, &part, len)?;
    let mut own = part.into_writable();
    check(rank, &own, len)?;
    own.fill(0xa5);
    Ok(())
}

/// What a rank hands over, cut where nothing fits together.
fn own(rank: u32, len: &str) -> Pieces<'static> {
    let mut rest = Bytes::from(Generated::new(rank, len_of(len, rank)).bytes());
    let mut pieces = vec![Bytes::new()];
    for at in [1, 99, rest.len() / 2, 3 << 20] {
        pieces.push(rest.split_to(at.min(rest.len())));
    }
    pieces.extend([Bytes::new(), rest]);
    Pieces::new(Pieces::PYTHON, pieces)
}
