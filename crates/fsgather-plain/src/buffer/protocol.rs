//! Python's buffer protocol, which the limited API of Python 3.9 and 3.10 lacks: [`View`].
//!
//! # Why our own declarations are right
//!
//! `Py_buffer` and the functions below entered the limited API in 3.11. They are older: every Python since 3.0 exports these symbols with
//! these signatures, and the layout of `Py_buffer` has had the same eleven fields in the same order ever since (PEP 3118 fixed it, and the
//! limited API froze it). So a module for the limited API of 3.9 finds on 3.9 and 3.10 exactly the interface that 3.11 promises.
//! `PyType_FromSpec` accepts the slot numbers of the protocol (`Py_bf_getbuffer` is 1) from 3.9 on. The tests run on each version.
#![expect(
    unsafe_code,
    reason = "the buffer protocol is a C interface; the argument stands at each use"
)]

use std::{
    ffi::{c_char, c_int, c_void},
    marker::PhantomData,
    ptr::{self, NonNull},
    slice,
};

use pyo3::{
    ffi::{Py_ssize_t, PyObject},
    prelude::*,
};

/// The number of the slot for the function that fills in a [`PyBuffer`].
pub(super) const BF_GETBUFFER: c_int = 1;

/// Requests plain bytes, without shape or format; only contiguous memory can be viewed like this.
const SIMPLE: c_int = 0;
/// Requests shape and strides, of memory without gaps in row or column order.
const ANY_CONTIGUOUS: c_int = 0x0080 | 0x0010 | 0x0008;

/// `Py_buffer` as PEP 3118 lays it out.
#[repr(C)]
pub(super) struct PyBuffer {
    buf: *mut c_void,
    obj: *mut PyObject,
    len: Py_ssize_t,
    itemsize: Py_ssize_t,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut Py_ssize_t,
    strides: *mut Py_ssize_t,
    suboffsets: *mut Py_ssize_t,
    internal: *mut c_void,
}

unsafe extern "C" {
    fn PyObject_GetBuffer(exporter: *mut PyObject, view: *mut PyBuffer, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut PyBuffer);
    pub(super) fn PyBuffer_FillInfo(
        view: *mut PyBuffer,
        exporter: *mut PyObject,
        buf: *mut c_void,
        len: Py_ssize_t,
        readonly: c_int,
        flags: c_int,
    ) -> c_int;
}

/// The properties that a [`View`] must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Bytes in C order.
    Bytes,
    /// Bytes in C or Fortran order, with shape and strides.
    Raw,
}

/// Memory of a Python object, for as long as the interpreter's lock is held.
pub(crate) struct View<'py> {
    // An exporter may point into the structure, so it must not move.
    buffer: Box<PyBuffer>,
    _attached: PhantomData<Python<'py>>,
}

impl<'py> View<'py> {
    /// The memory of `exporter`.
    ///
    /// # Errors
    ///
    /// `TypeError` if it is not bytes-like, `BufferError` or `ValueError` if it cannot be seen as `wanted`.
    pub(crate) fn of(exporter: &Bound<'py, PyAny>, wanted: Wanted) -> PyResult<Self> {
        let mut buffer = Box::new(PyBuffer {
            buf: ptr::null_mut(),
            obj: ptr::null_mut(),
            len: 0,
            itemsize: 0,
            readonly: 0,
            ndim: 0,
            format: ptr::null_mut(),
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            suboffsets: ptr::null_mut(),
            internal: ptr::null_mut(),
        });
        let flags = match wanted {
            Wanted::Bytes => SIMPLE,
            Wanted::Raw => ANY_CONTIGUOUS,
        };
        // SAFETY: the lock is held, `exporter` is an object, and the structure stays where it is until it is
        // released, which happens once, in `drop`.
        let failed = unsafe { PyObject_GetBuffer(exporter.as_ptr(), &raw mut *buffer, flags) };
        if failed != 0 {
            return Err(PyErr::fetch(exporter.py()));
        }
        Ok(Self {
            buffer,
            _attached: PhantomData,
        })
    }

    /// Returns the start of the memory, and its length in bytes.
    pub(crate) fn address(&self) -> (NonNull<u8>, usize) {
        let length = usize::try_from(self.buffer.len).unwrap_or(0);
        // Exporters of empty memory may give a null pointer.
        match NonNull::new(self.buffer.buf.cast()) {
            Some(start) => (start, length),
            None => (NonNull::dangling(), 0),
        }
    }

    /// Returns the memory, in its own order.
    ///
    /// Other threads of Python cannot write to it while it is read, because the lock is held; extension modules that release the lock can.
    /// Each byte then has its old or its new value.
    pub(crate) fn bytes(&self) -> &[u8] {
        let (start, length) = self.address();
        // SAFETY: the exporter keeps these bytes in place until the view is released, and contiguous as was
        // asked of it.
        unsafe { slice::from_raw_parts(start.as_ptr(), length) }
    }

    /// The length of each dimension; empty if the view was not made as [`Wanted::Raw`].
    pub(crate) fn shape(&self) -> &[Py_ssize_t] {
        self.dimensions(self.buffer.shape)
    }

    /// The step of each dimension, in bytes; empty as for [`View::shape`].
    pub(crate) fn strides(&self) -> &[Py_ssize_t] {
        self.dimensions(self.buffer.strides)
    }

    /// Size of one item in bytes.
    pub(crate) fn item_size(&self) -> Py_ssize_t {
        self.buffer.itemsize
    }

    fn dimensions(&self, values: *mut Py_ssize_t) -> &[Py_ssize_t] {
        let count = usize::try_from(self.buffer.ndim).unwrap_or(0);
        if values.is_null() || count == 0 {
            return &[];
        }
        // SAFETY: the protocol promises `ndim` values where the pointer is not null.
        unsafe { slice::from_raw_parts(values, count) }
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        // SAFETY: it was filled in by `PyObject_GetBuffer`, and the lock is held, as `'py` says.
        unsafe { PyBuffer_Release(&raw mut *self.buffer) };
    }
}
