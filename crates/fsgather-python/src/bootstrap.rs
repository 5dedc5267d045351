//! A rendezvous through two Python callables, such as a store's `set` and `get`: [`Callables`].

use std::time::Instant;

use fsgather::Bootstrap;
use pyo3::{prelude::*, types::PyBytes};

/// `publish(bytes)` on rank 0, `fetch(seconds) -> bytes` on the others.
pub(crate) struct Callables {
    pub(crate) publish: Py<PyAny>,
    pub(crate) fetch: Py<PyAny>,
}

impl Bootstrap for Callables {
    fn publish(&self, record: &[u8]) -> Result<(), String> {
        Python::attach(|py| {
            let record = PyBytes::new(py, record);
            self.publish.call1(py, (record,)).map(drop)
        })
        .map_err(|error| error.to_string())
    }

    fn fetch(&self, deadline: Instant) -> Result<Vec<u8>, String> {
        let left = deadline.saturating_duration_since(Instant::now());
        Python::attach(|py| {
            let record = self.fetch.call1(py, (left.as_secs_f64(),))?;
            record.extract::<Vec<u8>>(py)
        })
        .map_err(|error| error.to_string())
    }
}
