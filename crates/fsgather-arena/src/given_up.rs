//! The entry in which a reader says that it has given a call up: [`GivenUp`]; and what a word is in it: [`Word`].
//!
//! An entry is written over by later calls while owners look at it, so that what they see has to be of one call: its
//! version is odd while it is written, and never the same again. All its words have one writer at a time.

use std::sync::atomic::{AtomicU64, Ordering};

/// How words are read, and how they are written.
const SEES: Ordering = Ordering::Acquire;
const SHOWS: Ordering = Ordering::Release;

/// A number that one process writes and others read.
pub(crate) trait Word {
    /// Reads it; what its writer has done before it wrote is seen from then on.
    fn read(&self) -> u64;

    /// Writes it.
    fn write(&self, value: u64);

    /// Writes it, unless it is larger already.
    fn raise(&self, value: u64);
}

impl Word for AtomicU64 {
    fn read(&self) -> u64 {
        self.load(SEES)
    }

    fn write(&self, value: u64) {
        self.store(value, SHOWS);
    }

    fn raise(&self, value: u64) {
        self.fetch_max(value, SHOWS);
    }
}

/// The words of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GivenUp<'words, W> {
    pub(crate) version: &'words W,
    pub(crate) channel: &'words W,
    pub(crate) epoch: &'words W,
}

impl<W: Word> GivenUp<'_, W> {
    /// How many words an entry has.
    pub(crate) const WORDS: usize = 3;

    /// Says that this call is given up, and no longer which one was before.
    pub(crate) fn say(self, channel: u64, epoch: u64) {
        let version = self.version.read();
        self.version.write(version.wrapping_add(1) | 1);
        self.channel.write(channel);
        self.epoch.write(epoch);
        self.version.write((version | 1).wrapping_add(1));
    }

    /// Whether it says so of this call. While it is written it says nothing.
    pub(crate) fn says(self, channel: u64, epoch: u64) -> bool {
        let version = self.version.read();
        version.is_multiple_of(2)
            && self.channel.read() == channel
            && self.epoch.read() == epoch
            && self.version.read() == version
    }
}

#[cfg(test)]
mod tests {
    use loom::{
        cell::UnsafeCell,
        sync::{Arc, atomic::AtomicU64 as Modelled},
        thread,
    };

    use super::*;

    /// A word of which every order of what threads see is tried.
    impl Word for Modelled {
        fn read(&self) -> u64 {
            self.load(SEES)
        }

        fn write(&self, value: u64) {
            self.store(value, SHOWS);
        }

        fn raise(&self, value: u64) {
            self.fetch_max(value, SHOWS);
        }
    }

    #[derive(Default)]
    struct Entry([Modelled; 3]);

    impl Entry {
        fn as_given_up(&self) -> GivenUp<'_, Modelled> {
            let [version, channel, epoch] = &self.0;
            GivenUp {
                version,
                channel,
                epoch,
            }
        }
    }

    /// Three calls after each other, of which no two are the one that is asked for, but which have its parts.
    #[test]
    fn parts_of_several_calls_never_make_another_one() {
        loom::model(|| {
            let entry = Arc::new(Entry::default());
            entry.as_given_up().say(1, 5);
            let written = Arc::clone(&entry);
            let writer = thread::spawn(move || {
                written.as_given_up().say(2, 9);
                written.as_given_up().say(3, 5);
            });
            assert!(!entry.as_given_up().says(2, 5));
            writer.join().unwrap();
            assert!(entry.as_given_up().says(3, 5));
            assert!(!entry.as_given_up().says(2, 9));
        });
    }

    /// What a reader has read it has read before its owner writes over it, by either way of letting go.
    #[test]
    fn nothing_is_written_over_that_is_read() {
        for gives_up in [false, true] {
            loom::model(move || {
                let shared = Arc::new((Entry::default(), Modelled::new(0), UnsafeCell::new(())));
                let read = Arc::clone(&shared);
                let reader = thread::spawn(move || {
                    let (entry, word, payload) = &*read;
                    // The model fails where somebody may write meanwhile.
                    payload.with(|_| ());
                    if gives_up {
                        entry.as_given_up().say(1, 5);
                    } else {
                        word.raise(3);
                    }
                });
                let (entry, word, payload) = &*shared;
                if word.read() >= 3 || entry.as_given_up().says(1, 5) {
                    payload.with_mut(|_| ());
                }
                reader.join().unwrap();
            });
        }
    }
}
