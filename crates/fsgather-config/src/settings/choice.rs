//! Settings that are one of a few words: [`Transport`], [`Verify`], [`ShowProgress`], [`Trace`], and [`Control`] of the core.

use std::fmt;

use fsgather_core::{CompressionSetting, Control};
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

/// Which payloads are verified by checksums. What is greater is stricter.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Verify {
    /// None, wherever they have been.
    Off,
    /// Those that have travelled: not what stays in the memory of one host.
    #[default]
    Host,
    /// All.
    Always,
}

/// Whether long work shows how far it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ShowProgress {
    /// Bars on a terminal, a line now and then elsewhere.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// When the last calls of a rank are kept in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Trace {
    /// While the job runs, and afterwards if it has failed.
    #[default]
    Failed,
    /// Afterwards in any case.
    Always,
    /// Never.
    Off,
}

/// A type whose values are words: those that it is shown as.
pub trait Choice: Copy + fmt::Display + Send + Sync + 'static {
    /// All values.
    const ALL: &'static [Self];

    /// Its word.
    #[must_use]
    fn word(self) -> &'static str;

    /// The value of a word, spelt exactly.
    #[must_use]
    fn of_word(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|value| value.word() == text)
    }

    /// All words in a sentence: `auto, tcp or markers`.
    #[must_use]
    fn words() -> String {
        Self::listed(str::to_owned)
    }

    /// All words in a sentence, each as `show` has it.
    #[must_use]
    fn listed(show: impl Fn(&str) -> String) -> String {
        let words: Vec<String> = Self::ALL.iter().map(|value| show(value.word())).collect();
        match words.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => words.concat(),
        }
    }
}

impl Choice for Transport {
    const ALL: &'static [Self] = &[Self::Auto, Self::Filesys, Self::Memory];

    fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Filesys => "filesys",
            Self::Memory => "memory",
        }
    }
}

impl Choice for Trace {
    const ALL: &'static [Self] = &[Self::Failed, Self::Always, Self::Off];

    fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Always => "always",
            Self::Off => "off",
        }
    }
}

impl Choice for CompressionSetting {
    const ALL: &'static [Self] = &[Self::None, Self::Zstd];

    fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Zstd => "zstd",
        }
    }
}

impl Choice for Control {
    const ALL: &'static [Self] = &[Self::Auto, Self::Tcp, Self::Markers];

    fn word(self) -> &'static str {
        Self::word(self)
    }
}

impl Choice for Verify {
    const ALL: &'static [Self] = &[Self::Always, Self::Host, Self::Off];

    fn word(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Host => "host",
            Self::Off => "off",
        }
    }
}

impl Choice for ShowProgress {
    const ALL: &'static [Self] = &[Self::Auto, Self::Off];

    fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Off => "off",
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl fmt::Display for Verify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl fmt::Display for ShowProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Choice + PartialEq + fmt::Debug + fmt::Display + Default>(default: &str) {
        for value in T::ALL {
            assert_eq!(T::of_word(value.word()), Some(*value));
            assert_eq!(value.to_string(), value.word());
        }
        assert_eq!(T::of_word(default), Some(T::default()));
        for text in ["", "Auto", "auto ", "Host", "zstd:3"] {
            assert_eq!(T::of_word(text), None);
        }
    }

    #[test]
    fn words_and_values_convert_both_ways() {
        check::<Transport>("auto");
        check::<Control>("auto");
        check::<ShowProgress>("auto");
        check::<Verify>("host");
        check::<CompressionSetting>("none");
    }

    #[test]
    fn words_are_listed_as_a_sentence_has_them() {
        assert_eq!(Control::words(), "auto, tcp or markers");
        assert_eq!(ShowProgress::words(), "auto or off");
    }

    #[test]
    fn the_strictest_of_several_settings_is_the_greatest() {
        let told = [Verify::Host, Verify::Always, Verify::Off];
        assert_eq!(told.into_iter().max(), Some(Verify::Always));
        assert_eq!(told[2].max(told[0]), Verify::Host);
    }
}
