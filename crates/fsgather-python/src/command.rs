//! The `fsgather` command, inside of a Python process: [`command`].

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command and returns what it ends with. `program` starts the same command again, for its children.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>, program: Vec<OsString>) -> u8 {
    py.detach(|| fsgather_cli::main(arguments, program))
}
