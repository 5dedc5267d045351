//! Reads what a program of a language without our types says of a setting: [`Word`].

use std::{ffi::OsString, path::PathBuf, time::Duration};

use fsgather_core::Error;

use crate::settings::{Choice, CompressionSetting, RendezvousSetting};

/// A value as such a program has it.
#[derive(Clone, Debug, PartialEq)]
pub enum Word {
    /// A whole number.
    Number(u64),
    /// A number with a fraction.
    Fraction(f64),
    /// A text, or a path.
    Text(OsString),
}

/// What such a value can become.
pub trait FromWord: Sized {
    /// What a value becomes as the argument of this name.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for one that is none, with what would be right.
    fn from_word(name: &str, word: Word) -> Result<Self, Error>;
}

/// The error for a value that an argument cannot have.
fn wrong(name: &str, word: &Word, right: &str) -> Error {
    let shown = match word {
        Word::Number(number) => number.to_string(),
        Word::Fraction(number) => number.to_string(),
        Word::Text(text) => format!("{:?}", text.to_string_lossy()),
    };
    Error::config(format!("{name}={shown} {right}"))
}

impl FromWord for u64 {
    fn from_word(name: &str, word: Word) -> Result<Self, Error> {
        match word {
            Word::Number(number) => Ok(number),
            word => Err(wrong(name, &word, "is not a whole number")),
        }
    }
}

impl FromWord for u32 {
    fn from_word(name: &str, word: Word) -> Result<Self, Error> {
        let number = u64::from_word(name, word)?;
        Self::try_from(number).map_err(|_| wrong(name, &Word::Number(number), "is too large"))
    }
}

/// Seconds.
impl FromWord for Duration {
    fn from_word(name: &str, word: Word) -> Result<Self, Error> {
        let duration = match word {
            Word::Number(seconds) => Some(Self::from_secs(seconds)),
            Word::Fraction(seconds) => Self::try_from_secs_f64(seconds).ok(),
            Word::Text(_) => None,
        };
        duration
            .filter(|duration| !duration.is_zero())
            .ok_or_else(|| {
                wrong(
                    name,
                    &word,
                    "is not a positive number of seconds, such as 1800",
                )
            })
    }
}

impl FromWord for PathBuf {
    fn from_word(name: &str, word: Word) -> Result<Self, Error> {
        match word {
            Word::Text(path) => Ok(path.into()),
            word => Err(wrong(name, &word, "is not the path of a directory")),
        }
    }
}

impl FromWord for String {
    fn from_word(name: &str, word: Word) -> Result<Self, Error> {
        let text = match word {
            Word::Text(text) => text.into_string().map_err(Word::Text),
            word => Err(word),
        };
        text.map_err(|word| wrong(name, &word, "is not a text of valid characters"))
    }
}

impl<T: Choice> FromWord for T {
    fn from_word(name: &str, word: Word) -> Result<Self, Error> {
        let text = String::from_word(name, word)?;
        T::of_word(&text)
            .ok_or_else(|| Error::config(format!("{name}={text:?} must be {}", T::words())))
    }
}

impl FromWord for CompressionSetting {
    fn from_word(name: &str, word: Word) -> Result<Self, Error> {
        String::from_word(name, word)?.parse()
    }
}

impl FromWord for Option<RendezvousSetting> {
    fn from_word(name: &str, word: Word) -> Result<Self, Error> {
        let text = String::from_word(name, word)?;
        match text.strip_prefix("tcp://") {
            Some(address) => {
                let (host, port) = RendezvousSetting::host_and_port(address)?;
                Ok(Some(RendezvousSetting::Tcp { host, port }))
            }
            None => RendezvousSetting::parse(&text).map(Some).ok_or_else(|| {
                Error::config(format!(
                    "{name}={text:?} is neither file:///a/shared/directory nor tcp://HOST:PORT nor the NAME: of an engine"
                ))
            }),
        }
    }
}
