//! An announcement that a rank has arrived where others meet it: [`Arrival`].

use fsgather_core::lock;
use std::sync::Mutex;

use fsgather::{bindings, codec::Postcard};
use pyo3::prelude::*;

use crate::waiting::Waiter;

/// An announcement that this rank has arrived, for as long as it is kept.
#[pyclass(frozen, module = "fsgather._fsgather")]
pub(crate) struct Arrival {
    arrival: Mutex<bindings::Arrival<Postcard>>,
    waiting: Waiter,
}

impl Arrival {
    pub(crate) const fn new(arrival: bindings::Arrival<Postcard>, waiting: Waiter) -> Self {
        Self {
            arrival: Mutex::new(arrival),
            waiting,
        }
    }
}

#[pymethods]
impl Arrival {
    /// Returns true if all ranks have arrived. It does not wait, and raises the error that keeps a rank from arriving.
    fn have_all_come(&self, py: Python<'_>) -> PyResult<bool> {
        self.waiting.run(py, || {
            let mut arrival = lock(&self.arrival);
            arrival.have_all_come()
        })
    }
}
