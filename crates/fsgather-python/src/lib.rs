//! The extension module `fsgather._fsgather` of the Python package.

use pyo3::prelude::*;

#[pymodule]
mod _fsgather {
    use super::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
