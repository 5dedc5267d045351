//! Types of modules that may not be imported: [`Known`].

use pyo3::{
    Bound, Py, PyAny, Python,
    prelude::*,
    sync::PyOnceLock,
    types::{PyDict, PyType},
};

/// The types beyond the built-in ones that plain data may have.
///
/// Modules are never imported for this: an object of a type of theirs is only there once they are.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) dates: Option<&'static DateTypes>,
    pub(super) arrays: Option<&'static ArrayTypes>,
    pub(super) tensors: Option<&'static TensorTypes>,
}

/// The types of `datetime`.
pub(super) struct DateTypes {
    pub(super) date: Py<PyType>,
    pub(super) time: Py<PyType>,
    pub(super) datetime: Py<PyType>,
    pub(super) timedelta: Py<PyType>,
    pub(super) timezone: Py<PyType>,
}

/// The types of numpy.
pub(super) struct ArrayTypes {
    pub(super) ndarray: Py<PyType>,
    /// The base of all scalars.
    pub(super) generic: Py<PyType>,
    pub(super) dtype: Py<PyAny>,
}

/// The types of torch.
pub(super) struct TensorTypes {
    pub(super) tensor: Py<PyType>,
}

impl Known {
    /// What is there by now.
    pub(super) fn by_now(py: Python<'_>) -> PyResult<Self> {
        static DATES: PyOnceLock<DateTypes> = PyOnceLock::new();
        static ARRAYS: PyOnceLock<ArrayTypes> = PyOnceLock::new();
        static TENSORS: PyOnceLock<TensorTypes> = PyOnceLock::new();
        let modules = py.import("sys")?.getattr("modules")?;
        let modules = modules.cast_into::<PyDict>()?;
        Ok(Self {
            dates: found(&DATES, &modules, "datetime", DateTypes::of),
            arrays: found(&ARRAYS, &modules, "numpy", ArrayTypes::of),
            tensors: found(&TENSORS, &modules, "torch", TensorTypes::of),
        })
    }
}

/// What a module offers, if it is imported; a module of that name without it is as good as none.
fn found<T: Send + Sync>(
    known: &'static PyOnceLock<T>,
    modules: &Bound<'_, PyDict>,
    name: &str,
    types: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
) -> Option<&'static T> {
    let py = modules.py();
    if let Some(known) = known.get(py) {
        return Some(known);
    }
    let module = modules.get_item(name).ok().flatten()?;
    let types = types(&module).ok()?;
    Some(known.get_or_init(py, || types))
}

fn type_of(module: &Bound<'_, PyAny>, name: &str) -> PyResult<Py<PyType>> {
    Ok(module.getattr(name)?.cast_into::<PyType>()?.unbind())
}

impl DateTypes {
    pub(super) fn of(module: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            date: type_of(module, "date")?,
            time: type_of(module, "time")?,
            datetime: type_of(module, "datetime")?,
            timedelta: type_of(module, "timedelta")?,
            timezone: type_of(module, "timezone")?,
        })
    }
}

impl ArrayTypes {
    pub(super) fn of(module: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            ndarray: type_of(module, "ndarray")?,
            generic: type_of(module, "generic")?,
            dtype: module.getattr("dtype")?.unbind(),
        })
    }
}

impl TensorTypes {
    pub(super) fn of(module: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            tensor: type_of(module, "Tensor")?,
        })
    }
}
