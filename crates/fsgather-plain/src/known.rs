//! Types of modules that may not be imported: [`Known`].

use pyo3::{
    Bound, Py, PyAny, Python, intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyComplex, PyDict, PyType},
};

/// The types of plain data beyond the built-in ones.
///
/// Types that the program has registered with `copyreg` are excluded: the program defines how they are pickled.
///
/// Modules are never imported for this: an object of their types exists only if they were imported.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    pub(crate) dates: Option<&'static DateTypes>,
    pub(crate) arrays: Option<&'static ArrayTypes>,
    pub(crate) tensors: Option<&'static TensorTypes>,
    /// True if `complex` numbers are pickled by their value alone.
    pub(crate) complex: bool,
}

/// The types of `datetime`.
pub(crate) struct DateTypes {
    pub(crate) date: Py<PyType>,
    pub(crate) time: Py<PyType>,
    pub(crate) datetime: Py<PyType>,
    pub(crate) timedelta: Py<PyType>,
    pub(crate) timezone: Py<PyType>,
}

/// The types of numpy.
pub(crate) struct ArrayTypes {
    pub(crate) ndarray: Py<PyType>,
    /// The base of all scalars.
    pub(crate) generic: Py<PyType>,
    pub(crate) dtype: Py<PyAny>,
}

/// The types of torch.
pub(crate) struct TensorTypes {
    pub(crate) tensor: Py<PyType>,
}

impl Known {
    /// The types that exist by now.
    pub(crate) fn by_now(py: Python<'_>) -> PyResult<Self> {
        static DATES: PyOnceLock<DateTypes> = PyOnceLock::new();
        static ARRAYS: PyOnceLock<ArrayTypes> = PyOnceLock::new();
        static TENSORS: PyOnceLock<TensorTypes> = PyOnceLock::new();
        let modules = py.import("sys")?.getattr("modules")?;
        let modules = modules.cast_into::<PyDict>()?;
        let registered = Registered::by_now(py)?;
        let dates = found(&DATES, &modules, "datetime", DateTypes::of);
        let arrays = found(&ARRAYS, &modules, "numpy", ArrayTypes::of);
        let tensors = found(&TENSORS, &modules, "torch", TensorTypes::of);
        let is_free = |types: &[&Py<PyType>]| registered.has_none_of(py, types);
        Ok(Self {
            dates: kept(dates, |types| is_free(&types.all()))?,
            arrays: kept(arrays, |types| {
                Ok(is_free(&[&types.ndarray])? && registered.has_none_below(&types.generic)?)
            })?,
            tensors: kept(tensors, |types| is_free(&[&types.tensor]))?,
            complex: registered.complex_is_as_ever()?,
        })
    }
}

fn kept<T>(
    types: Option<&'static T>,
    keeps: impl FnOnce(&'static T) -> PyResult<bool>,
) -> PyResult<Option<&'static T>> {
    Ok(match types {
        Some(types) if keeps(types)? => Some(types),
        _ => None,
    })
}

/// The pickling functions that the program has registered: `copyreg.dispatch_table`.
struct Registered<'py> {
    module: Bound<'py, PyModule>,
    table: Bound<'py, PyDict>,
}

impl<'py> Registered<'py> {
    fn by_now(py: Python<'py>) -> PyResult<Self> {
        let module = py.import(intern!(py, "copyreg"))?;
        let table = module.getattr(intern!(py, "dispatch_table"))?;
        let table = table.cast_into::<PyDict>()?;
        Ok(Self { module, table })
    }

    fn has_none_of(&self, py: Python<'py>, types: &[&Py<PyType>]) -> PyResult<bool> {
        for kind in types {
            if self.table.contains(kind.bind(py))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn has_none_below(&self, base: &Py<PyType>) -> PyResult<bool> {
        for kind in self.table.keys() {
            let is_below = match kind.cast::<PyType>() {
                Ok(kind) => kind.is_subclass(base.bind(kind.py()))?,
                Err(_) => false,
            };
            if is_below {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns true if the entry for `complex` is Python's own.
    fn complex_is_as_ever(&self) -> PyResult<bool> {
        let py = self.table.py();
        let found = self.table.get_item(py.get_type::<PyComplex>())?;
        let own = self.module.getattr_opt(intern!(py, "pickle_complex"))?;
        Ok(match (found, own) {
            (Some(found), Some(own)) => found.is(&own),
            (found, _) => found.is_none(),
        })
    }
}

/// The types of a module, if it is imported. A module of that name without these types does not count.
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
    pub(crate) fn of(module: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            date: type_of(module, "date")?,
            time: type_of(module, "time")?,
            datetime: type_of(module, "datetime")?,
            timedelta: type_of(module, "timedelta")?,
            timezone: type_of(module, "timezone")?,
        })
    }

    const fn all(&self) -> [&Py<PyType>; 5] {
        [
            &self.date,
            &self.time,
            &self.datetime,
            &self.timedelta,
            &self.timezone,
        ]
    }
}

impl ArrayTypes {
    pub(crate) fn of(module: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            ndarray: type_of(module, "ndarray")?,
            generic: type_of(module, "generic")?,
            dtype: module.getattr("dtype")?.unbind(),
        })
    }
}

impl TensorTypes {
    pub(crate) fn of(module: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            tensor: type_of(module, "Tensor")?,
        })
    }
}
