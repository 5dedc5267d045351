//! Plain data as bytes and back, without pickle: [`encode`], [`decode`].
//!
//! Plain data are the built-in types that hold data, those of `datetime`, numpy's arrays and scalars, and torch's tensors: exactly these
//! types, because a subclass may carry more than its data. Any other content makes an object [`Refusal::NotPlain`]; the caller may then use
//! pickle. A decoded object equals the one that pickle would return: types, order, shared references, cycles.
//!
//! Decoding trusts nothing: for any bytes, the result is an object or a `ValueError`, and the bytes cannot choose code to run.
//! `docs/design/plain-data.md` describes the format.

mod addresses;
mod arrays;
pub mod buffer;
mod collector;
mod dates;
mod decode;
mod dicts;
mod encode;
mod item_types;
mod keys;
mod known;
mod like;
mod make;
mod modes;
mod object;
mod read_tensors;
mod refusal;
mod shapes;
mod stream;
mod tensor_bytes;
mod tensors;

use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBytes, PyMemoryView},
};

use buffer::{BorrowedBuffer, Memory};

pub use decode::decode;
pub use encode::{Encoded, encode};
pub use like::Like;
pub use refusal::Refusal;

/// `_plain_encode(value, copy=True, like=None)`: returns the stream, and a memoryview of each buffer beside it.
///
/// The stream is a `bytes`; without `copy` it is a memory object, which is created without copying.
#[pyfunction(name = "_plain_encode")]
#[pyo3(signature = (value, copy = true, like = None))]
fn plain_encode<'py>(
    value: &Bound<'py, PyAny>,
    copy: bool,
    like: Option<&str>,
) -> PyResult<(Bound<'py, PyAny>, Vec<Bound<'py, PyMemoryView>>)> {
    let py = value.py();
    let Encoded { stream, buffers } =
        encode(value, Like::of(like)?).map_err(|refusal| match refusal {
            Refusal::Raised(error) => error,
            refusal => PyTypeError::new_err(refusal.to_string()),
        })?;
    let views = buffers.into_iter().map(|buffer| {
        let length = buffer.len();
        let object = Memory::lent(buffer).object(py, 0..length)?;
        PyMemoryView::from(object.bind(py))
    });
    let views = views.collect::<PyResult<_>>()?;
    let stream = if copy {
        PyBytes::new(py, &stream).into_any()
    } else {
        Memory::object_of(py, stream)?.into_bound(py)
    };
    Ok((stream, views))
}

/// `_plain_decode(stream, buffers)`: returns the value.
#[pyfunction(name = "_plain_decode")]
#[expect(
    clippy::needless_pass_by_value,
    reason = "arguments come from Python by value"
)]
fn plain_decode(stream: &Bound<'_, PyAny>, buffers: Vec<Py<PyAny>>) -> PyResult<Py<PyAny>> {
    let content = BorrowedBuffer::of(stream)?;
    decode(stream.py(), content.as_ref(), &buffers)
}

/// Adds the functions of this crate to a Python module.
///
/// # Errors
///
/// Returns an error if the interpreter runs out of memory.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(plain_encode, module)?)?;
    module.add_function(wrap_pyfunction!(plain_decode, module)?)
}
