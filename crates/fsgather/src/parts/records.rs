//! Sequences of values that nobody holds in memory as a whole: [`Records`].

use std::{
    fmt,
    io::{BufReader, Read},
    marker::PhantomData,
};

use fsgather_core::{Error, Rank};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    call::guard::CallGuard,
    codec::{self, Codec, Postcard},
    payload::writer::InputWriter,
};

use super::reader::{PartReader, PartReaders};

/// How much of a stream is read at once, in bytes.
const AT_ONCE: usize = 64 << 10;

/// All records of all ranks, in rank order and within each rank in the order they were handed in.
///
/// Only the record being looked at, and about a mebibyte of the stream around it, is in memory. An item
/// that is an error ends the iteration; the other ranks are told at their next call.
#[must_use = "records that are not iterated over are thrown away"]
pub struct Records<T, C = Postcard> {
    readers: PartReaders,
    open: Option<BufReader<PartReader>>,
    record: Vec<u8>,
    codec: C,
    ended: bool,
    of: PhantomData<fn() -> T>,
}

impl<T, C> Records<T, C> {
    pub(crate) const fn new(readers: PartReaders, codec: C) -> Self {
        Self {
            readers,
            open: None,
            record: Vec::new(),
            codec,
            ended: false,
            of: PhantomData,
        }
    }
}

impl<T: DeserializeOwned, C: Codec> Records<T, C> {
    /// The next record, or `None` after the last one of the last rank.
    fn advance(&mut self) -> Result<Option<(Rank, T)>, Error> {
        loop {
            let Some(open) = &mut self.open else {
                match self.readers.next().transpose()? {
                    None => return Ok(None),
                    Some(reader) => self.open = Some(BufReader::with_capacity(AT_ONCE, reader)),
                }
                continue;
            };
            let rank = open.get_ref().rank();
            match read_record(open, &mut self.record) {
                Ok(true) => {
                    let reader = open.get_mut();
                    return match reader.decode(&self.codec, &self.record) {
                        Ok(value) => Ok(Some((rank, value))),
                        Err(cause) => Err(reader.fail(cause)),
                    };
                }
                Ok(false) => self.open = None,
                Err(error) => {
                    let reader = open.get_mut();
                    return Err(reader
                        .take_error()
                        .unwrap_or_else(|| Error::storage("read", "a payload", &error)));
                }
            }
        }
    }
}

impl<T: DeserializeOwned, C: Codec> Iterator for Records<T, C> {
    type Item = Result<(Rank, T), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let item = self.advance().transpose();
        self.ended = !matches!(item, Some(Ok(_)));
        item
    }
}

impl<T, C> fmt::Debug for Records<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").finish_non_exhaustive()
    }
}

/// Writes records one after the other, each preceded by its length (8 bytes, little-endian).
pub(crate) fn write<T: Serialize + DeserializeOwned>(
    codec: &impl Codec,
    guard: &CallGuard,
    records: impl IntoIterator<Item = T>,
    writer: &mut InputWriter<'_>,
) -> Result<(), Error> {
    codec::check::<T>(codec, guard)?;
    let mut record = Vec::new();
    for value in records {
        record.clear();
        codec::encode(codec, guard, &value, &mut record)?;
        writer.take(&(record.len() as u64).to_le_bytes())?;
        writer.take(&record)?;
    }
    Ok(())
}

/// Reads one record; `false` at the end of the stream.
fn read_record(stream: &mut impl Read, record: &mut Vec<u8>) -> std::io::Result<bool> {
    let mut prefix = [0; 8];
    let mut have = 0;
    while have < prefix.len() {
        match stream.read(&mut prefix[have..])? {
            0 if have == 0 => return Ok(false),
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => have += read,
        }
    }
    let len = u64::from_le_bytes(prefix);
    record.clear();
    // Grows as bytes come, so that a wrong length cannot make it allocate.
    let read = stream.take(len).read_to_end(record)?;
    if read as u64 == len {
        Ok(true)
    } else {
        Err(std::io::ErrorKind::UnexpectedEof.into())
    }
}
