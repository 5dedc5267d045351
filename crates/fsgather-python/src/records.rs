//! Sequences of objects that nobody holds as a whole: [`RecordSource`] on the side of who hands in, [`Records`] on the other.
//!
//! A stream of records begins with [`HEAD`]; each record is its length (8 bytes, little-endian) and the object as in a payload.

use std::{
    collections::VecDeque,
    io::{self, BufReader, Read},
    sync::Mutex,
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes};
use fsgather::{
    Error, Payload, Rank,
    parts::{PartReader, PartReaders},
};
use fsgather_core::lock;
use pyo3::{exceptions::PyValueError, prelude::*, types::PyIterator};

use crate::{
    ending::{self, InCall},
    how::Carrying,
    object::{self, Pickling},
    waiting::{self, Waiter},
};

/// The beginning of each rank's stream, which no other payload of Python has.
const HEAD: [u8; 8] = *b"fsg-rec\x01";

/// How many bytes of records are made, or taken, at a time: the interpreter's lock is changed hands for all of them.
const AT_ONCE: usize = 256 << 10;

/// How long records are collected before they are taken, so that an iterator that is slow is seen to get on.
const A_MOMENT: Duration = Duration::from_millis(250);

/// The bytes of the records that an iterator of Python gives, each asked for when the ones before it have been taken.
pub(crate) struct RecordSource {
    /// What is iterated over, until that has begun.
    iterable: Option<Py<PyAny>>,
    iterator: Option<Py<PyIterator>>,
    carrying: Carrying,
    pieces: VecDeque<Bytes>,
    raised: Option<PyErr>,
}

impl RecordSource {
    pub(crate) fn new(iterable: &Bound<'_, PyAny>, carrying: Carrying) -> Self {
        Self {
            iterable: Some(iterable.clone().unbind()),
            iterator: None,
            carrying,
            pieces: VecDeque::from([Bytes::from_static(&HEAD)]),
            raised: None,
        }
    }

    /// What has been raised by the iterator, or by an object that cannot be carried.
    pub(crate) fn take_raised(&mut self) -> Option<PyErr> {
        self.raised.take()
    }

    /// Makes more bytes, as many as come within a moment; none at the end.
    fn fill(&mut self, py: Python<'_>) -> PyResult<()> {
        waiting::check_terminated(py)?;
        if let Some(iterable) = self.iterable.take() {
            self.iterator = Some(iterable.bind(py).try_iter()?.unbind());
        }
        let Some(iterator) = &self.iterator else {
            return Ok(());
        };
        let mut iterator = iterator.bind(py).clone();
        let mut made = 0;
        let began = Instant::now();
        while made < AT_ONCE && (made == 0 || began.elapsed() < A_MOMENT) {
            let Some(record) = iterator.next().transpose()? else {
                self.iterator = None;
                break;
            };
            let Carrying { pickling, like } = self.carrying;
            let pieces = object::encode_to_list(&record, pickling, like)?;
            let len: usize = pieces.iter().map(Bytes::len).sum();
            let prefix = Bytes::copy_from_slice(&(len as u64).to_le_bytes());
            made += prefix.len() + len;
            self.pieces.push_back(prefix);
            self.pieces.extend(pieces);
        }
        Ok(())
    }
}

impl Read for RecordSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.pieces.is_empty() {
            if ending::is_over_here() {
                return Err(io::Error::other("the process ends"));
            }
            Python::attach(|py| {
                self.fill(py).map_err(|raised| {
                    let text = waiting::reason_of(py, &raised);
                    self.raised = Some(raised);
                    io::Error::other(text)
                })
            })?;
        }
        let mut read = 0;
        while let Some(piece) = self.pieces.front_mut() {
            let len = piece.len().min(buffer.len() - read);
            piece.copy_to_slice(&mut buffer[read..read + len]);
            read += len;
            if !piece.is_empty() {
                break;
            }
            self.pieces.pop_front();
        }
        Ok(read)
    }
}

/// An iterator over the records of all ranks, in rank order and in each rank's own, with the rank of each.
#[pyclass(frozen, module = "fsgather._fsgather")]
pub(crate) struct Records {
    /// Gone once it has been closed, or has ended.
    reading: Mutex<Option<Reading>>,
    waiting: Waiter,
    pickling: Pickling,
}

struct Reading {
    readers: PartReaders,
    open: Option<BufReader<PartReader>>,
    /// Read, and not asked for yet.
    ready: VecDeque<(Rank, Vec<u8>)>,
}

impl Records {
    pub(crate) const fn new(readers: PartReaders, waiting: Waiter, pickling: Pickling) -> Self {
        let reading = Reading {
            readers,
            open: None,
            ready: VecDeque::new(),
        };
        Self {
            reading: Mutex::new(Some(reading)),
            waiting,
            pickling,
        }
    }
}

#[pymethods]
impl Records {
    const fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<(u32, Py<PyAny>)>> {
        let _in_call = InCall::begin()?;
        let taken = self.take(py);
        if !matches!(taken, Ok(Some(_))) {
            self.close(py);
        }
        let decode = |(rank, record): (Rank, Vec<u8>)| {
            let writer = self.waiting.name_of(rank);
            let record = object::decode(py, Payload::from(record), self.pickling, writer)?;
            Ok((rank.get(), record))
        };
        taken?.map(decode).transpose()
    }

    /// Throws away what has not been looked at yet.
    fn close(&self, py: Python<'_>) {
        ending::detach(py, || {
            let mut reading = lock(&self.reading);
            reading.take()
        });
    }
}

impl Records {
    /// The next record, as bytes.
    fn take(&self, py: Python<'_>) -> PyResult<Option<(Rank, Vec<u8>)>> {
        let mut wrong = None;
        let taken = self.waiting.run(py, || {
            let mut reading = lock(&self.reading);
            let Some(reading) = reading.as_mut() else {
                return Ok(None);
            };
            if reading.ready.is_empty() {
                wrong = reading.fill()?;
            }
            Ok(reading.ready.pop_front())
        })?;
        match wrong {
            Some(rank) => Err(PyValueError::new_err(format!(
                "rank {} has handed in no records: do all ranks call gather_records?",
                self.waiting.name_of(rank)
            ))),
            None => Ok(taken),
        }
    }
}

impl Reading {
    /// Reads some records; none after the last one of the last rank. A rank that has handed in something else is returned.
    fn fill(&mut self) -> Result<Option<Rank>, Error> {
        let mut have = 0;
        while have < AT_ONCE {
            let Some(open) = &mut self.open else {
                let Some(reader) = self.readers.next().transpose()? else {
                    break;
                };
                let rank = reader.rank();
                let mut reader = BufReader::with_capacity(AT_ONCE, reader);
                let mut head = [0; HEAD.len()];
                let read = read_up_to(&mut reader, &mut head)?;
                if read != head.len() || head != HEAD {
                    return Ok(Some(rank));
                }
                self.open = Some(reader);
                continue;
            };
            let rank = open.get_ref().rank();
            let mut prefix = [0; 8];
            match read_up_to(open, &mut prefix)? {
                0 => {
                    self.open = None;
                    continue;
                }
                8 => {}
                _ => return Ok(Some(rank)),
            }
            let len = u64::from_le_bytes(prefix);
            let mut record = Vec::new();
            // Grows as bytes come, so that a wrong length cannot make it allocate.
            let read = open.take(len).read_to_end(&mut record);
            read.map_err(|error| told(open, &error))?;
            if record.len() as u64 != len {
                return Ok(Some(rank));
            }
            have += prefix.len() + record.len();
            self.ready.push_back((rank, record));
        }
        Ok(None)
    }
}

/// Reads until the buffer is full or the stream ends; how many bytes.
fn read_up_to(stream: &mut BufReader<PartReader>, buffer: &mut [u8]) -> Result<usize, Error> {
    let mut have = 0;
    while have < buffer.len() {
        match stream.read(&mut buffer[have..]) {
            Ok(0) => break,
            Ok(read) => have += read,
            Err(error) => return Err(told(stream, &error)),
        }
    }
    Ok(have)
}

/// What went wrong with a stream.
fn told(stream: &mut BufReader<PartReader>, error: &io::Error) -> Error {
    let told = stream.get_mut().take_error();
    told.unwrap_or_else(|| Error::storage("read", "a payload", error))
}
