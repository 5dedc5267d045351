//! Encodes a Python object as a payload and decodes it: [`encode`], [`decode`]; [`Received`] is decoded later.
//!
//! `docs/design/plain-data.md` describes the layout of a payload.
//!
//! Payloads are mapped at addresses divisible by 64, so that arrays are aligned in place.

use std::fmt::Display;

use bytes::Bytes;
use fsgather::{Payload, Pieces, Rank, bindings::inside_a_call};
use pyo3::{
    exceptions::{PyMemoryError, PyTypeError, PyValueError},
    prelude::*,
    types::PyBytes,
};

use fsgather_plain::{
    Like, Refusal,
    buffer::{Aligned, BorrowedBuffer, Memory},
};

use crate::{ending::InCall, errors};

const VERSION: u8 = 1;
const HEAD: usize = 16;
const ALIGNMENT: usize = 64;

const PLAIN: u8 = 1;
const PICKLE_WITH_CONTENTS: u8 = 3;

/// Whether objects that are not plain data may be pickled, and unpickled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pickling {
    Allowed,
    Refused,
}

/// Encodes an object as the pieces of a payload; large buffers are not copied.
///
/// # Errors
///
/// Returns the errors of pickling; `TypeError` with the type and its place in the object if pickling is refused.
pub(crate) fn encode(
    value: &Bound<'_, PyAny>,
    pickling: Pickling,
    like: Like,
) -> PyResult<Pieces<'static>> {
    let _in_call = InCall::begin()?;
    let (kind, stream, buffers) = match fsgather_plain::encode(value, like) {
        Ok(encoded) => (PLAIN, Bytes::from(encoded.stream), encoded.buffers),
        Err(Refusal::Raised(error)) => return Err(error),
        Err(refusal) => {
            if pickling == Pickling::Refused {
                return Err(PyTypeError::new_err(format!(
                    "{}, and pickle is refused (FSGATHER_PICKLE=0 or allow_pickle=False)",
                    refusal.reason("object").unwrap_or_default()
                )));
            }
            pickle(value, like)?
        }
    };
    let buffers = buffers.into_iter().map(Bytes::from_owner);
    let pieces = Pieces::new(Pieces::PYTHON, lay_out(kind, stream, buffers));
    // Our own header does not count towards the caller's limit.
    Ok(pieces.not_counting(HEAD as u64))
}

/// Encodes plain data as the pieces of a result on disk, without pickle.
///
/// # Errors
///
/// Returns `fsgather.ConfigError` with the type and its place in the object for any other data.
pub(crate) fn encode_result(value: &Bound<'_, PyAny>, name: &dyn Display) -> PyResult<Vec<Bytes>> {
    let _in_call = InCall::begin()?;
    match fsgather_plain::encode(value, Like::Ours) {
        Ok(encoded) => {
            let buffers = encoded.buffers.into_iter().map(Bytes::from_owner);
            Ok(lay_out(PLAIN, Bytes::from(encoded.stream), buffers))
        }
        Err(Refusal::Raised(error)) => Err(error),
        Err(refusal) => Err(errors::config(&format!(
            "{}; convert it (`.detach()` makes a tensor without a gradient), or give encode= and decode=",
            refusal
                .reason(&format!("the result of sample {name}"))
                .unwrap_or_default()
        ))),
    }
}

/// Decodes the object of a result on disk.
///
/// # Errors
///
/// Returns `ValueError` for bytes that hold none, and `MemoryError`.
pub(crate) fn decode_result(py: Python<'_>, encoded: Vec<u8>) -> PyResult<Py<PyAny>> {
    match Received::of(Bytes::from(encoded).into(), Looks::Once) {
        Ok(received) => received.decode(py, Pickling::Refused),
        Err((_, error)) => Err(error),
    }
}

fn pickle(value: &Bound<'_, PyAny>, like: Like) -> PyResult<(u8, Bytes, Vec<BorrowedBuffer>)> {
    let dumps = value.py().import("fsgather._pickling")?.getattr("dumps")?;
    let (kind, stream, buffers): (u8, Bound<'_, PyAny>, Vec<Bound<'_, PyAny>>) =
        dumps.call1((value, like.word()))?.extract()?;
    let stream = Bytes::from_owner(BorrowedBuffer::of(&stream)?);
    let buffers = buffers.iter().map(BorrowedBuffer::of);
    Ok((kind, stream, buffers.collect::<PyResult<_>>()?))
}

fn lay_out(kind: u8, stream: Bytes, buffers: impl ExactSizeIterator<Item = Bytes>) -> Vec<Bytes> {
    let buffers: Vec<Bytes> = buffers.collect();
    let mut head = vec![VERSION, kind, 0, 0];
    // An address space cannot hold 2^32 buffers of at least one byte each beside everything else.
    head.extend(
        u32::try_from(buffers.len())
            .unwrap_or(u32::MAX)
            .to_le_bytes(),
    );
    head.extend((stream.len() as u64).to_le_bytes());
    for buffer in &buffers {
        head.extend((buffer.len() as u64).to_le_bytes());
    }
    let mut len = head.len() + stream.len();
    let mut pieces = vec![Bytes::from(head), stream];
    for buffer in buffers {
        let padding = len.next_multiple_of(ALIGNMENT) - len;
        if padding > 0 {
            pieces.push(Bytes::from_static(&[0; ALIGNMENT]).slice(..padding));
        }
        len += padding + buffer.len();
        pieces.push(buffer);
    }
    pieces
}

/// Decodes the object of a rank's payload; its large buffers stay in place, private to this process.
///
/// # Errors
///
/// Returns `ValueError` for a payload without an object; the errors of unpickling; `TypeError` for a pickle if pickles are refused. Each
/// error names the rank of the payload as messages do.
pub(crate) fn decode(
    py: Python<'_>,
    payload: Payload,
    pickling: Pickling,
    writer: Rank,
) -> PyResult<Py<PyAny>> {
    let decoded = match Received::of(payload, Looks::Once) {
        Ok(received) => received.decode(py, pickling),
        Err((_, error)) => Err(error),
    };
    naming(py, decoded, writer)
}

/// The same for a decoded object: its error names the rank that wrote the payload.
pub(crate) fn naming<T>(py: Python<'_>, decoded: PyResult<T>, writer: Rank) -> PyResult<T> {
    decoded.inspect_err(|error| {
        // Errors are ignored here: the original error matters.
        let _ = py
            .import("fsgather._errors")
            .and_then(|errors| errors.call_method1("name_writer", (error.value(py), writer.get())));
    })
}

/// A payload whose layout is known.
pub(crate) struct Received {
    layout: Layout,
    content: Content,
}

enum Content {
    /// It is only read while it is decoded.
    Bytes(Payload),
    /// Parts of it become parts of the object.
    Memory(Memory),
    /// The same for a pickle that may be decoded again: unpickled code may write to its buffers, so each decoding gets its own.
    Kept(Payload),
}

/// The number of times that a payload is decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looks {
    Once,
    /// Possibly by several threads at the same time, or again after a failure.
    Again,
}

impl Received {
    /// Finds the object in a payload.
    ///
    /// # Errors
    ///
    /// Returns the unchanged payload with `ValueError` if it holds no object, or with `MemoryError`.
    pub(crate) fn of(payload: Payload, looks: Looks) -> Result<Self, (Payload, PyErr)> {
        let Some(layout) = Layout::read(&payload) else {
            let what = "this payload does not hold a Python object: do all ranks run Python?";
            return Err((payload, PyValueError::new_err(what)));
        };
        let content = if layout.buffers.is_empty() {
            Content::Bytes(payload)
        } else if layout.kind != PLAIN && looks == Looks::Again {
            Content::Kept(payload)
        } else {
            Content::Memory(writable(payload)?)
        };
        Ok(Self { layout, content })
    }

    /// Decodes the object. Two decodings give two objects, which share their large buffers unless they are pickled.
    ///
    /// # Errors
    ///
    /// Returns the errors of unpickling; `TypeError` for a pickle if pickles are refused; `MemoryError`.
    pub(crate) fn decode(&self, py: Python<'_>, pickling: Pickling) -> PyResult<Py<PyAny>> {
        let _in_call = InCall::begin()?;
        let Layout {
            kind,
            stream,
            buffers,
        } = &self.layout;
        if *kind != PLAIN && pickling == Pickling::Refused {
            return Err(PyTypeError::new_err(
                "another rank has sent a pickle, and pickle is refused here (FSGATHER_PICKLE=0 or allow_pickle=False)",
            ));
        }
        let own;
        let memory = match &self.content {
            Content::Bytes(payload) => {
                let stream = &payload[stream.clone()];
                return match *kind {
                    PLAIN => fsgather_plain::decode(py, stream, &[]),
                    kind => unpickle(py, kind, &PyBytes::new(py, stream), Vec::new()),
                };
            }
            Content::Memory(memory) => memory,
            Content::Kept(payload) => {
                own = writable(payload.clone()).map_err(|(_, error)| error)?;
                &own
            }
        };
        let buffers: Vec<Py<PyAny>> = buffers
            .iter()
            .map(|range| memory.object(py, range.clone()))
            .collect::<PyResult<_>>()?;
        let stream = memory.object(py, stream.clone())?;
        match *kind {
            PLAIN => {
                let stream = BorrowedBuffer::of(stream.bind(py))?;
                fsgather_plain::decode(py, stream.as_ref(), &buffers)
            }
            kind => unpickle(py, kind, stream.bind(py), buffers),
        }
    }
}

/// Returns the payload as memory whose parts objects may show.
fn writable(payload: Payload) -> Result<Memory, (Payload, PyErr)> {
    let without_memory = |payload: Payload| {
        let what = format!("no memory for a payload of {} bytes", payload.len());
        (payload, PyMemoryError::new_err(what))
    };
    let payload = payload.try_into_writable().map_err(without_memory)?;
    if Aligned::is(&payload) {
        return Ok(Memory::of(payload));
    }
    match Aligned::copy(&payload) {
        Some(copy) => Ok(Memory::of(copy)),
        None => Err(without_memory(Bytes::from_owner(payload).into())),
    }
}

fn unpickle(
    py: Python<'_>,
    kind: u8,
    stream: &Bound<'_, PyAny>,
    buffers: Vec<Py<PyAny>>,
) -> PyResult<Py<PyAny>> {
    let loads = py.import("fsgather._pickling")?.getattr("loads")?;
    let object = inside_a_call(|| loads.call1((kind, stream, buffers)))?;
    Ok(object.unbind())
}

/// Positions in a payload.
struct Layout {
    kind: u8,
    stream: std::ops::Range<usize>,
    buffers: Vec<std::ops::Range<usize>>,
}

impl Layout {
    /// Returns `None` for bytes with another layout.
    fn read(payload: &[u8]) -> Option<Self> {
        let (head, rest) = payload.split_first_chunk::<HEAD>()?;
        let [VERSION, kind @ PLAIN..=PICKLE_WITH_CONTENTS, 0, 0] = head[..4] else {
            return None;
        };
        let count = u32::from_le_bytes(*head[4..8].first_chunk()?) as usize;
        let lens = rest.get(..count.checked_mul(8)?)?;
        let stream = HEAD + lens.len();
        let mut end = stream.checked_add(usize_at(head, 8)?)?;
        let stream = stream..end;
        let mut buffers = Vec::with_capacity(count);
        for index in 0..count {
            let start = end.checked_next_multiple_of(ALIGNMENT)?;
            end = start.checked_add(usize_at(lens, index * 8)?)?;
            buffers.push(start..end);
        }
        (end == payload.len()).then_some(Self {
            kind,
            stream,
            buffers,
        })
    }
}

fn usize_at(bytes: &[u8], offset: usize) -> Option<usize> {
    let number = u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?);
    usize::try_from(number).ok()
}
