//! Words that are overwritten while other processes read them: [`Versioned`], made of [`Word`]s.
//!
//! All words of one entry have one writer at a time. A reader must see words of one moment only. The first word, the version,
//! guarantees that: it differs during a write, and no value of it recurs.

use std::sync::atomic::{AtomicU64, Ordering};

use fsgather_core::CallId;

/// Memory orderings of reads and of writes.
const SEES: Ordering = Ordering::Acquire;
const SHOWS: Ordering = Ordering::Release;

/// A number that one process writes and others read.
pub(crate) trait Word {
    /// Reads the word, and with it everything that its writer did before writing.
    fn read(&self) -> u64;

    /// Writes the word.
    fn write(&self, value: u64);

    /// Writes the word, unless it is already larger.
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

/// Encodes a call as words. An epoch is never stored as zero, which is the value of unwritten words.
pub(crate) const fn words_of(call: CallId) -> [u64; 2] {
    [call.channel.get(), call.epoch.get().wrapping_add(1)]
}

/// A version and `N` words. They are all zero at first.
#[derive(Debug)]
pub(crate) struct Versioned<'words, W, const N: usize> {
    version: &'words W,
    content: [&'words W; N],
}

impl<'words, W: Word, const N: usize> Versioned<'words, W, N> {
    /// Number of words that an entry has.
    pub(crate) const WORDS: usize = N + 1;

    /// The entry of these words, the version first, if they are all there.
    pub(crate) fn of(word: impl Fn(usize) -> Option<&'words W>) -> Option<Self> {
        let version = word(0)?;
        let mut content = [version; N];
        for (index, place) in (1..).zip(&mut content) {
            *place = word(index)?;
        }
        Some(Self { version, content })
    }

    /// Overwrites the entry. The version counts writes, and is odd during a write.
    pub(crate) fn say(&self, content: [u64; N]) {
        let version = self.version.read();
        let meanwhile = version.wrapping_add(1) | 1;
        self.replace(meanwhile, content, (version | 1).wrapping_add(1));
    }

    /// Returns the entry, or `None` while it is being written.
    pub(crate) fn read(&self) -> Option<[u64; N]> {
        let read = self.read_if(|version| version.is_multiple_of(2));
        read.map(|(_, content)| content)
    }

    /// Overwrites the entry with the content of an item. The item's number becomes the version, and must exceed all earlier
    /// ones.
    pub(crate) fn say_of(&self, number: u64, content: [u64; N]) {
        self.replace(0, content, number);
    }

    /// Returns the number and the content of the item, or `None` while it is being written.
    pub(crate) fn read_of(&self) -> Option<(u64, [u64; N])> {
        self.read_if(|number| number != 0)
    }

    fn replace(&self, meanwhile: u64, content: [u64; N], then: u64) {
        self.version.write(meanwhile);
        for (word, value) in self.content.iter().zip(content) {
            word.write(value);
        }
        self.version.write(then);
    }

    fn read_if(&self, is_written: impl Fn(u64) -> bool) -> Option<(u64, [u64; N])> {
        let version = self.version.read();
        if !is_written(version) {
            return None;
        }
        let content = self.content.map(Word::read);
        (self.version.read() == version).then_some((version, content))
    }
}

#[cfg(test)]
mod tests {
    use loom::{
        cell::UnsafeCell,
        model::Builder,
        sync::{Arc, atomic::AtomicU64 as Modelled},
        thread,
    };

    use super::*;

    /// A word for which the model tries every order of what threads can observe.
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

    struct Words<const N: usize>(Modelled, [Modelled; N]);

    impl<const N: usize> Words<N> {
        fn new() -> Self {
            Self(Modelled::new(0), [(); N].map(|()| Modelled::new(0)))
        }

        fn entry(&self) -> Versioned<'_, Modelled, N> {
            let word = |index: usize| match index {
                0 => Some(&self.0),
                index => self.1.get(index - 1),
            };
            Versioned::of(word).unwrap()
        }
    }

    /// Three consecutive calls. None is the one that the reader looks for, but together they have its parts.
    #[test]
    fn parts_of_several_calls_never_make_another_one() {
        loom::model(|| {
            let words = Arc::new(Words::<2>::new());
            words.entry().say([1, 5]);
            let written = Arc::clone(&words);
            let writer = thread::spawn(move || {
                written.entry().say([2, 9]);
                written.entry().say([3, 5]);
            });
            assert_ne!(words.entry().read(), Some([2, 5]));
            writer.join().unwrap();
            assert_eq!(words.entry().read(), Some([3, 5]));
        });
    }

    #[test]
    fn what_is_read_was_said_as_a_whole() {
        let mut model = Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let words = Arc::new(Words::<8>::new());
            words.entry().say([1; 8]);
            let written = Arc::clone(&words);
            let writer = thread::spawn(move || written.entry().say([2; 8]));
            if let Some(content) = words.entry().read() {
                assert!([[1; 8], [2; 8]].contains(&content), "{content:?}");
            }
            writer.join().unwrap();
            assert_eq!(words.entry().read(), Some([2; 8]));
        });
    }

    #[test]
    fn what_is_said_of_a_number_is_said_of_no_other() {
        loom::model(|| {
            let words = Arc::new(Words::<2>::new());
            assert_eq!(words.entry().read_of(), None);
            words.entry().say_of(4, [40, 41]);
            let written = Arc::clone(&words);
            let writer = thread::spawn(move || {
                written.entry().say_of(5, [50, 51]);
                written.entry().say_of(6, [60, 61]);
            });
            if let Some((number, content)) = words.entry().read_of() {
                assert_eq!(content, [10 * number, 10 * number + 1]);
            }
            writer.join().unwrap();
            assert_eq!(words.entry().read_of(), Some((6, [60, 61])));
        });
    }

    /// A reader finishes reading before the owner overwrites the payload, for both ways of letting go.
    #[test]
    fn nothing_is_written_over_that_is_read() {
        for gives_up in [false, true] {
            loom::model(move || {
                let given_up = Words::<2>::new();
                let shared = Arc::new((given_up, Modelled::new(0), UnsafeCell::new(())));
                let read = Arc::clone(&shared);
                let reader = thread::spawn(move || {
                    let (given_up, word, payload) = &*read;
                    // The model fails if a write could happen at the same time.
                    payload.with(|_| ());
                    if gives_up {
                        given_up.entry().say([1, 5]);
                    } else {
                        word.raise(3);
                    }
                });
                let (given_up, word, payload) = &*shared;
                if word.read() >= 3 || given_up.entry().read() == Some([1, 5]) {
                    payload.with_mut(|_| ());
                }
                reader.join().unwrap();
            });
        }
    }
}
