//! The words by which a rank says how far it is with payloads that it reads for others of its host: [`Shelf`].
//!
//! The ranks of a host share out the payloads of a call that lie elsewhere. Each reads its share into its own arena, in an
//! order that all know, and says for each how far it is; the others look for it there. Nobody has to look, and nobody is
//! told: who does not find a payload in time reads it as if there were no shelf.
//!
//! Each call has a shelf to itself while its rank [reads for others](crate::ReadingForOthers), and as long as seven later ones have not
//! taken the others: calls of several groups are read at once, and the slowest of a group still looks when the fastest is in
//! another one's call.

use std::{collections::VecDeque, sync::atomic::AtomicU64};

use fsgather_core::CallId;

use crate::{
    location::Location,
    memory::Words,
    versioned::{Versioned, words_of},
};

/// Number of payloads of a call that a rank can read for others.
pub const MOST_READ: usize = 64;

/// For how many calls at once.
pub(crate) const SHELVES: usize = 8;

/// Number of words that are said of a payload: channel, epoch, number, state, and four of a place.
const SAID: usize = 8;

/// These and their version.
type Entry<'words> = Versioned<'words, AtomicU64, SAID>;

/// The states of a payload.
const COMES: u64 = 1;
const WHOLE: u64 = 2;
const NO_PLACE: u64 = 3;

/// How far a rank is with one payload that it reads for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadSoFar {
    /// So many bytes of it have come.
    Comes(u64),
    /// It lies here.
    Whole(Location),
    /// It is in no place where others could read it.
    NoPlace,
}

impl ReadSoFar {
    fn words(self) -> [u64; 5] {
        match self {
            Self::Comes(bytes) => [COMES, bytes, 0, 0, 0],
            Self::Whole(at) => [WHOLE, u64::from(at.slot), at.generation, at.start, at.len],
            Self::NoPlace => [NO_PLACE, 0, 0, 0, 0],
        }
    }

    fn of(words: [u64; 5]) -> Option<Self> {
        match words {
            [COMES, bytes, ..] => Some(Self::Comes(bytes)),
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

/// The shelves of a rank on which no call is being read, those first that have been so for longest.
#[derive(Debug)]
pub(crate) struct IdleShelves(pub(crate) VecDeque<usize>);

impl Default for IdleShelves {
    fn default() -> Self {
        Self((0..SHELVES).collect())
    }
}

/// The entries of a call, by the numbers of payloads in a rank's share. A later call writes over those of an earlier one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shelf<'words> {
    words: &'words Words,
    first: usize,
}

impl<'words> Shelf<'words> {
    /// Number of words that it takes.
    pub(crate) const WORDS: usize = MOST_READ * Entry::WORDS;

    /// The one that begins at a word.
    pub(crate) const fn at(words: &'words Words, first: usize) -> Self {
        Self { words, first }
    }

    /// Says how far this rank is with a payload of its share; for the one who has the shelf.
    pub(crate) fn say(self, call: CallId, number: usize, so_far: ReadSoFar) {
        if let Some(entry) = self.entry(number) {
            entry.say(content(call, number, so_far.words()));
        }
    }

    /// How far the rank is with a payload of its share, if it says so now.
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

fn content(call: CallId, number: usize, words: [u64; 5]) -> [u64; SAID] {
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
