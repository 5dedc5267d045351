//! Hands a gather's root each rank's part as soon as it is handed in: [`Completed`].

use fsgather_core::lock;
use std::sync::Mutex;

use fsgather::Payload;
use pyo3::prelude::*;

use crate::{
    ending::{self, InCall},
    errors::{self, MissingPeer},
    object::{self, Pickling},
    waiting::Waiter,
};

/// An object, and the rank that has handed it in.
pub(crate) type RankedObject = (u32, Py<PyAny>);

/// An iterator over the objects of all ranks, each with its rank, in the order in which they are handed in.
#[pyclass(frozen, module = "fsgather._fsgather")]
pub(crate) struct Completed {
    /// Gone once it has been closed.
    left: Mutex<Option<fsgather::parts::Completed<Payload>>>,
    waiting: Waiter,
    pickling: Pickling,
}

impl Completed {
    pub(crate) const fn new(
        completed: fsgather::parts::Completed<Payload>,
        waiting: Waiter,
        pickling: Pickling,
    ) -> Self {
        Self {
            left: Mutex::new(Some(completed)),
            waiting,
            pickling,
        }
    }
}

#[pymethods]
impl Completed {
    const fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<RankedObject>> {
        let _in_call = InCall::begin()?;
        let payload = self.waiting.run(py, || {
            let mut left = lock(&self.left);
            left.as_mut().and_then(Iterator::next).transpose()
        })?;
        payload
            .map(|(rank, payload)| {
                let writer = self.waiting.name_of(rank);
                let object = object::decode(py, payload, self.pickling, writer)?;
                Ok((rank.get(), object))
            })
            .transpose()
    }

    /// Who had not handed in when the deadline passed, as far as that is decided; by their places, as the objects.
    #[getter]
    fn missing(&self) -> Vec<MissingPeer> {
        let left = lock(&self.left);
        let missing = left.as_ref().map(fsgather::parts::Completed::missing);
        errors::missing_peers(missing.unwrap_or_default())
    }

    /// Whether it is known who had not handed in.
    #[getter]
    fn is_decided(&self) -> bool {
        let left = lock(&self.left);
        left.as_ref()
            .is_some_and(fsgather::parts::Completed::is_decided)
    }

    /// Throws away what has not been looked at yet.
    fn close(&self, py: Python<'_>) {
        ending::detach(py, || {
            let mut left = lock(&self.left);
            left.take()
        });
    }
}
