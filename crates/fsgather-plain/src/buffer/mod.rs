//! Memory that Python and Rust share without copying it: [`BorrowedBuffer`] shows Python's memory to Rust, [`Memory`] shows ours to Python.

mod aligned;
mod borrowed;
mod memory;
mod protocol;

use pyo3::prelude::*;

pub use aligned::Aligned;
pub use borrowed::BorrowedBuffer;
pub use memory::Memory;
pub(crate) use protocol::{View, Wanted};

/// A borrowed buffer for the tests of this module, which are written in Python.
#[pyclass(name = "_BorrowedBuffer", frozen)]
struct Specimen(std::sync::Mutex<Option<BorrowedBuffer>>);

#[pymethods]
impl Specimen {
    #[new]
    #[pyo3(signature = (exporter, raw = false))]
    fn new(exporter: &Bound<'_, PyAny>, raw: bool) -> PyResult<Self> {
        let buffer = if raw {
            BorrowedBuffer::raw(exporter)
        } else {
            BorrowedBuffer::of(exporter)
        };
        Ok(Self(std::sync::Mutex::new(Some(buffer?))))
    }

    fn tobytes(&self) -> Vec<u8> {
        let held = self.0.lock();
        held.map_or_else(
            |_| Vec::new(),
            |held| held.as_ref().map_or(&[][..], AsRef::as_ref).to_vec(),
        )
    }

    /// Drops the buffer in a thread that does not hold the interpreter's lock.
    fn drop_in_thread(&self, py: Python<'_>) {
        if let Ok(mut held) = self.0.lock() {
            let taken = held.take();
            drop(held);
            py.detach(|| {
                std::thread::scope(|scope| drop(scope.spawn(|| drop(taken))));
            });
        }
    }
}

/// Objects over parts of one copy of `content`, for tests.
#[pyfunction(name = "_memory")]
fn specimen_memory(
    py: Python<'_>,
    content: Vec<u8>,
    ranges: Vec<(usize, usize)>,
) -> PyResult<Vec<Py<PyAny>>> {
    let memory = Memory::of(content);
    let objects = ranges.into_iter();
    objects
        .map(|(start, end)| memory.object(py, start..end))
        .collect()
}

/// Adds the functions and classes of this module to a Python module.
///
/// # Errors
///
/// Returns an error if the interpreter runs out of memory.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Specimen>()?;
    module.add_function(wrap_pyfunction!(specimen_memory, module)?)
}
