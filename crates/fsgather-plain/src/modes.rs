//! Turns off modes of torch, which must not affect the encoding and decoding of tensors: [`ModesOff`].

use pyo3::{Bound, PyAny, Python, intern, prelude::*};

/// Turns off this thread's modes of torch while it lives: a default device other than the host is one, and the program may have modes of
/// its own.
pub(crate) struct ModesOff<'py>(Option<Bound<'py, PyAny>>);

impl<'py> ModesOff<'py> {
    pub(crate) fn begin(py: Python<'py>) -> PyResult<Self> {
        let module = py.import(intern!(py, "fsgather._tensors"))?;
        let stack = module.call_method0(intern!(py, "modes_off"))?;
        Ok(Self((!stack.is_none()).then_some(stack)))
    }
}

impl Drop for ModesOff<'_> {
    fn drop(&mut self) {
        if let Some(stack) = self.0.take() {
            // It only restores the previous modes.
            let _ = stack.call_method0(intern!(stack.py(), "close"));
        }
    }
}
