//! Steps beyond single calls of the world: groups, pending calls, lists, streams.
#![expect(clippy::panic, reason = "a wrong script has to be mended")]
#![expect(
    clippy::cast_possible_truncation,
    reason = "numbers that are made up need not survive whole"
)]

use std::{
    io::Read,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use fsgather::{Communicator, Options, Payload, Pending, Pieces, Stream, parts::Parts};
use fsgather_tests::{Generated, generate_for, group_of};

use crate::{
    Failure, say,
    values::{
        Value, check_values, check_values_of, count, len_of, number, pause_between_parts, receive,
        value,
    },
};

/// A call that goes on.
enum Going {
    All(Pending<Vec<Value>>, String),
    Root(Pending<Option<Parts<Value>>>, String),
}

/// What has been made of the world.
#[derive(Default)]
pub(crate) struct Family {
    pending: Vec<Option<Going>>,
    /// The innermost is used; with each the job outside of it.
    groups: Vec<(Communicator, u64)>,
}

impl Family {
    /// What calls are made on.
    pub(crate) fn current<'a>(&'a self, world: &'a Communicator) -> &'a Communicator {
        self.groups.last().map_or(world, |(group, _)| group)
    }

    /// Takes a step, if it is one of these.
    pub(crate) fn take(&mut self, world: &Communicator, words: &[&str]) -> Result<bool, Failure> {
        let communicator = self.current(world);
        let me = communicator.rank().get();
        match words {
            ["group", ranks] => {
                let ranks: Vec<u32> = ranks.split(',').map(number).collect();
                let made = communicator.group(&ranks)?;
                self.enter(made, words[1]);
            }
            ["split", colors] => {
                // Backwards within each color.
                let color = me % number(colors);
                let made = communicator.split(Some(color), -i64::from(me))?;
                if let Some(made) = made {
                    self.enter(made, &color.to_string());
                }
            }
            ["leave_group"] => drop(self.leave()?),
            ["close_group"] => self.leave()?.close()?,
            ["list", max, len] => {
                let max = number(max).into();
                let bounded = communicator.with(Options::new().bound(max));
                let values = bounded.all_gather(&value(me, len))?;
                check_values(communicator.world_size().get(), &values, len)?;
            }
            ["start_all_gather", len] => {
                let pending = communicator.start_all_gather(&value(me, len))?;
                self.pending.push(Some(Going::All(pending, (*len).into())));
            }
            ["start_gather", root, len] => {
                let pending = communicator.start_gather(&value(me, len), number(root))?;
                self.pending.push(Some(Going::Root(pending, (*len).into())));
            }
            ["wait", index] => {
                let ranks = communicator.world_size().get();
                match self.going(index) {
                    Going::All(pending, len) => check_values(ranks, &pending.wait()?, &len)?,
                    Going::Root(pending, len) => receive(pending.wait()?, "", |rank, value| {
                        check_values_of(rank, &value, &len)
                    })?,
                }
            }
            // Must not be there yet, within so many milliseconds.
            ["not_yet", index, milliseconds] => {
                let limit = Duration::from_millis(number(milliseconds).into());
                let early = match self.place(index) {
                    Some(Going::All(pending, _)) => pending.wait_timeout(limit)?.is_some(),
                    Some(Going::Root(pending, _)) => pending.wait_timeout(limit)?.is_some(),
                    None => panic!("{index} is not pending"),
                };
                if early {
                    return Err(Failure::Wrong(format!("{index} has come early")));
                }
            }
            ["abandon", index] => drop(self.going(index)),
            ["stream", root, len] => {
                let mut own = Generated::new(me, len_of(len, me));
                let gathered = communicator.gather(Stream::new(&mut own), number(root))?;
                stream(gathered, len)?;
            }
            ["storm", calls, seed] => storm(communicator, number(calls), number(seed).into())?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn enter(&mut self, group: Communicator, members: &str) {
        let job = generate_for(0);
        generate_for(group_of(job, members));
        self.groups.push((group, job));
    }

    fn leave(&mut self) -> Result<Communicator, Failure> {
        let innermost = self.groups.pop();
        let (group, job) = innermost.ok_or_else(|| Failure::Wrong("no group".into()))?;
        generate_for(job);
        Ok(group)
    }

    fn place(&mut self, index: &str) -> &mut Option<Going> {
        let index = number(index) as usize;
        let place = self.pending.get_mut(index);
        place.unwrap_or_else(|| panic!("{index} was not started"))
    }

    fn going(&mut self, index: &str) -> Going {
        let going = self.place(index).take();
        going.unwrap_or_else(|| panic!("{index} is not pending"))
    }
}

/// Reads what a gather has brought piece by piece.
fn stream(gathered: Option<Parts<Payload>>, len: &str) -> Result<(), Failure> {
    let Some(parts) = gathered else {
        return Ok(());
    };
    let mut got = vec![0; 64 << 10];
    let mut right = vec![0; 64 << 10];
    for part in parts.into_readers() {
        let mut part = part?;
        let rank = part.rank().get();
        let expected = len_of(len, rank) as u64;
        let mut generated = Generated::new(rank, len_of(len, rank));
        let mut read = 0;
        loop {
            let wrong = |error| Failure::Wrong(format!("stream of rank {rank}: {error}"));
            let piece = part.read(&mut got).map_err(wrong)?;
            if piece == 0 {
                break;
            }
            generated.read_exact(&mut right[..piece]).map_err(wrong)?;
            if got[..piece] != right[..piece] {
                return Err(Failure::Wrong(format!("wrong stream of rank {rank}")));
            }
            read += piece as u64;
            pause_between_parts();
        }
        if read != expected || part.total_len() != expected {
            return Err(Failure::Wrong(format!("{read} bytes of rank {rank}")));
        }
    }
    Ok(())
}

/// Calls of random kinds and sizes on four groups at the same time, each checked.
fn storm(communicator: &Communicator, calls: u32, seed: u64) -> Result<(), Failure> {
    const GROUPS: u32 = 4;
    let ranks: Vec<u32> = (0..communicator.world_size().get()).collect();
    let made: Vec<Communicator> = (0..GROUPS)
        .map(|_| communicator.group(&ranks))
        .collect::<Result<_, _>>()?;
    let bytes = AtomicU64::new(0);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(made)
            .map(|(number, group)| {
                let bytes = &bytes;
                scope.spawn(move || {
                    for call in 0..u64::from(calls / GROUPS) {
                        let moved = random_call(&group, seed ^ (number << 40) ^ call)?;
                        bytes.fetch_add(moved, Ordering::Relaxed);
                    }
                    group.close().map_err(Failure::from)
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| {
            let ended = thread.join();
            ended.unwrap_or_else(|_| Err(Failure::Wrong("a thread panicked".into())))
        })
    })?;
    say(format_args!("moved {}", bytes.load(Ordering::Relaxed)));
    Ok(())
}

/// One call, the same on all ranks because it depends on `seed` alone; how many bytes it moved.
fn random_call(group: &Communicator, seed: u64) -> Result<u64, Failure> {
    let me = group.rank().get();
    let ranks = group.world_size().get();
    let draw = |rank: u32| {
        let mut bytes = [0; 16];
        let mut generated = Generated::new(rank ^ seed as u32, 1 << 20);
        for _ in 0..=(seed >> 32) % 97 {
            let _ = generated.read_exact(&mut bytes);
        }
        (
            bytes[0],
            u64::from_le_bytes(bytes.first_chunk().copied().unwrap_or_default()) >> 8,
        )
    };
    // Small ones are as likely as large ones: up to 1 byte, 2, 4, ... 8 MiB.
    let len = |rank: u32| {
        let (exponent, number) = draw(rank);
        (number % (1 << (exponent % 24))) as usize
    };
    let own = Generated::new(me, len(me)).bytes();
    let root = draw(ranks).1 as u32 % ranks;
    let right = |rank: u32, part: &[u8]| {
        let right = Generated::new(rank, len(rank)).matches(part);
        right
            .then_some(())
            .ok_or_else(|| Failure::Wrong(format!("wrong payload of rank {rank}")))
    };
    match draw(ranks + 1).0 % 4 {
        0 | 1 => {
            let parts = group.all_gather(Pieces::from(&own))?;
            count(parts.len(), ranks)?;
            for (rank, part) in (0..).zip(&parts) {
                right(rank, part)?;
            }
        }
        2 => {
            let gathered = group.gather(Pieces::from(&own), root)?;
            receive(gathered, "", |rank, part: Payload| right(rank, &part))?;
        }
        _ => {
            let pending = group.start_all_gather(Pieces::from(own))?;
            let other = group.start_gather(Pieces::from(vec![7; 100_000]), root)?;
            receive(other.wait()?, "", |_, part: Payload| {
                if part.len() == 100_000 && part.iter().all(|byte| *byte == 7) {
                    return Ok(());
                }
                Err(Failure::Wrong("wrong sevens".into()))
            })?;
            for (rank, part) in (0..).zip(&pending.wait()?) {
                right(rank, part)?;
            }
        }
    }
    Ok((0..ranks).map(|rank| len(rank) as u64).sum())
}
