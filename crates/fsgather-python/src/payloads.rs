//! Keeps the payloads of all ranks, and decodes each on demand: [`Payloads`].

use std::{mem, sync::Arc, sync::Mutex};

use fsgather::Payload;
use fsgather_core::{Rank, lock};
use pyo3::{exceptions::PyIndexError, prelude::*};

use crate::{
    ending::{self, InCall},
    object::{self, Looks, Pickling, Received},
    waiting::Waiter,
};

/// The payloads of all ranks of a call that has ended; `fsgather.Parts` wraps them.
///
/// No lock is held during decoding, since that runs Python code: two threads may decode the same payload, and a child that is forked
/// meanwhile finds no lock that is held for ever.
#[pyclass(frozen, module = "fsgather._fsgather")]
pub(crate) struct Payloads {
    parts: Mutex<Vec<Part>>,
    waiting: Waiter,
    pickling: Pickling,
}

enum Part {
    Unread(Payload),
    /// A thread has begun to decode it, and may not have finished.
    Received(Arc<Received>),
    /// It was discarded.
    Gone,
}

impl Payloads {
    pub(crate) fn new(payloads: Vec<Payload>, waiting: Waiter, pickling: Pickling) -> Self {
        Self {
            parts: Mutex::new(payloads.into_iter().map(Part::Unread).collect()),
            waiting,
            pickling,
        }
    }

    /// Returns the payload of the rank at `index`; `None` after it was discarded.
    fn received(&self, index: usize) -> PyResult<Option<Arc<Received>>> {
        let mut parts = lock(&self.parts);
        let part = parts
            .get_mut(index)
            .ok_or_else(|| PyIndexError::new_err("there is no such rank"))?;
        match mem::replace(part, Part::Gone) {
            Part::Unread(payload) => match Received::of(payload, Looks::Again) {
                Ok(received) => {
                    let received = Arc::new(received);
                    *part = Part::Received(Arc::clone(&received));
                    Ok(Some(received))
                }
                Err((payload, error)) => {
                    *part = Part::Unread(payload);
                    Err(error)
                }
            },
            Part::Received(received) => {
                *part = Part::Received(Arc::clone(&received));
                Ok(Some(received))
            }
            Part::Gone => Ok(None),
        }
    }
}

#[pymethods]
impl Payloads {
    fn __len__(&self) -> usize {
        lock(&self.parts).len()
    }

    /// Decodes the object of the rank at `index`, into a tuple of one; `None` after it was discarded.
    fn decode(&self, py: Python<'_>, index: usize) -> PyResult<Option<(Py<PyAny>,)>> {
        let _in_call = InCall::begin()?;
        let rank = Rank::new(u32::try_from(index).unwrap_or(u32::MAX));
        let decoded = match self.received(index) {
            Ok(None) => return Ok(None),
            Ok(Some(received)) => received.decode(py, self.pickling),
            Err(error) => Err(error),
        };
        object::naming(py, decoded, self.waiting.name_of(rank)).map(|object| Some((object,)))
    }

    /// Discards the payload of the rank at `index`.
    fn discard(&self, py: Python<'_>, index: usize) {
        let discarded = {
            let mut parts = lock(&self.parts);
            let part = parts.get_mut(index);
            part.map(|part| mem::replace(part, Part::Gone))
        };
        ending::detach(py, || drop(discarded));
    }
}
