//! Pauses Python's cyclic garbage collector while many objects are created: [`CollectorPause`].

use pyo3::{intern, prelude::*};

/// A pause of the collector, which ends when this is dropped.
///
/// The collector runs after some hundred new containers, checks all young ones and finds nothing, since none of them is garbage yet. For
/// many containers, that takes longer than creating them.
pub(crate) struct CollectorPause<'py>(Option<Bound<'py, PyModule>>);

impl<'py> CollectorPause<'py> {
    /// Stops the collector, unless it is stopped already.
    ///
    /// # Errors
    ///
    /// Returns an error if the module `gc` is missing.
    pub(crate) fn begin(py: Python<'py>) -> PyResult<Self> {
        let collector = py.import(intern!(py, "gc"))?;
        let runs = collector.call_method0(intern!(py, "isenabled"))?;
        if !runs.is_truthy()? {
            return Ok(Self(None));
        }
        collector.call_method0(intern!(py, "disable"))?;
        Ok(Self(Some(collector)))
    }
}

impl Drop for CollectorPause<'_> {
    fn drop(&mut self) {
        if let Some(collector) = &self.0 {
            // It takes no argument and cannot fail. An error could not be reported here either.
            let _ = collector.call_method0(intern!(collector.py(), "enable"));
        }
    }
}
