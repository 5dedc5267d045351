//! The words of an arena, by which its readers say that they have let go of payloads: [`Ledger`].
//!
//! Each word has one writer. In this order, eight bytes each:
//!
//! | words | by whom | what |
//! |---|---|---|
//! | 4 for each slot | the owner | number, length, channel and epoch of its payload, before it is announced |
//! | 9 for each of 64 payloads of each of 8 calls | the owner | [how far it is](Shelf) with what it reads for others of its host |
//! | 1 for each slot, for each reader | the reader | the number of the latest payload that it has let go of |
//! | 3 for each of 16 calls, for each reader | the reader | [version, channel and epoch](GivenUp) of calls whose payloads it will never ask for |
//!
//! Numbers of payloads only grow, so a word that has been written stays true.
//!
//! A reader may be far ahead of an owner, and have given up more calls than its words say. It remembers those, and lets go of
//! their payloads once it sees them.

use std::{
    collections::BTreeSet,
    sync::{Mutex, atomic::AtomicU64},
};

use fsgather_core::{ChannelId, Epoch, Rank, lock};

use crate::{
    given_up::{GivenUp, Word},
    location::Location,
    memory::Words,
    shelf::{ReadSoFar, SHELVES, Shelf},
};

/// An entry in words that are really shared.
type Entry<'words> = GivenUp<'words, AtomicU64>;

/// How many words say what a slot holds.
const SLOT_WORDS: usize = 4;

/// How many calls the words of a reader say that it has given up.
const GIVEN_UP: usize = 16;

/// How many more it remembers. What owners place after that many others keeps its slot until the end.
const REMEMBERED: usize = 256;

/// The number of a slot's payload while the slot has none that is said.
const NO_PAYLOAD: u64 = 0;

/// How many slots an arena may have.
pub(crate) const MOST_SLOTS: usize = 64;

/// What the owner writes.
const BEFORE_READERS: usize = MOST_SLOTS * SLOT_WORDS + SHELVES * Shelf::WORDS;

/// What a reader has to itself.
const READER_WORDS: usize = MOST_SLOTS + Entry::WORDS * GIVEN_UP;

/// One call of one communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallKey {
    /// The communicator, or group of it.
    pub channel: ChannelId,
    /// The call's number in it.
    pub epoch: Epoch,
}

impl CallKey {
    /// As words. No epoch is stored as zero, which a word that nobody has written holds.
    pub(crate) const fn words(self) -> [u64; 2] {
        [self.channel.get(), self.epoch.get().wrapping_add(1)]
    }
}

/// What the words of a slot say, of which the number is the first.
const fn description(location: &Location, call: CallKey) -> [u64; SLOT_WORDS] {
    let [channel, epoch] = call.words();
    [location.generation, location.len, channel, epoch]
}

/// The words of one arena, of the own one or another rank's.
#[derive(Debug)]
pub(crate) struct Ledger {
    words: Words,
    world_size: usize,
    /// What this process has given up as a reader and its words say no more, as channels and epochs.
    given_up: Mutex<BTreeSet<[u64; 2]>>,
}

impl Ledger {
    /// How many words a world of so many ranks needs.
    pub(crate) const fn words(world_size: usize) -> usize {
        BEFORE_READERS + world_size * READER_WORDS
    }

    /// `words` are as many as [`Self::words`] says, or it answers as if nobody had written any.
    pub(crate) const fn new(words: Words, world_size: usize) -> Self {
        Self {
            words,
            world_size,
            given_up: Mutex::new(BTreeSet::new()),
        }
    }

    /// One of the shelves for what the owner reads for others.
    pub(crate) const fn shelf(&self, index: usize) -> Shelf<'_> {
        Shelf::at(&self.words, MOST_SLOTS * SLOT_WORDS + index * Shelf::WORDS)
    }

    /// How far the owner is with a payload of its share of what is read for others, if it says so now.
    pub(crate) fn look_for(&self, call: CallKey, number: usize) -> Option<ReadSoFar> {
        (0..SHELVES).find_map(|index| self.shelf(index).look(call, number))
    }

    /// Says what a slot holds, before anybody is told of it. The number comes last, and none is there meanwhile: who reads the
    /// same one before and after the rest has read what is of one payload.
    pub(crate) fn describe(&self, location: &Location, call: CallKey) {
        let [number, rest @ ..] = description(location, call);
        let say = |index, value| {
            if let Some(word) = self.slot_word(location.slot(), index) {
                word.write(value);
            }
        };
        say(0, NO_PAYLOAD);
        for (index, value) in (1..).zip(rest) {
            say(index, value);
        }
        say(0, number);
    }

    /// The number of a slot's payload, and the words of its call, if it has one.
    fn payload(&self, slot: usize) -> Option<(u64, [u64; 2])> {
        let word = |index| self.slot_word(slot, index).map(Word::read);
        let number = word(0)?;
        let call = [word(2)?, word(3)?];
        let is_one = number != NO_PAYLOAD && word(0)? == number;
        is_one.then_some((number, call))
    }

    /// Whether a slot holds this payload.
    pub(crate) fn holds(&self, location: &Location, call: CallKey) -> bool {
        let expected = description(location, call).into_iter().enumerate();
        expected.into_iter().all(|(index, value)| {
            self.slot_word(location.slot(), index)
                .is_some_and(|word| word.read() == value)
        })
    }

    /// Says that `reader` has let go of a payload.
    pub(crate) fn let_go(&self, reader: Rank, location: &Location) {
        let slot = location.slot();
        if slot < MOST_SLOTS
            && let Some(word) = self.reader_word(reader, slot)
        {
            // A payload that was held for longer than a later one of the same slot cannot be.
            word.raise(location.generation);
        }
    }

    /// Says that `reader` will never ask for payloads of a call, which has given up so many others `before`; one thread at a time.
    pub(crate) fn give_up(&self, reader: Rank, call: CallKey, before: usize) {
        let [channel, epoch] = call.words();
        for slot in 0..MOST_SLOTS {
            let number = self.payload(slot).filter(|(_, its)| *its == call.words());
            if let Some(((number, _), word)) = number.zip(self.reader_word(reader, slot)) {
                word.raise(number);
            }
        }
        // The owner may still be about to place something. The one that was said first goes, whatever group it is of: owners have
        // had the most time to hear of it.
        if let Some(oldest) = self.entries(reader).nth(before % GIVEN_UP) {
            let before = [oldest.channel.read(), oldest.epoch.read()];
            oldest.say(channel, epoch);
            self.remember(before);
        }
        self.let_go_of_given_up(reader);
    }

    /// Keeps in mind a call that was given up, if these words are of any.
    fn remember(&self, call: [u64; 2]) {
        if call[1] == 0 {
            return;
        }
        let mut given_up = lock(&self.given_up);
        given_up.insert(call);
        if given_up.len() > REMEMBERED {
            given_up.pop_first();
        }
    }

    /// Lets go of payloads that have come since `reader` has given their calls up, as far as its words do not say so.
    pub(crate) fn let_go_of_given_up(&self, reader: Rank) {
        let mut given_up = lock(&self.given_up);
        if given_up.is_empty() {
            return;
        }
        for slot in 0..MOST_SLOTS {
            let Some((number, [channel, epoch])) = self.payload(slot) else {
                continue;
            };
            if given_up.contains(&[channel, epoch])
                && let Some(word) = self.reader_word(reader, slot)
            {
                word.raise(number);
            }
            // What it has passed long ago it hands in no more.
            let passed = [channel, 0]..[channel, epoch.saturating_sub(REMEMBERED as u64)];
            while let Some(old) = given_up.range(passed.clone()).next().copied() {
                given_up.remove(&old);
            }
        }
    }

    /// Whether `reader` has let go of a payload, or will never ask for it.
    pub(crate) fn has_let_go(
        &self,
        reader: Rank,
        slot: usize,
        generation: u64,
        call: CallKey,
    ) -> bool {
        let word = self.reader_word(reader, slot).filter(|_| slot < MOST_SLOTS);
        word.is_some_and(|word| word.read() >= generation) || self.has_given_up(reader, call)
    }

    fn has_given_up(&self, reader: Rank, call: CallKey) -> bool {
        let [channel, epoch] = call.words();
        let mut entries = self.entries(reader);
        entries.any(|entry| entry.says(channel, epoch))
    }

    /// Where `reader` says what it has given up.
    fn entries(&self, reader: Rank) -> impl Iterator<Item = Entry<'_>> {
        (0..GIVEN_UP).filter_map(move |entry| {
            let word = |index| self.reader_word(reader, MOST_SLOTS + Entry::WORDS * entry + index);
            Some(GivenUp {
                version: word(0)?,
                channel: word(1)?,
                epoch: word(2)?,
            })
        })
    }

    fn slot_word(&self, slot: usize, index: usize) -> Option<&AtomicU64> {
        (slot < MOST_SLOTS).then(|| self.words.get(slot * SLOT_WORDS + index))?
    }

    fn reader_word(&self, reader: Rank, index: usize) -> Option<&AtomicU64> {
        let before = BEFORE_READERS + reader.index() * READER_WORDS;
        (reader.index() < self.world_size).then(|| self.words.get(before + index))?
    }
}
