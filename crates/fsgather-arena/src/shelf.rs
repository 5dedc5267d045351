//! Words by which a rank announces how far it is with payloads that it reads for others of its host: [`Shelf`].
//!
//! The ranks of a host divide the payloads of a call that come from other hosts. Each reads its share into its own arena, in an
//! order that all know, and announces for each payload how far it is; the others look for it there. No rank has to look, and
//! none is notified: a rank that does not find a payload in time reads it as if there were no shelf.
//!
//! Each call has a shelf of its own while its rank [reads for others](crate::ReadingForOthers), and until seven later calls
//! have taken the other shelves: calls of several groups are read at the same time, and the slowest rank of a group still looks
//! for payloads while the fastest is already in a call of another group.

use std::{collections::VecDeque, sync::atomic::AtomicU64};

use fsgather_core::CallId;

use crate::{
    location::Location,
    memory::Words,
    versioned::{Versioned, words_of},
};

/// Number of payloads of a call that a rank can read for others.
pub const MOST_READ: usize = 64;

/// Number of calls for which a rank can read for others at the same time.
pub(crate) const SHELVES: usize = 8;

/// Number of words of an entry: channel, epoch, number, state, and four of a location.
const ENTRY_WORDS: usize = 8;

/// An entry: its version and its words.
type Entry<'words> = Versioned<'words, AtomicU64, ENTRY_WORDS>;

/// The states of a payload.
const ARRIVING: u64 = 1;
const WHOLE: u64 = 2;
const NO_PLACE: u64 = 3;

/// State of one payload that a rank reads for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadSoFar {
    /// This number of bytes has arrived.
    Comes(u64),
    /// The payload is complete, at this location.
    Whole(Location),
    /// The payload is not in memory that others could read.
    NoPlace,
}

impl ReadSoFar {
    fn words(self) -> [u64; 5] {
        match self {
            Self::Comes(bytes) => [ARRIVING, bytes, 0, 0, 0],
            Self::Whole(at) => [WHOLE, u64::from(at.slot), at.generation, at.start, at.len],
            Self::NoPlace => [NO_PLACE, 0, 0, 0, 0],
        }
    }

    fn of(words: [u64; 5]) -> Option<Self> {
        match words {
            [ARRIVING, bytes, ..] => Some(Self::Comes(bytes)),
            [WHOLE, slot, generation, start, len] => Some(Self::Whole(Location {
                slot: u32::try_from(slot).ok()?,
                generation,
                start,
                len,
            })),
            [NO_PLACE, ..] => Some(Self::NoPlace),
            _ => None,
        }
    }
}

/// Indices of the shelves on which no call is being read, the one that is idle longest first.
#[derive(Debug)]
pub(crate) struct IdleShelves(pub(crate) VecDeque<usize>);

impl Default for IdleShelves {
    fn default() -> Self {
        Self((0..SHELVES).collect())
    }
}

/// Entries of a call, by the number of a payload in a rank's share. A later call overwrites those of an earlier one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shelf<'words> {
    words: &'words Words,
    first: usize,
}

impl<'words> Shelf<'words> {
    /// Number of words that a shelf takes.
    pub(crate) const WORDS: usize = MOST_READ * Entry::WORDS;

    /// Returns the shelf that begins at the word `first`.
    pub(crate) const fn at(words: &'words Words, first: usize) -> Self {
        Self { words, first }
    }

    /// Announces how far this rank is with a payload of its share. Only for the rank that owns the shelf.
    pub(crate) fn say(self, call: CallId, number: usize, so_far: ReadSoFar) {
        if let Some(entry) = self.entry(number) {
            entry.say(content(call, number, so_far.words()));
        }
    }

    /// Returns how far the rank is with a payload of its share, if the rank currently says so.
    pub(crate) fn look(self, call: CallId, number: usize) -> Option<ReadSoFar> {
        let [channel, epoch, its, words @ ..] = self.entry(number)?.read()?;
        let [expected_channel, expected_epoch] = words_of(call);
        let is_meant = (channel, epoch, its) == (expected_channel, expected_epoch, number as u64);
        is_meant.then(|| ReadSoFar::of(words))?
    }

    fn entry(self, number: usize) -> Option<Entry<'words>> {
        (number < MOST_READ).then_some(())?;
        Entry::of(|index| self.words.get(self.first + number * Entry::WORDS + index))
    }
}

fn content(call: CallId, number: usize, words: [u64; 5]) -> [u64; ENTRY_WORDS] {
    let [channel, epoch] = words_of(call);
    let [state, one, two, three, four] = words;
    [channel, epoch, number as u64, state, one, two, three, four]
}

#[cfg(test)]
pub(crate) mod tests {
    use fsgather_core::{ChannelId, Epoch};

    use super::*;
    use crate::versioned::Word;

    pub(crate) fn call(channel: u64, epoch: u64) -> CallId {
        CallId {
            channel: ChannelId::new(channel),
            epoch: Epoch::new(epoch),
        }
    }

    pub(crate) fn location(slot: u32) -> Location {
        Location {
            slot,
            generation: 7,
            start: 1 << 40,
            len: 3,
        }
    }

    #[test]
    fn what_is_said_of_one_payload_is_no_other_ones() {
        let (words, file) = Words::make(2 + Shelf::WORDS).unwrap();
        let theirs = Words::map(file.into(), 2 + Shelf::WORDS).unwrap();
        let (own, their) = (Shelf::at(&words, 2), Shelf::at(&theirs, 2));
        assert_eq!(their.look(call(0, 0), 0), None);
        for so_far in [
            ReadSoFar::Comes(0),
            ReadSoFar::Comes(u64::MAX),
            ReadSoFar::Whole(location(5)),
            ReadSoFar::NoPlace,
        ] {
            own.say(call(1, 2), MOST_READ - 1, so_far);
            assert_eq!(their.look(call(1, 2), MOST_READ - 1), Some(so_far));
            for (other, number) in [
                (call(1, 3), MOST_READ - 1),
                (call(2, 2), MOST_READ - 1),
                (call(1, 2), MOST_READ - 2),
                (call(1, 2), MOST_READ),
            ] {
                assert_eq!(their.look(other, number), None);
            }
        }
        own.say(call(1, 2), MOST_READ, ReadSoFar::NoPlace);
        assert_eq!(words.get(1).map(Word::read), Some(0));
    }
}
