//! The memory of torch's storages.
#![expect(
    unsafe_code,
    reason = "torch gives the memory of a storage as an address; the argument is below"
)]

use std::ptr::NonNull;

use pyo3::{Bound, PyAny, Python, exceptions::PyValueError, intern, prelude::*};

use crate::buffer::BorrowedBuffer;

/// Returns the module, which has been imported if there are tensors.
pub(crate) fn torch(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import(intern!(py, "torch"))
}

/// Returns the bytes from `start` to `end` of the storage of `tensor`; memory of other devices is copied to the host.
///
/// # Why this is sound
///
/// The buffer holds the storage, which keeps its memory while it lives. One event could free the memory earlier: another thread that
/// enlarges the same storage in the meantime (`resize_`), which torch's own computations do not survive either.
///
/// # Errors
///
/// Returns `ValueError` if the storage is shorter, and the errors of torch.
pub(crate) fn of_storage(
    tensor: &Bound<'_, PyAny>,
    start: usize,
    end: usize,
) -> PyResult<BorrowedBuffer> {
    let py = tensor.py();
    let storage = tensor.call_method0(intern!(py, "untyped_storage"))?;
    let device: String = storage
        .getattr(intern!(py, "device"))?
        .getattr(intern!(py, "type"))?
        .extract()?;
    let (storage, start, end) = if device == "cpu" {
        (storage, start, end)
    } else {
        // Only the range is copied.
        let module = torch(py)?;
        let bytes = (module.getattr("uint8")?, storage.getattr("device")?);
        let options = pyo3::types::PyDict::new(py);
        options.set_item("dtype", bytes.0)?;
        options.set_item("device", bytes.1)?;
        let range = module.call_method("empty", (0,), Some(&options))?;
        range.call_method1("set_", (storage, start, (end - start,), (1,)))?;
        let copy = range.call_method0("cpu")?;
        (
            copy.call_method0(intern!(py, "untyped_storage"))?,
            0,
            end - start,
        )
    };
    let size: usize = storage.call_method0(intern!(py, "nbytes"))?.extract()?;
    let address: usize = storage.call_method0(intern!(py, "data_ptr"))?.extract()?;
    if start > end || end > size {
        return Err(PyValueError::new_err(format!(
            "bytes {start} to {end} of a storage of {size} bytes"
        )));
    }
    let beginning = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(address));
    let (Some(beginning), true) = (beginning, end > start) else {
        // SAFETY: no bytes at all.
        return Ok(unsafe { BorrowedBuffer::kept_by(storage.unbind(), NonNull::dangling(), 0) });
    };
    // SAFETY: the storage has `size` bytes there, of which these are some, and is held; see above.
    Ok(unsafe { BorrowedBuffer::kept_by(storage.unbind(), beginning.add(start), end - start) })
}
