//! The extension module `fsgather._fsgather` of the Python package.

mod buffer;
mod plain;

use pyo3::prelude::*;

#[pymodule]
mod _fsgather {
    use super::{Bound, PyModule, PyModuleMethods, PyResult, buffer, plain};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        buffer::register(module)?;
        plain::register(module)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
