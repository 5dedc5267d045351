//! Returns the parts of a gather to its root, one rank at a time: [`Parts`].

use fsgather_core::lock;
use std::sync::Mutex;

use fsgather::Payload;
use pyo3::{exceptions::PyValueError, prelude::*, types::PyList};

use crate::{
    ending::{self, InCall},
    object::{self, Pickling},
    waiting::Waiter,
};

/// An iterator over the objects of all ranks, in rank order.
#[pyclass(frozen, module = "fsgather._fsgather")]
pub(crate) struct Parts {
    /// `None` after `close`.
    left: Mutex<Option<fsgather::parts::Parts<Payload>>>,
    waiting: Waiter,
    pickling: Pickling,
}

impl Parts {
    pub(crate) const fn new(
        parts: fsgather::parts::Parts<Payload>,
        waiting: Waiter,
        pickling: Pickling,
    ) -> Self {
        Self {
            left: Mutex::new(Some(parts)),
            waiting,
            pickling,
        }
    }
}

#[pymethods]
impl Parts {
    const fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let _in_call = InCall::begin()?;
        let payload = self.waiting.run(py, || {
            let mut parts = lock(&self.left);
            parts.as_mut().and_then(Iterator::next).transpose()
        })?;
        payload
            .map(|(rank, payload)| {
                let writer = self.waiting.name_of(rank);
                object::decode(py, payload, self.pickling, writer)
            })
            .transpose()
    }

    /// Number of bytes that have not been returned yet.
    #[getter]
    fn bytes_left(&self) -> PyResult<u64> {
        let parts = lock(&self.left);
        let parts = parts.as_ref();
        parts
            .map(fsgather::parts::Parts::bytes_left)
            .ok_or_else(|| PyValueError::new_err("this gather has been closed"))
    }

    /// Discards the parts that have not been returned yet.
    fn close(&self, py: Python<'_>) {
        ending::detach(py, || {
            let mut parts = lock(&self.left);
            parts.take()
        });
    }
}

/// Decodes the objects of all ranks, in rank order.
pub(crate) fn decode_all<'py>(
    py: Python<'py>,
    payloads: Vec<Payload>,
    pickling: Pickling,
    waiting: &Waiter,
) -> PyResult<Bound<'py, PyList>> {
    let objects = PyList::empty(py);
    for (rank, payload) in (0_u32..).zip(payloads) {
        let writer = waiting.name_of(rank.into());
        objects.append(object::decode(py, payload, pickling, writer)?)?;
    }
    Ok(objects)
}
