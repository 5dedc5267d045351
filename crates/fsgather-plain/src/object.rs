//! Objects whose exact type is known: [`Object`].
//!
//! The functions are those of the C API, because the conversions of `PyO3` check again facts that are known here, which takes as long as
//! the rest.
//!
//! # Why this is sound
//!
//! A `'py` proves that the interpreter's lock is held. Only [`Object::of`] creates the types below, after it has compared the type of the
//! object, so each function gets the type it expects. None of them runs Python code, except where noted and except for errors: creating one
//! may start the collector, which runs finalizers. If a function can fail, the caller holds its object, and uses nothing afterwards that
//! was borrowed before.
#![expect(
    unsafe_code,
    reason = "the C API is called directly; the argument is above"
)]

use std::{ffi::c_char, ffi::c_int, ptr, slice};

use pyo3::{Borrowed, ffi, prelude::*};

unsafe extern "C" {
    // In the limited API since 3.10 only; exported with this signature since 3.3.
    fn PyUnicode_AsUTF8AndSize(
        text: *mut ffi::PyObject,
        length: *mut ffi::Py_ssize_t,
    ) -> *const c_char;
}

/// An object that its container or caller holds.
pub(crate) type Item<'a, 'py> = Borrowed<'a, 'py, PyAny>;

/// An object by its exact type: subclasses are [`Object::Other`].
#[derive(Clone, Copy)]
pub(crate) enum Object<'a, 'py> {
    None,
    Bool(bool),
    Int(Int<'a, 'py>),
    Float(Float<'a, 'py>),
    Complex,
    Str(Str<'a, 'py>),
    Bytes(Bytes<'a, 'py>),
    ByteArray,
    List(List<'a, 'py>),
    Tuple(Tuple<'a, 'py>),
    Dict(Dict<'a, 'py>),
    Set,
    FrozenSet,
    Other,
}

/// A `float`.
#[derive(Clone, Copy)]
pub(crate) struct Float<'a, 'py>(Item<'a, 'py>);
/// An `int`.
#[derive(Clone, Copy)]
pub(crate) struct Int<'a, 'py>(pub(super) Item<'a, 'py>);
/// A `str`.
#[derive(Clone, Copy)]
pub(crate) struct Str<'a, 'py>(pub(super) Item<'a, 'py>);
/// A `bytes`.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a, 'py>(pub(super) Item<'a, 'py>);
/// A `list`.
#[derive(Clone, Copy)]
pub(crate) struct List<'a, 'py>(pub(super) Item<'a, 'py>);
/// A `tuple`.
#[derive(Clone, Copy)]
pub(crate) struct Tuple<'a, 'py>(pub(super) Item<'a, 'py>);
/// A `dict`.
#[derive(Clone, Copy)]
pub(crate) struct Dict<'a, 'py>(pub(super) Item<'a, 'py>);

impl<'a, 'py> Object<'a, 'py> {
    /// Classifies `item`.
    #[inline]
    pub(crate) fn of(item: Item<'a, 'py>) -> Self {
        let object = item.as_ptr();
        // SAFETY: an object has a type, and the types compared with are statics of the interpreter, of which
        // only the address is used.
        let kind = unsafe { ffi::Py_TYPE(object) };
        if kind == &raw mut ffi::PyUnicode_Type {
            Self::Str(Str(item))
        } else if kind == &raw mut ffi::PyFloat_Type {
            Self::Float(Float(item))
        } else if kind == &raw mut ffi::PyLong_Type {
            Self::Int(Int(item))
        } else if kind == &raw mut ffi::PyDict_Type {
            Self::Dict(Dict(item))
        } else if kind == &raw mut ffi::PyList_Type {
            Self::List(List(item))
        } else if kind == &raw mut ffi::PyTuple_Type {
            Self::Tuple(Tuple(item))
        } else if item.is_none() {
            Self::None
        } else if kind == &raw mut ffi::PyBool_Type {
            // SAFETY: two objects have this type; the address of one is compared.
            Self::Bool(object == unsafe { ffi::Py_True() })
        } else if kind == &raw mut ffi::PyBytes_Type {
            Self::Bytes(Bytes(item))
        } else {
            Self::rarer(kind)
        }
    }

    fn rarer(kind: *mut ffi::PyTypeObject) -> Self {
        if kind == &raw mut ffi::PyByteArray_Type {
            Self::ByteArray
        } else if kind == &raw mut ffi::PySet_Type {
            Self::Set
        } else if kind == &raw mut ffi::PyFrozenSet_Type {
            Self::FrozenSet
        } else if kind == &raw mut ffi::PyComplex_Type {
            Self::Complex
        } else {
            Self::Other
        }
    }
}

/// Returns true if the object can occur a second time: every reference counts.
#[inline]
pub(crate) fn is_shared(item: Item<'_, '_>) -> bool {
    // SAFETY: an object has a count. Releases from 3.12 on keep a mark of immortality in it, which reads as a
    // large number.
    unsafe { ffi::Py_REFCNT(item.as_ptr()) > 1 }
}

impl Float<'_, '_> {
    #[inline]
    pub(crate) fn get(self) -> f64 {
        // SAFETY: it is a float, for which this cannot fail.
        unsafe { ffi::PyFloat_AsDouble(self.0.as_ptr()) }
    }
}

impl Int<'_, '_> {
    /// The value, if 64 bits are enough.
    #[inline]
    pub(crate) fn get(self) -> Option<i64> {
        let mut overflow: c_int = 0;
        // SAFETY: it is an int, for which this fails by `overflow` only.
        let value =
            unsafe { ffi::PyLong_AsLongLongAndOverflow(self.0.as_ptr(), &raw mut overflow) };
        (overflow == 0).then_some(value)
    }
}

/// A `str` that is held.
pub(crate) struct HeldStr<'py>(pub(super) Bound<'py, PyAny>);

impl HeldStr<'_> {
    /// The text, unless it has surrogates or memory runs out: finding that out may run Python code.
    #[inline]
    pub(crate) fn utf8(&self) -> Option<&[u8]> {
        let mut length = 0;
        // SAFETY: it is a str. The bytes belong to it and stay until it goes, which is not before the borrow ends.
        unsafe {
            let start = PyUnicode_AsUTF8AndSize(self.0.as_ptr(), &raw mut length);
            if start.is_null() {
                ffi::PyErr_Clear();
                return None;
            }
            Some(slice::from_raw_parts(start.cast(), length.cast_unsigned()))
        }
    }
}

impl<'py> Str<'_, 'py> {
    /// The same string, held.
    #[inline]
    pub(crate) fn held(self) -> HeldStr<'py> {
        HeldStr(self.0.to_owned())
    }

    /// Returns true if both have the same text.
    #[inline]
    pub(crate) fn equals(self, other: Str<'_, '_>) -> bool {
        // SAFETY: both are str, for which this cannot fail.
        unsafe { ffi::PyUnicode_Compare(self.0.as_ptr(), other.0.as_ptr()) == 0 }
    }
}

impl<'a> Bytes<'a, '_> {
    #[inline]
    pub(crate) fn get(self) -> &'a [u8] {
        // SAFETY: it is a bytes, which does not change, and stays until `'a` ends.
        unsafe {
            let start = ffi::PyBytes_AsString(self.0.as_ptr());
            let length = ffi::PyBytes_Size(self.0.as_ptr());
            slice::from_raw_parts(start.cast(), length.cast_unsigned())
        }
    }
}

impl<'py> List<'_, 'py> {
    #[inline]
    pub(crate) fn len(self) -> usize {
        // SAFETY: it is a list.
        unsafe { ffi::PyList_Size(self.0.as_ptr()).cast_unsigned() }
    }

    /// An element; none if the list has ended.
    ///
    /// # Safety
    ///
    /// The list holds the element, and Python code may remove it: the caller must not use it after running Python code, or while running
    /// it, unless it is held elsewhere.
    #[inline]
    pub(crate) unsafe fn item<'b>(self, index: usize) -> Option<Item<'b, 'py>> {
        // SAFETY: it is a list, and the index is checked by it.
        unsafe {
            let item = ffi::PyList_GetItem(self.0.as_ptr(), index.cast_signed());
            if item.is_null() {
                ffi::PyErr_Clear();
                return None;
            }
            Some(Borrowed::from_ptr(self.0.py(), item))
        }
    }
}

impl<'a, 'py> Tuple<'a, 'py> {
    #[inline]
    pub(crate) fn len(self) -> usize {
        // SAFETY: it is a tuple.
        unsafe { ffi::PyTuple_Size(self.0.as_ptr()).cast_unsigned() }
    }

    /// An element; none beyond the end.
    #[inline]
    pub(crate) fn item(self, index: usize) -> Option<Item<'a, 'py>> {
        // SAFETY: it is a tuple, which checks the index, and holds its elements as long as it lives.
        unsafe {
            let item = ffi::PyTuple_GetItem(self.0.as_ptr(), index.cast_signed());
            if item.is_null() {
                ffi::PyErr_Clear();
                return None;
            }
            Some(Borrowed::from_ptr(self.0.py(), item))
        }
    }
}

impl<'py> Dict<'_, 'py> {
    #[inline]
    pub(crate) fn len(self) -> usize {
        // SAFETY: it is a dict.
        unsafe { ffi::PyDict_Size(self.0.as_ptr()).cast_unsigned() }
    }

    /// The next key and value after `position`, which begins as 0.
    ///
    /// # Safety
    ///
    /// As for [`List::item`].
    #[inline]
    pub(crate) unsafe fn next<'b>(
        self,
        position: &mut ffi::Py_ssize_t,
    ) -> Option<(Item<'b, 'py>, Item<'b, 'py>)> {
        let (mut key, mut value) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: it is a dict, and the positions are its own; that one may be beyond the end by now is checked
        // by it.
        unsafe {
            let more = ffi::PyDict_Next(self.0.as_ptr(), position, &raw mut key, &raw mut value);
            (more != 0).then(|| {
                let py = self.0.py();
                (Borrowed::from_ptr(py, key), Borrowed::from_ptr(py, value))
            })
        }
    }
}

/// The next element of an iterator over `set`, in the order of the set; none at the end.
///
/// # Errors
///
/// `RuntimeError` if the set has changed.
///
/// # Safety
///
/// As for [`List::item`]: it is the set that holds the element.
#[inline]
pub(crate) unsafe fn next_of_set<'b, 'py>(
    iterator: &Bound<'py, PyAny>,
) -> PyResult<Option<Item<'b, 'py>>> {
    let py = iterator.py();
    // SAFETY: it is an iterator. It gives a reference that is ours in addition to that of the set. Ours is dropped, since a count that
    // includes it would make each element look shared.
    unsafe {
        let item = ffi::PyIter_Next(iterator.as_ptr());
        if item.is_null() {
            return PyErr::take(py).map_or(Ok(None), Err);
        }
        drop(Bound::from_owned_ptr(py, item));
        Ok(Some(Borrowed::from_ptr(py, item)))
    }
}
