//! Python's memory for reading in Rust: [`BorrowedBuffer`].
#![expect(
    unsafe_code,
    reason = "memory that belongs to Python is read through a pointer; the argument is below"
)]

use std::{ptr::NonNull, slice};

use pyo3::{prelude::*, types::PyMemoryView};

use super::protocol::{View, Wanted};

/// The bytes of a Python object, which stay in place until this is dropped.
///
/// It may be read and dropped in any thread, without the interpreter's lock. If it is dropped without the lock, the object is released when
/// a thread of ours next takes the lock; after the interpreter has ended, never.
///
/// Python code can write to the memory while we read it: nothing in Python can forbid that. Each byte then has its value from before or
/// after. So a sender must compute checksums from the bytes that it sent, not from a second read of this memory.
///
/// # Why this is sound
///
/// A `memoryview` of our own holds the memory: an object with exported memory neither moves nor frees it (a `bytearray` refuses to be
/// resized, for instance), and only we know the `memoryview`, so that no other code releases it. At the end only its reference count must
/// change, which `Py` does when it may.
pub struct BorrowedBuffer {
    start: NonNull<u8>,
    length: usize,
    /// Keeps the memory.
    _owner: Py<PyAny>,
}

// SAFETY: `start` is only read from, and what it points to is kept by `_owner`, which is itself `Send` and
// `Sync`.
unsafe impl Send for BorrowedBuffer {}
// SAFETY: as above.
unsafe impl Sync for BorrowedBuffer {}

impl BorrowedBuffer {
    /// Returns the bytes of `exporter`, which must be in C order without gaps.
    ///
    /// # Errors
    ///
    /// Returns `TypeError` if it is not bytes-like, `BufferError` or `ValueError` if its memory is not in C order.
    pub fn of(exporter: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::seen_as(exporter, Wanted::Bytes)
    }

    /// Returns the bytes of `exporter` in their own order: C or Fortran order, without gaps.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`BorrowedBuffer::of`], if there are gaps.
    pub(crate) fn raw(exporter: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::seen_as(exporter, Wanted::Raw)
    }

    fn seen_as(exporter: &Bound<'_, PyAny>, wanted: Wanted) -> PyResult<Self> {
        let owner = PyMemoryView::from(exporter)?.into_any();
        let (start, length) = View::of(&owner, wanted)?.address();
        Ok(Self {
            start,
            length,
            _owner: owner.unbind(),
        })
    }

    /// `length` bytes at `start`, which `owner` keeps.
    ///
    /// # Safety
    ///
    /// The bytes must stay readable and in place as long as `owner` lives.
    pub(crate) unsafe fn kept_by(owner: Py<PyAny>, start: NonNull<u8>, length: usize) -> Self {
        Self {
            start,
            length,
            _owner: owner,
        }
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.length
    }
}

impl AsRef<[u8]> for BorrowedBuffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `_owner` keeps `length` bytes there; see the argument above for those who write to them.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}
