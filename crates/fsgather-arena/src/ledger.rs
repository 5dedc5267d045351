//! The words of an arena, by which its readers say that they have let go of payloads: [`Ledger`].
//!
//! Each word has one writer. In this order, eight bytes each:
//!
//! | words | writer | content |
//! |---|---|---|
//! | 4 for each slot | the owner | number, length, channel and epoch of its payload, before it is announced |
//! | 9 for each of 64 payloads of each of 8 calls | the owner | [how far it is](Shelf) with what it reads for others of its host |
//! | 1 for each slot, for each reader | the reader | the number of the latest payload that it has let go of |
//! | 3 for each of 16 calls, for each reader | the reader | version, channel and epoch of calls whose payloads it will never ask for |
//!
//! Numbers of payloads only grow, so a word that has been written stays true.
//!
//! A reader may be far ahead of an owner and have given up more calls than its words can record. It remembers the others, and
//! lets go of their payloads once it sees them.

use std::{
    collections::BTreeSet,
    sync::{Mutex, atomic::AtomicU64},
};

use fsgather_core::{CallId, Rank, lock};

use crate::{
    location::Location,
    memory::Words,
    shelf::{ReadSoFar, SHELVES, Shelf},
    slots::MOST_SLOTS,
    versioned::{Versioned, Word, words_of},
};

/// A call that a reader has given up: channel and epoch.
type GivenUp<'words> = Versioned<'words, AtomicU64, 2>;

/// The payload that a slot holds: length, channel and epoch. Its version is the number of the payload.
type Description<'words> = Versioned<'words, AtomicU64, 3>;

/// Number of given-up calls that the words of a reader can record.
const GIVEN_UP: usize = 16;

/// Number of further given-up calls that a reader remembers. Payloads that are placed even later keep their slots until the
/// end.
const REMEMBERED: usize = 256;

/// Number of words that the owner writes.
const BEFORE_READERS: usize = MOST_SLOTS * Description::WORDS + SHELVES * Shelf::WORDS;

/// Number of words that each reader writes.
const READER_WORDS: usize = MOST_SLOTS + GivenUp::WORDS * GIVEN_UP;

/// The words of one arena: the own one, or that of another rank.
#[derive(Debug)]
pub(crate) struct Ledger {
    words: Words,
    world_size: usize,
    /// Calls that this process has given up as a reader and that its words no longer record, as channels and epochs.
    given_up: Mutex<BTreeSet<[u64; 2]>>,
}

impl Ledger {
    /// Number of words that a world of this size needs.
    pub(crate) const fn words(world_size: usize) -> usize {
        BEFORE_READERS + world_size * READER_WORDS
    }

    /// Makes a ledger of as many `words` as [`Self::words`] returns. Words that are missing read as if they were never written.
    pub(crate) const fn new(words: Words, world_size: usize) -> Self {
        Self {
            words,
            world_size,
            given_up: Mutex::new(BTreeSet::new()),
        }
    }

    /// Returns a shelf for the payloads that the owner reads for others.
    pub(crate) const fn shelf(&self, index: usize) -> Shelf<'_> {
        Shelf::at(
            &self.words,
            MOST_SLOTS * Description::WORDS + index * Shelf::WORDS,
        )
    }

    /// Returns how far the owner is with a payload that it reads for others, if the owner currently says so.
    pub(crate) fn look_for(&self, call: CallId, number: usize) -> Option<ReadSoFar> {
        (0..SHELVES).find_map(|index| self.shelf(index).look(call, number))
    }

    /// Records the payload that a slot holds, before it is announced to readers.
    pub(crate) fn describe(&self, location: &Location, call: CallId) {
        let [channel, epoch] = words_of(call);
        if let Some(slot) = self.slot(location.slot()) {
            slot.say_of(location.generation, [location.len, channel, epoch]);
        }
    }

    /// Returns true if a slot holds this payload.
    pub(crate) fn holds(&self, location: &Location, call: CallId) -> bool {
        let [channel, epoch] = words_of(call);
        let expected = (location.generation, [location.len, channel, epoch]);
        let slot = self.slot(location.slot());
        slot.and_then(|slot| slot.read_of()) == Some(expected)
    }

    /// Returns slot, payload number and the words of the call, for all payloads in slots.
    fn payloads(&self) -> impl Iterator<Item = (usize, u64, [u64; 2])> {
        (0..MOST_SLOTS).filter_map(|slot| {
            let (number, [_, channel, epoch]) = self.slot(slot)?.read_of()?;
            Some((slot, number, [channel, epoch]))
        })
    }

    /// Records that `reader` has let go of a payload.
    pub(crate) fn let_go(&self, reader: Rank, location: &Location) {
        self.let_go_of(reader, location.slot(), location.generation);
    }

    fn let_go_of(&self, reader: Rank, slot: usize, number: u64) {
        let word = self.reader_word(reader, slot);
        if let Some(word) = word.filter(|_| slot < MOST_SLOTS) {
            // The word only grows: a reader may hold a payload for longer than a later one of the same slot.
            word.raise(number);
        }
    }

    /// Records that `reader` will never ask for payloads of a call, having given up this many calls `before`. Only one thread
    /// may call this at a time.
    pub(crate) fn give_up(&self, reader: Rank, call: CallId, before: usize) {
        let call = words_of(call);
        for (slot, number, _) in self.payloads().filter(|(_, _, its)| *its == call) {
            self.let_go_of(reader, slot, number);
        }
        // The owner may still place a payload of this call. The call replaces the oldest entry, even one of another group:
        // owners have had the most time to read that one.
        if let Some(oldest) = self.entries(reader).nth(before % GIVEN_UP) {
            let before = oldest.read();
            oldest.say(call);
            if let Some(before) = before {
                self.remember(before);
            }
        }
        self.let_go_of_given_up(reader);
    }

    /// Remembers a call that was given up, unless these words are unused.
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

    /// Lets go of payloads that have arrived since `reader` gave up their calls, if its words no longer record those calls.
    pub(crate) fn let_go_of_given_up(&self, reader: Rank) {
        let mut given_up = lock(&self.given_up);
        if given_up.is_empty() {
            return;
        }
        for (slot, number, [channel, epoch]) in self.payloads() {
            if given_up.contains(&[channel, epoch]) {
                self.let_go_of(reader, slot, number);
            }
            // The owner places no more payloads of calls that it passed long ago.
            let passed = [channel, 0]..[channel, epoch.saturating_sub(REMEMBERED as u64)];
            while let Some(old) = given_up.range(passed.clone()).next().copied() {
                given_up.remove(&old);
            }
        }
    }

    /// Returns true if `reader` has let go of a payload, or will never ask for it.
    pub(crate) fn has_let_go(
        &self,
        reader: Rank,
        slot: usize,
        generation: u64,
        call: CallId,
    ) -> bool {
        let word = self.reader_word(reader, slot).filter(|_| slot < MOST_SLOTS);
        word.is_some_and(|word| word.read() >= generation) || self.has_given_up(reader, call)
    }

    fn has_given_up(&self, reader: Rank, call: CallId) -> bool {
        let call = Some(words_of(call));
        self.entries(reader).any(|entry| entry.read() == call)
    }

    /// Returns the entries in which `reader` records the calls that it has given up.
    fn entries(&self, reader: Rank) -> impl Iterator<Item = GivenUp<'_>> {
        (0..GIVEN_UP).filter_map(move |entry| {
            let first = MOST_SLOTS + GivenUp::WORDS * entry;
            GivenUp::of(|index| self.reader_word(reader, first + index))
        })
    }

    /// Returns the owner's description of a slot, if the slot exists.
    fn slot(&self, slot: usize) -> Option<Description<'_>> {
        let first = (slot < MOST_SLOTS).then_some(slot * Description::WORDS)?;
        Description::of(|index| self.words.get(first + index))
    }

    fn reader_word(&self, reader: Rank, index: usize) -> Option<&AtomicU64> {
        let before = BEFORE_READERS + reader.index() * READER_WORDS;
        (reader.index() < self.world_size).then(|| self.words.get(before + index))?
    }
}
