//! Memory of ours that Python reads and writes: [`Memory`].
//!
//! # Why this is sound
//!
//! [`Region`] owns its owner and never accesses it again until it drops it, so the one exclusive borrow of the bytes lasts as long. Each
//! Python object holds a share of the region, and each view of an object holds the object. From then on Python has the bytes for itself:
//! several views may write to the same bytes, as with any `bytearray`.
//!
//! The objects have a type of their own, made with `PyType_FromSpec`, because `PyO3` offers the buffer protocol only for the limited API of
//! 3.11 and later (`super::protocol` explains why older versions have it as well).
#![expect(
    unsafe_code,
    reason = "a type of Python with the buffer protocol is made of C functions; the argument is above"
)]

use std::{
    ffi::{c_int, c_uint, c_void},
    mem,
    ops::{DerefMut, Range},
    ptr::{self, NonNull},
    sync::Arc,
};

use pyo3::{
    exceptions::{PyBufferError, PyTypeError, PyValueError},
    ffi,
    prelude::*,
    sync::PyOnceLock,
    types::PyType,
};

use super::borrowed::BorrowedBuffer;
use super::protocol::{BF_GETBUFFER, PyBuffer, PyBuffer_FillInfo};

/// Bytes that can be given to Python: a `Vec`, a private mapping of a file.
pub trait WritableBytes: DerefMut<Target = [u8]> + Send + 'static {}

impl<T: DerefMut<Target = [u8]> + Send + 'static> WritableBytes for T {}

/// Bytes, and their owner.
struct Region {
    start: NonNull<u8>,
    length: usize,
    read_only: bool,
    /// From `Box::into_raw`.
    owner: *mut dyn Send,
}

// SAFETY: the owner may be dropped in any thread, being `Send`, and only its drop accesses it; the bytes are only passed on as an address.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: it comes from `Box::into_raw`, and is dropped only here.
        drop(unsafe { Box::from_raw(self.owner) });
    }
}

/// Writable memory whose parts Python objects can show.
///
/// Objects of [`Memory::object`] have Python's buffer protocol: `memoryview(object)`, `numpy.frombuffer(object, ...)` and the like view the
/// memory itself. It lives as long as any of them.
#[derive(Clone)]
pub struct Memory(Arc<Region>);

impl Memory {
    /// Memory that `owner` owns.
    pub fn of(owner: impl WritableBytes) -> Self {
        let owner = Box::into_raw(Box::new(owner));
        // SAFETY: it was a box a moment ago, and has no other reference.
        let bytes: &mut [u8] = unsafe { &mut *owner };
        let (start, length) = (NonNull::from(&mut *bytes).cast(), bytes.len());
        Self(Arc::new(Region {
            start,
            length,
            read_only: false,
            owner,
        }))
    }

    /// Memory of `borrowed`, for reading only.
    pub(crate) fn lent(borrowed: BorrowedBuffer) -> Self {
        let bytes = borrowed.as_ref();
        let (start, length) = (NonNull::from(bytes).cast(), bytes.len());
        Self(Arc::new(Region {
            start,
            length,
            read_only: true,
            owner: Box::into_raw(Box::new(borrowed)),
        }))
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.length
    }

    /// Returns an object over the whole memory of `owner`.
    ///
    /// # Errors
    ///
    /// Returns `MemoryError`.
    pub fn object_of(py: Python<'_>, owner: impl WritableBytes) -> PyResult<Py<PyAny>> {
        let memory = Self::of(owner);
        memory.object(py, 0..memory.len())
    }

    /// Returns an object over a part of the memory.
    ///
    /// # Errors
    ///
    /// Returns `ValueError` if the part reaches beyond the end, `MemoryError`.
    pub fn object(&self, py: Python<'_>, range: Range<usize>) -> PyResult<Py<PyAny>> {
        let length = self.len();
        if range.start > range.end || range.end > length {
            let Range { start, end } = range;
            return Err(PyValueError::new_err(format!(
                "bytes {start} to {end} of a memory of {length} bytes"
            )));
        }
        let kind = object_type(py)?;
        // SAFETY: the type was made below, with instances of this size; the allocator zeroes them.
        unsafe {
            let object = ffi::PyType_GenericAlloc(kind.as_ptr().cast(), 0);
            let object = Bound::from_owned_ptr_or_err(py, object)?;
            let fields = object.as_ptr().cast::<MemoryObject>();
            (*fields).region = Arc::into_raw(Arc::clone(&self.0));
            (*fields).start = self.0.start.as_ptr().add(range.start);
            (*fields).length = range.len();
            Ok(object.unbind())
        }
    }
}

/// An instance of the type, as the interpreter allocates it.
#[repr(C)]
struct MemoryObject {
    base: ffi::PyObject,
    /// A share of the region; null in an object that is not finished.
    region: *const Region,
    start: *mut u8,
    length: usize,
}

/// Returns the type, which is created once for each process.
fn object_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let kind = TYPE.get_or_try_init(py, || make_type(py))?;
    Ok(kind.bind(py))
}

fn make_type(py: Python<'_>) -> PyResult<Py<PyType>> {
    let slot = |slot: c_int, function: *mut c_void| ffi::PyType_Slot {
        slot,
        pfunc: function,
    };
    let mut slots = [
        slot(BF_GETBUFFER, get_buffer as *mut c_void),
        slot(ffi::Py_sq_length, length as *mut c_void),
        slot(ffi::Py_tp_new, refuse_new as *mut c_void),
        slot(ffi::Py_tp_dealloc, deallocate as *mut c_void),
        slot(
            ffi::Py_tp_doc,
            c"Memory that a gather received; writable through memoryview and the like."
                .as_ptr()
                .cast_mut()
                .cast(),
        ),
        slot(0, ptr::null_mut()),
    ];
    let too_big = |_| PyTypeError::new_err("the type fsgather.Memory has too many fields");
    let mut spec = ffi::PyType_Spec {
        name: c"fsgather.Memory".as_ptr(),
        basicsize: c_int::try_from(size_of::<MemoryObject>()).map_err(too_big)?,
        itemsize: 0,
        flags: c_uint::try_from(ffi::Py_TPFLAGS_DEFAULT).map_err(too_big)?,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the specification is complete, ends with an empty slot, and its functions have the signatures
    // that their slots ask for; what must outlive the call (the name, on 3.9) is static.
    let kind = unsafe {
        let kind = ffi::PyType_FromSpec(&raw mut spec);
        Bound::from_owned_ptr_or_err(py, kind)?
    };
    Ok(kind.cast_into::<PyType>()?.unbind())
}

/// The slot `bf_getbuffer`.
unsafe extern "C" fn get_buffer(
    object: *mut ffi::PyObject,
    view: *mut PyBuffer,
    flags: c_int,
) -> c_int {
    // SAFETY: the interpreter calls it with an instance, a structure to fill in, and the lock held. The view
    // holds a reference to the object until it is released, and the object holds the region.
    unsafe {
        let fields = object.cast::<MemoryObject>();
        if (*fields).region.is_null() {
            PyBufferError::new_err("a memory object without memory")
                .restore(Python::assume_attached());
            return -1;
        }
        let length = (*fields).length.cast_signed();
        let read_only = c_int::from((*(*fields).region).read_only);
        PyBuffer_FillInfo(
            view,
            object,
            (*fields).start.cast(),
            length,
            read_only,
            flags,
        )
    }
}

/// The slot `sq_length`.
unsafe extern "C" fn length(object: *mut ffi::PyObject) -> ffi::Py_ssize_t {
    // SAFETY: the interpreter calls it with an instance.
    unsafe { (*object.cast::<MemoryObject>()).length.cast_signed() }
}

/// The slot `tp_new`: without it Python code could create objects without memory.
unsafe extern "C" fn refuse_new(
    _: *mut ffi::PyTypeObject,
    _: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls it with the lock held.
    PyTypeError::new_err("fsgather.Memory objects come from gathers only")
        .restore(unsafe { Python::assume_attached() });
    ptr::null_mut()
}

/// The slot `tp_dealloc`.
unsafe extern "C" fn deallocate(object: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls it once, when no reference is left, with the lock held. Instances of heap
    // types hold their type, and are freed by the type's own function.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        let region = mem::replace(&mut (*object.cast::<MemoryObject>()).region, ptr::null());
        if !region.is_null() {
            drop(Arc::from_raw(region));
        }
        let free = ffi::PyType_GetSlot(kind, ffi::Py_tp_free);
        let free: ffi::freefunc = mem::transmute(free);
        free(object.cast());
        ffi::Py_DECREF(kind.cast());
    }
}
