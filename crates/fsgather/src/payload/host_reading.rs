//! Ranks of a host read payload files for each other: [`read_for_each_other`].
//!
//! In an all-gather all ranks of a host read the same files. Ranks that share memory divide the files: each reads and
//! verifies some files into its arena, and finds the other files in the arenas of the others. So each file is opened,
//! read and verified once for a host, and its content is in memory once. No rank depends on another: if a peer's file
//! does not appear in time, the rank stops sharing for this call and reads every file itself.

use std::{
    io::{ErrorKind, Read},
    thread,
    time::{Duration, Instant},
};

use fsgather_arena::{Filling, Leased, Location, ReadSoFar, ReadingForOthers};
use fsgather_core::{Backoff, Error, Rank, Recipients};

use crate::{
    call::guard::CallGuard,
    payload::{
        header::FileHeader,
        part::IncomingPart,
        reading_turns::{Patience, Turn, turns},
        shared_memory::Share,
    },
};

/// Length of the parts in which a file is read, in bytes.
const PIECE: usize = 1 << 20;

/// Shortest and longest pause between looks at the progress of another rank.
const MIN_PAUSE: Duration = Duration::from_micros(20);
const MAX_PAUSE: Duration = Duration::from_millis(1);

/// Interval at which this rank reports while it waits for others.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// Reads the files that this rank must read for the others of its host, and finds those that the others have read for
/// it. This rank reads all remaining files alone.
pub(crate) fn read_for_each_other(
    guard: &CallGuard,
    mut incoming: Vec<IncomingPart>,
) -> Result<Vec<IncomingPart>, Error> {
    let inner = &guard.inner;
    let members = inner.sharing_memory();
    let me = members
        .iter()
        .position(|member| *member == inner.world.rank);
    let is_for_all = guard.ticket.call.recipients() == Recipients::All;
    let Some((me, mut share)) = me
        .filter(|_| is_for_all)
        .zip(Share::of_host(inner, &guard.ticket))
    else {
        return Ok(incoming);
    };
    let lens: Vec<Option<u64>> = incoming
        .iter()
        .map(|part| part.file().map(|_| part.len()))
        .collect();
    let turns = turns(&lens, members.len());
    let Some(mut reading) = share.read_for_others() else {
        return Ok(incoming);
    };
    let mut found: Vec<(usize, Leased)> = Vec::new();
    for turn in turns.iter().filter(|turn| turn.reader == me) {
        let file = incoming.get(turn.place).and_then(IncomingPart::file);
        let location = file
            .map(|file| read(guard, &share, &mut reading, turn, file))
            .transpose()?;
        let leased = location
            .flatten()
            .and_then(|location| share.lease(inner.world.rank, &location));
        found.extend(leased.map(|leased| (turn.place, leased)));
    }
    drop(reading);
    let mut patience = Patience::new(members.len(), Instant::now());
    // The files that the next ranks read first come first.
    let mut others: Vec<&Turn> = turns.iter().filter(|turn| turn.reader != me).collect();
    others.sort_by_key(|turn| {
        let distance = (turn.reader + members.len() - me) % members.len();
        (turn.number, distance)
    });
    for turn in others {
        let Some(owner) = members.get(turn.reader).copied() else {
            return Ok(incoming);
        };
        let leased = match wait(&mut patience, guard, &share, owner, turn)? {
            Awaited::Whole(location) => share.lease(owner, &location),
            Awaited::NoPlace => continue,
            Awaited::InVain => None,
        };
        let Some(leased) = leased else {
            tracing::debug!("rank {owner} has not read in time what it was to read for this rank");
            // The share ends before the call is left, and gives up payloads that are placed later.
            return Ok(incoming);
        };
        guard.moved(leased.len() as u64)?;
        found.push((turn.place, leased));
    }
    for (place, leased) in found {
        if let Some(part) = incoming.get_mut(place) {
            *part = IncomingPart::Shared(leased);
        }
    }
    share.close();
    Ok(incoming)
}

/// Reads a file for all ranks of this host. Returns its location, if there is a place for it.
fn read(
    guard: &CallGuard,
    share: &Share,
    reading: &mut ReadingForOthers,
    turn: &Turn,
    file: &FileHeader,
) -> Result<Option<Location>, Error> {
    let inner = &guard.inner;
    let mut say = |so_far| reading.say(turn.number, so_far);
    say(ReadSoFar::Comes(0));
    let Some(mut filling) = share.begin(inner, file.locator.raw_len) else {
        say(ReadSoFar::NoPlace);
        return Ok(None);
    };
    fill(guard, turn, file, &mut filling, |bytes| {
        say(ReadSoFar::Comes(bytes));
    })?;
    let location = *filling.location();
    say(ReadSoFar::Whole(location));
    Ok(Some(location))
}

/// Reads and verifies all of a file.
fn fill(
    guard: &CallGuard,
    turn: &Turn,
    file: &FileHeader,
    filling: &mut Filling,
    mut say: impl FnMut(u64),
) -> Result<(), Error> {
    let rank = Rank::new(u32::try_from(turn.place).unwrap_or(u32::MAX));
    let part = IncomingPart::File(file.clone());
    let mut stream = part.open(&guard.inner, rank, guard.moving())?;
    loop {
        let room = filling.room();
        let most = room.len().min(PIECE);
        // Reads at the end as well: only then is the payload known to be whole.
        let mut beyond = [0];
        let into = if most == 0 {
            &mut beyond[..]
        } else {
            &mut room[..most]
        };
        match stream.read(into) {
            Ok(0) if most == 0 => return Ok(()),
            Ok(read) if read > 0 && most > 0 => {
                filling.came(read);
                say(filling.filled().len() as u64);
            }
            Ok(_) => {
                return Err(guard.raised(format!(
                    "the payload of rank {rank} has another length than announced"
                )));
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                let unknown = || {
                    guard.raised(format!(
                        "the payload of rank {rank} cannot be read: {error}"
                    ))
                };
                return Err(stream.take_error().unwrap_or_else(unknown));
            }
        }
    }
}

/// The result of waiting for another rank.
enum Awaited {
    /// It has read the payload into this location.
    Whole(Location),
    /// It has no place for it.
    NoPlace,
    /// It makes no progress.
    InVain,
}

/// Waits until another rank has read a payload, as long as it makes progress.
fn wait(
    patience: &mut Patience,
    guard: &CallGuard,
    share: &Share,
    owner: Rank,
    turn: &Turn,
) -> Result<Awaited, Error> {
    let mut pauses = Backoff::new(MIN_PAUSE, MAX_PAUSE);
    let mut told_at = Instant::now();
    loop {
        let now = Instant::now();
        match share.look_for(owner, turn.number) {
            Some(ReadSoFar::Whole(location)) => return Ok(Awaited::Whole(location)),
            Some(ReadSoFar::NoPlace) => return Ok(Awaited::NoPlace),
            Some(ReadSoFar::Comes(bytes)) => patience.saw(turn, bytes, now),
            None => {}
        }
        if patience.is_over(turn, now) {
            return Ok(Awaited::InVain);
        }
        if now.duration_since(told_at) >= TOLD_EVERY {
            told_at = now;
            guard.moved(0)?;
        }
        thread::park_timeout(pauses.next_pause());
    }
}
