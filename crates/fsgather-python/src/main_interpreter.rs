//! Refuses sub-interpreters: [`require`].
#![expect(
    unsafe_code,
    reason = "the number of an interpreter comes from C functions, and Python's own module for it is private"
)]

use pyo3::{exceptions::PyImportError, ffi, prelude::*};

/// The number of the interpreter that the process starts with. Others count from 1.
const MAIN: i64 = 0;

/// Returns an `ImportError` in a sub-interpreter.
///
/// When the process exits, Python before 3.12 suspends every thread that asks for the lock of such an interpreter, for ever. That includes the
/// main thread, which notifies the other ranks at that moment. The objects that this module keeps also belong to one interpreter.
pub(crate) fn require(_py: Python<'_>) -> PyResult<()> {
    // SAFETY: this thread is attached to an interpreter, as the token shows, so that there is a current one, which outlives both calls.
    let number = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    if number == MAIN {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "fsgather cannot be imported in a sub-interpreter, because the process might never end; import it in the main \
         interpreter, or start a process for it, by multiprocessing for example",
    ))
}
