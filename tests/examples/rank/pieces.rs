//! Steps as bindings to other languages make them: payloads in pieces, calls with options.
#![expect(clippy::panic, reason = "a wrong script has to be mended")]

use std::time::Duration;

use bytes::Bytes;
use fsgather::{Communicator, Options, Payload, Pieces, Transport};
use fsgather_tests::Generated;

use crate::{
    Failure,
    values::{check, check_all, len_of, number, receive},
};

/// Takes a step, if it is one of these.
pub(crate) fn take(communicator: &Communicator, words: &[&str]) -> Result<bool, Failure> {
    let me = communicator.rank().get();
    let sited = communicator.with(Options::new().site("script.py:7"));
    match words {
        ["timed_barrier", milliseconds] => {
            let timeout = Duration::from_millis(number(milliseconds).into());
            sited.with(Options::new().timeout(timeout)).barrier()?;
        }
        ["tagged", tag] => communicator.with(Options::new().tag(*tag)).barrier()?,
        ["barrier_with"] => sited.barrier()?,
        ["all_gather_pieces", len] => all_gather(&sited, len)?,
        ["by", transport, directory, len] => {
            let mut options = Options::new().transport(match *transport {
                "filesys" => Transport::Filesys,
                "memory" => Transport::Memory,
                other => panic!("{other} is no transport"),
            });
            if *directory != "-" {
                options = options.directory(*directory);
            }
            all_gather(&sited.with(options), len)?;
        }
        ["bounded_pieces", max, len] => {
            let bound = Options::new().bound(number(max).into());
            all_gather(&sited.with(bound), len)?;
        }
        ["gather_pieces", root, len, ..] => {
            let stop = words.last().copied().unwrap_or_default();
            let gathered = sited.gather(own(me, len), number(root))?;
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
            let payload = sited.broadcast(own, root)?;
            check_and_overwrite(root, payload, len)?;
        }
        ["rootless_broadcast", root] => {
            let none = Pieces::failing("it has nothing to hand over");
            drop(sited.broadcast(none, number(root))?);
        }
        ["start_pieces", root, len] => {
            let first = sited.start_all_gather(own(me, len))?;
            let second = sited.start_gather(own(me, len), number(root))?;
            receive(second.wait()?, "", |rank, part: Payload| {
                check_and_overwrite(rank, part, len)
            })?;
            check_all(communicator, &first.wait()?, len)?;
        }
        ["group_with", ranks] => {
            let ranks: Vec<u32> = ranks.split(',').map(number).collect();
            let group = sited
                .group(&ranks)?
                .with(Options::new().site("script.py:7"));
            all_gather(&group, "1000")?;
            group.close()?;
        }
        ["split_with", colors] => {
            let group = sited.split(Some(me % number(colors)), 0)?;
            let group = group.ok_or_else(|| Failure::Wrong("no group".into()))?;
            group.with(Options::new().site("script.py:7")).barrier()?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn all_gather(communicator: &Communicator, len: &str) -> Result<(), Failure> {
    let me = communicator.rank().get();
    let parts = communicator.all_gather(own(me, len))?;
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
