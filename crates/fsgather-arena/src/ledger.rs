//! The words of an arena, by which its readers say that they have let go of payloads: [`Ledger`].
//!
//! Each word has one writer. In this order, eight bytes each:
//!
//! | words | by whom | what |
//! |---|---|---|
//! | 4 for each slot | the owner | number, length, channel and epoch of its payload, before it is announced |
//! | 1 for each slot, for each reader | the reader | the number of the latest payload that it has let go of |
//! | 2 for each of 16 calls, for each reader | the reader | channel and epoch of calls whose payloads it will never ask for |
//!
//! Numbers of payloads only grow, so a word that has been written stays true.

use std::sync::atomic::{AtomicU64, Ordering};

use fsgather_core::{ChannelId, Epoch, Rank};

use crate::{location::Location, memory::Words};

/// How many words say what a slot holds.
const SLOT_WORDS: usize = 4;

/// How many calls a reader can have given up that an owner has not heard of. What is beyond that keeps its slot until the end.
const GIVEN_UP: usize = 16;

/// How many slots an arena may have.
pub(crate) const MOST_SLOTS: usize = 64;

/// What a reader has to itself.
const READER_WORDS: usize = MOST_SLOTS + 2 * GIVEN_UP;

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
    const fn words(self) -> [u64; 2] {
        [self.channel.get(), self.epoch.get().wrapping_add(1)]
    }
}

/// What the words of a slot say.
const fn description(location: &Location, call: CallKey) -> [u64; SLOT_WORDS] {
    let [channel, epoch] = call.words();
    [location.generation, location.len, channel, epoch]
}

/// The words of one arena, of the own one or another rank's.
#[derive(Debug)]
pub(crate) struct Ledger {
    words: Words,
    world_size: usize,
}

impl Ledger {
    /// How many words a world of so many ranks needs.
    pub(crate) const fn words(world_size: usize) -> usize {
        MOST_SLOTS * SLOT_WORDS + world_size * READER_WORDS
    }

    /// `words` are as many as [`Self::words`] says, or it answers as if nobody had written any.
    pub(crate) const fn new(words: Words, world_size: usize) -> Self {
        Self { words, world_size }
    }

    /// Says what a slot holds, before anybody is told of it.
    pub(crate) fn describe(&self, location: &Location, call: CallKey) {
        for (index, value) in description(location, call).into_iter().enumerate() {
            if let Some(word) = self.slot_word(location.slot(), index) {
                word.store(value, Ordering::Release);
            }
        }
    }

    /// Whether a slot holds this payload.
    pub(crate) fn holds(&self, location: &Location, call: CallKey) -> bool {
        let expected = description(location, call).into_iter().enumerate();
        expected.into_iter().all(|(index, value)| {
            self.slot_word(location.slot(), index)
                .is_some_and(|word| word.load(Ordering::Acquire) == value)
        })
    }

    /// Says that `reader` has let go of a payload.
    pub(crate) fn let_go(&self, reader: Rank, location: &Location) {
        let slot = location.slot();
        if slot < MOST_SLOTS
            && let Some(word) = self.reader_word(reader, slot)
        {
            // A payload that was held for longer than a later one of the same slot cannot be.
            word.fetch_max(location.generation, Ordering::Release);
        }
    }

    /// Says that `reader` will never ask for payloads of a call.
    pub(crate) fn give_up(&self, reader: Rank, call: CallKey) {
        let [channel, epoch] = call.words();
        let entries = (0..GIVEN_UP).map(|entry| MOST_SLOTS + 2 * entry);
        // The oldest goes: epochs of one channel grow, others count as old.
        let age = |entry: &usize| {
            let of_this_channel = self.load(reader, *entry) == channel;
            (of_this_channel, self.load(reader, *entry + 1))
        };
        let Some(oldest) = entries.min_by_key(age) else {
            return;
        };
        let words = (
            self.reader_word(reader, oldest),
            self.reader_word(reader, oldest + 1),
        );
        if let (Some(of), Some(number)) = words {
            // Never half of one call and half of another.
            number.store(0, Ordering::Release);
            of.store(channel, Ordering::Release);
            number.store(epoch, Ordering::Release);
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
        word.is_some_and(|word| word.load(Ordering::Acquire) >= generation)
            || self.has_given_up(reader, call)
    }

    fn has_given_up(&self, reader: Rank, call: CallKey) -> bool {
        let [channel, epoch] = call.words();
        let mut entries = (0..GIVEN_UP).map(|entry| MOST_SLOTS + 2 * entry);
        entries.any(|entry| {
            self.load(reader, entry + 1) == epoch
                && self.load(reader, entry) == channel
                && self.load(reader, entry + 1) == epoch
        })
    }

    fn load(&self, reader: Rank, index: usize) -> u64 {
        let word = self.reader_word(reader, index);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn slot_word(&self, slot: usize, index: usize) -> Option<&AtomicU64> {
        (slot < MOST_SLOTS).then(|| self.words.get(slot * SLOT_WORDS + index))?
    }

    fn reader_word(&self, reader: Rank, index: usize) -> Option<&AtomicU64> {
        let before = MOST_SLOTS * SLOT_WORDS + reader.index() * READER_WORDS;
        (reader.index() < self.world_size).then(|| self.words.get(before + index))?
    }
}
