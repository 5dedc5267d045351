//! Reads what a program of a language without our types says of a setting: [`Word`].

use std::{ffi::OsString, path::PathBuf, time::Duration};

use fsgather_core::Error;

use crate::settings::{Choice, RendezvousSetting};

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
        Self::try_from(number).map_err(|_| {
            let right = format!("is too large; the largest is {}", Self::MAX);
            wrong(name, &Word::Number(number), &right)
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;

    fn text(text: &str) -> Word {
        Word::Text(text.into())
    }

    #[test]
    fn words_become_what_a_builder_would_be_given() {
        let mut arguments = Arguments::default();
        for (name, word) in [
            ("world_size", Word::Number(4)),
            ("timeout", Word::Fraction(0.5)),
            ("directory", text("/shared")),
            ("control", text("tcp")),
            ("rendezvous", text("tcp://[::1]:29500")),
        ] {
            arguments.take(name, word).unwrap();
        }
        let expected = Arguments {
            world_size: Some(4),
            timeout: Some(Duration::from_millis(500)),
            directory: Some("/shared".into()),
            control: Some(fsgather_core::Control::Tcp),
            rendezvous: Some(RendezvousSetting::parse("tcp://[::1]:29500")),
            ..Arguments::default()
        };
        assert_eq!(arguments, expected);
    }

    #[test]
    fn wrong_words_are_answered_with_what_would_be_right() {
        for (name, word, expected) in [
            (
                "transport",
                text("pigeon"),
                "transport=\"pigeon\" must be auto, filesys or memory",
            ),
            (
                "control",
                text("udp"),
                "control=\"udp\" must be auto, tcp or markers",
            ),
            (
                "rendezvous",
                text("node1"),
                "rendezvous=\"node1\" is neither file:///a/shared/directory nor tcp://HOST:PORT",
            ),
            (
                "rendezvous",
                text("tcp://node1"),
                "FSGATHER_RENDEZVOUS: tcp://node1 is no address such as tcp://node1:60001",
            ),
            (
                "timeout",
                Word::Number(0),
                "timeout=0 is not a positive number of seconds, such as 1800",
            ),
            (
                "world_size",
                Word::Number(1 << 32),
                "world_size=4294967296 is too large; the largest is 4294967295",
            ),
            ("colour", text("red"), "there is no argument colour"),
        ] {
            let mut arguments = Arguments::default();
            let refused = arguments.take(name, word).unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
            assert_eq!(arguments, Arguments::default());
        }
    }
}
