//! New objects of built-in types, for decoding.
//!
//! Like `super::object`, these functions call the C API without repeating checks.
#![expect(
    unsafe_code,
    reason = "the C API is called directly; each call says why it may"
)]

use std::ptr;

use pyo3::{Bound, PyAny, PyResult, Python, ffi, prelude::*, types::PyDict};

/// Returns a string from UTF-8.
///
/// # Errors
///
/// Returns `UnicodeDecodeError`, `MemoryError`.
#[inline]
pub(crate) fn text<'py>(py: Python<'py>, utf8: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the bytes are there, and the call checks them.
    unsafe {
        let start = utf8.as_ptr().cast();
        let text = ffi::PyUnicode_DecodeUTF8(start, utf8.len().cast_signed(), ptr::null());
        Bound::from_owned_ptr_or_err(py, text)
    }
}

/// Returns a string from UTF-8 that may contain surrogates.
///
/// # Errors
///
/// Returns the errors of [`text`].
pub(crate) fn text_with_surrogates<'py>(
    py: Python<'py>,
    bytes: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    let errors = c"surrogatepass".as_ptr();
    // SAFETY: as above; the name of the error handler is static.
    unsafe {
        let start = bytes.as_ptr().cast();
        let text = ffi::PyUnicode_DecodeUTF8(start, bytes.len().cast_signed(), errors);
        Bound::from_owned_ptr_or_err(py, text)
    }
}

/// A list or tuple that is being filled, from its first element to its last.
///
/// The collector does not know it before it is full: through the collector, Python code finds every container, and it must not find an
/// empty slot.
pub(crate) struct NewSequence<'py> {
    object: Bound<'py, PyAny>,
    filled: usize,
    length: usize,
    is_list: bool,
}

impl<'py> NewSequence<'py> {
    /// Returns a list with room for `length` elements.
    ///
    /// # Errors
    ///
    /// Returns `MemoryError`.
    #[inline]
    pub(crate) fn list(py: Python<'py>, length: usize) -> PyResult<Self> {
        // SAFETY: the length is not negative, since it is that of data in memory.
        let object = unsafe {
            let list = ffi::PyList_New(length.cast_signed());
            Bound::from_owned_ptr_or_err(py, list)?
        };
        Ok(Self::hidden(object, length, true))
    }

    /// Returns a tuple with room for `length` elements.
    ///
    /// # Errors
    ///
    /// Returns `MemoryError`.
    pub(crate) fn tuple(py: Python<'py>, length: usize) -> PyResult<Self> {
        // SAFETY: as above.
        let object = unsafe {
            let tuple = ffi::PyTuple_New(length.cast_signed());
            Bound::from_owned_ptr_or_err(py, tuple)?
        };
        Ok(Self::hidden(object, length, false))
    }

    /// Hides a new list or tuple from the collector, if it has slots.
    #[inline]
    fn hidden(object: Bound<'py, PyAny>, length: usize, is_list: bool) -> Self {
        if length > 0 {
            // SAFETY: the collector knows lists and tuples, and this one is ours alone: no Python code has run since it
            // was made. One that is dropped before it is full is hidden once more, which does nothing.
            unsafe { ffi::PyObject_GC_UnTrack(object.as_ptr().cast()) };
        }
        Self {
            object,
            filled: 0,
            length,
            is_list,
        }
    }

    /// Fills the next slot; there must be one.
    #[inline]
    pub(crate) fn push(&mut self, element: Bound<'py, PyAny>) {
        debug_assert!(self.filled < self.length, "the row is full");
        let index = self.filled.cast_signed();
        // SAFETY: it is a list or tuple of ours without any other reference, hidden even from the collector; the slot exists, which the
        // call checks, and is empty. The sequence takes over the reference.
        unsafe {
            if self.is_list {
                ffi::PyList_SetItem(self.object.as_ptr(), index, element.into_ptr());
            } else {
                ffi::PyTuple_SetItem(self.object.as_ptr(), index, element.into_ptr());
            }
        }
        self.filled += 1;
    }

    /// Returns the list or tuple.
    ///
    /// # Errors
    ///
    /// Returns `SystemError` if a slot is empty: Python code must not see an empty slot.
    #[inline]
    pub(crate) fn finish(self) -> PyResult<Bound<'py, PyAny>> {
        if self.filled == self.length {
            if self.length > 0 {
                // SAFETY: it was hidden when it was made, and every place is filled.
                unsafe { ffi::PyObject_GC_Track(self.object.as_ptr().cast()) };
            }
            Ok(self.object)
        } else {
            Err(pyo3::exceptions::PySystemError::new_err(
                "a list or tuple was not filled",
            ))
        }
    }
}

/// Sets a value in a dictionary.
///
/// # Errors
///
/// Returns `TypeError` if the key cannot be hashed, `MemoryError`.
#[inline]
pub(crate) fn set<'py>(
    dict: &Bound<'py, PyDict>,
    key: &Bound<'py, PyAny>,
    value: &Bound<'py, PyAny>,
) -> PyResult<()> {
    // SAFETY: a dictionary, a key and a value.
    let failed = unsafe { ffi::PyDict_SetItem(dict.as_ptr(), key.as_ptr(), value.as_ptr()) };
    if failed == 0 {
        Ok(())
    } else {
        Err(PyErr::fetch(dict.py()))
    }
}
