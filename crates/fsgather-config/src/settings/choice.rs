//! Settings that are one of a few words: [`Transport`], [`Control`], [`Progress`].

use std::fmt;

use serde::{Deserialize, Serialize};

/// The way payloads take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Transport {
    /// Whichever is better.
    #[default]
    Auto,
    /// Files in the shared directory.
    Filesys,
    /// The network between ranks.
    Memory,
}

/// How ranks talk to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Control {
    /// TCP, and marker files where TCP does not reach.
    #[default]
    Auto,
    /// TCP only.
    Tcp,
    /// Marker files in the shared directory only.
    Markers,
}

/// Whether long work shows how far it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Progress {
    /// Bars on a terminal, a line now and then elsewhere.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// A type whose values are words.
pub(super) trait Choice: Copy + 'static {
    /// All values and the words for them.
    const WORDS: &'static [(&'static str, Self)];

    /// The value of a word, spelt exactly.
    fn of_word(text: &str) -> Option<Self> {
        let mut words = Self::WORDS.iter();
        words
            .find(|(word, _)| *word == text)
            .map(|&(_, value)| value)
    }
}

impl Choice for Transport {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("filesys", Self::Filesys),
        ("memory", Self::Memory),
    ];
}

impl Choice for Control {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("tcp", Self::Tcp),
        ("markers", Self::Markers),
    ];
}

impl Choice for Progress {
    const WORDS: &'static [(&'static str, Self)] = &[("auto", Self::Auto), ("off", Self::Off)];
}

/// Shows a value as its word.
fn show<T: Choice + PartialEq>(value: T, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut words = T::WORDS.iter();
    f.write_str(
        words
            .find(|(_, known)| *known == value)
            .map_or("?", |(word, _)| word),
    )
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(*self, f)
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(*self, f)
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(*self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Choice + PartialEq + fmt::Debug + fmt::Display + Default>() {
        for (word, value) in T::WORDS {
            assert_eq!(T::of_word(word), Some(*value));
            assert_eq!(value.to_string(), *word);
        }
        assert_eq!(T::of_word("auto"), Some(T::default()));
        for text in ["", "Auto", "auto ", "none"] {
            assert_eq!(T::of_word(text), None);
        }
    }

    #[test]
    fn words_and_values_convert_both_ways() {
        check::<Transport>();
        check::<Control>();
        check::<Progress>();
    }
}
