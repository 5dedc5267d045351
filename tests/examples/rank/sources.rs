//! Makes sources that ranks hand over: streams that stop where a test wants it, and values that cannot be handed over.

use std::io::{self, Read};

use fsgather_tests::Generated;
use serde::{Deserialize, Serialize, Serializer};

use crate::{stop_at, values::len_of};

/// A payload that is read piece by piece, with a stop half-way if asked for.
pub(crate) struct Source {
    bytes: Generated,
    until_stop: Option<usize>,
}

impl Source {
    pub(crate) fn new(rank: u32, len: &str, stop: &str) -> Self {
        let len = len_of(len, rank);
        Self {
            bytes: Generated::new(rank, len),
            until_stop: (stop == "half").then_some(len / 2),
        }
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = match self.until_stop {
            Some(0) => {
                self.until_stop = None;
                stop_at("publishing");
                buffer.len()
            }
            Some(left) => left.min(buffer.len()),
            None => buffer.len(),
        };
        let read = self.bytes.read(&mut buffer[..most])?;
        if let Some(left) = &mut self.until_stop {
            *left -= read;
        }
        Ok(read)
    }
}

/// A stream that fails.
pub(crate) struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the detector is out of film"))
    }
}

/// A value that cannot be handed over.
#[derive(Deserialize)]
pub(crate) enum Awkward {
    Panics,
    Fails,
}

impl Serialize for Awkward {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Panics => panic!("as the script says"),
            Self::Fails => Err(serde::ser::Error::custom("not today")),
        }
    }
}
