//! Ranks of a host read payload files for each other: [`read_for_each_other`].
//!
//! In an all-gather all ranks of a host read the same files. Those that share memory share the files out: each reads some into
//! its arena, which verifies them, and finds the others there. So a file is opened, read and verified once for a host, and what
//! it holds is in memory once. Nobody depends on anybody: who does not find in time what another rank was to read gives that
//! up for the call, and reads everything itself.

use std::{
    io::{ErrorKind, Read},
    thread,
    time::{Duration, Instant},
};

use fsgather_arena::{Filling, Leased, Location, MOST_READ, ReadSoFar, ReadingForOthers};
use fsgather_core::{Backoff, Error, Rank, Recipients};

use crate::{
    call::guard::CallGuard,
    payload::{
        header::FileHeader,
        part::IncomingPart,
        shared_memory::{SMALLEST, Share},
    },
};

/// How long a rank is waited for that has not begun to read what it is to read for others.
const BEGUN_WITHIN: Duration = Duration::from_millis(50);

/// How long nothing may come of what a rank reads for others.
const STANDS_STILL: Duration = Duration::from_secs(1);

/// How much of a file is read at a time, in bytes.
const PIECE: usize = 1 << 20;

/// Pauses between looks at what another rank reads.
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(1);

/// Bytes have moved, or time has passed, while others are waited for.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// Who reads a payload for all ranks of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    /// The payload's place in the group.
    place: usize,
    /// The reader's place among the ranks of the host,
    reader: usize,
    /// and the payload's number among those that it reads.
    number: usize,
}

/// Who of so many ranks of a host reads what, where `lens` says how long each payload is that lies in a file; the same on all
/// of them.
fn turns(lens: &[Option<u64>], readers: usize) -> Vec<Turn> {
    let worth_it = |(place, len): (usize, &Option<u64>)| {
        len.is_some_and(|len| len >= SMALLEST).then_some(place)
    };
    let places = lens.iter().enumerate().filter_map(worth_it);
    let turns = places.enumerate().map(|(index, place)| Turn {
        place,
        reader: index % readers.max(1),
        number: index / readers.max(1),
    });
    turns.take_while(|turn| turn.number < MOST_READ).collect()
}

/// Reads what this rank is to read for the others of its host, and finds what they have read for it; whatever else there is
/// stays to be read by this rank alone.
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
    let mut patience = Patience::new(members.len());
    // Those that the next ranks read first come first.
    let mut others: Vec<&Turn> = turns.iter().filter(|turn| turn.reader != me).collect();
    others.sort_by_key(|turn| {
        let distance = (turn.reader + members.len() - me) % members.len();
        (turn.number, distance)
    });
    for turn in others {
        let Some(owner) = members.get(turn.reader).copied() else {
            return Ok(incoming);
        };
        let leased = match patience.wait(guard, &share, owner, turn)? {
            Awaited::Whole(location) => share.lease(owner, &location),
            Awaited::NoPlace => continue,
            Awaited::InVain => None,
        };
        let Some(leased) = leased else {
            tracing::debug!("rank {owner} has not read in time what it was to read for this rank");
            // The share ends before the call is left, and gives up whatever comes of it.
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

/// Reads a file for all ranks of this host; where it lies, if there is a place for it.
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
        // At the end as well: only then is it known to be whole.
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

/// What has come of waiting for another rank.
enum Awaited {
    /// It has read the payload, which lies here.
    Whole(Location),
    /// It has no place for it.
    NoPlace,
    /// It does not get on.
    InVain,
}

/// How long this rank has seen nothing come of what others read.
struct Patience {
    /// By the ranks of the host: what was seen last, and since when.
    seen: Vec<Option<(usize, u64, Instant)>>,
    began: Instant,
}

impl Patience {
    fn new(readers: usize) -> Self {
        Self {
            seen: vec![None; readers],
            began: Instant::now(),
        }
    }

    /// Waits until another rank has read a payload, as long as it gets on.
    fn wait(
        &mut self,
        guard: &CallGuard,
        share: &Share,
        owner: Rank,
        turn: &Turn,
    ) -> Result<Awaited, Error> {
        let mut pauses = Backoff::new(SHORTEST, LONGEST);
        let mut told_at = Instant::now();
        loop {
            let now = Instant::now();
            match share.look_for(owner, turn.number) {
                Some(ReadSoFar::Whole(location)) => return Ok(Awaited::Whole(location)),
                Some(ReadSoFar::NoPlace) => return Ok(Awaited::NoPlace),
                Some(ReadSoFar::Comes(bytes)) => self.saw(turn, bytes, now),
                None => {}
            }
            if self.is_over(turn, now) {
                return Ok(Awaited::InVain);
            }
            if now.duration_since(told_at) >= TOLD_EVERY {
                told_at = now;
                guard.moved(0)?;
            }
            thread::park_timeout(pauses.next_pause());
        }
    }

    fn saw(&mut self, turn: &Turn, bytes: u64, now: Instant) {
        if let Some(seen) = self.seen.get_mut(turn.reader) {
            let is_news =
                seen.is_none_or(|(number, before, _)| (number, before) != (turn.number, bytes));
            if is_news {
                *seen = Some((turn.number, bytes, now));
            }
        }
    }

    /// Whether a rank has not begun in time, or has not got on since.
    fn is_over(&self, turn: &Turn, now: Instant) -> bool {
        let seen = self.seen.get(turn.reader).copied().flatten();
        let (since, most) = match seen {
            Some((_, _, since)) => (since, STANDS_STILL),
            // What was read before it was looked at begins with the first look.
            None if turn.number > 0 => (self.began, STANDS_STILL),
            None => (self.began, BEGUN_WITHIN),
        };
        now.duration_since(since) >= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_payload_in_a_file_is_read_by_one_and_all_read_as_many() {
        let long = Some(SMALLEST);
        let lens = [long, None, long, Some(SMALLEST - 1), long, long, long];
        let turn = |place, reader, number| Turn {
            place,
            reader,
            number,
        };
        let expected = [
            turn(0, 0, 0),
            turn(2, 1, 0),
            turn(4, 0, 1),
            turn(5, 1, 1),
            turn(6, 0, 2),
        ];
        assert_eq!(turns(&lens, 2), expected);
        assert_eq!(turns(&vec![long; 1000], 3).len(), 3 * MOST_READ);
        assert_eq!(turns(&lens, 0).len(), 5);
    }

    #[test]
    fn who_does_not_begin_is_waited_for_shorter_than_who_gets_on() {
        let mut patience = Patience::new(2);
        let turn = Turn {
            place: 3,
            reader: 1,
            number: 0,
        };
        let after = |time| patience.began + time;
        let (soon, later) = (after(BEGUN_WITHIN), after(STANDS_STILL));
        assert!(!patience.is_over(&turn, after(BEGUN_WITHIN / 2)));
        assert!(patience.is_over(&turn, soon));
        patience.saw(&turn, 0, soon);
        patience.saw(&turn, 0, later);
        assert!(!patience.is_over(&turn, later));
        assert!(patience.is_over(&turn, soon + STANDS_STILL));
        patience.saw(&turn, 1, later);
        assert!(!patience.is_over(&turn, soon + STANDS_STILL));
        let next = Turn { number: 1, ..turn };
        assert!(!patience.is_over(&next, later));
        assert!(patience.is_over(&next, later + STANDS_STILL));
    }
}
