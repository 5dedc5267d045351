//! A text of the program that messages show: [`Told`].

use pyo3::{
    intern,
    prelude::*,
    types::{PyBytes, PyString},
};

/// A place, or a reason: whatever its characters are, others are told of it.
///
/// A surrogate, as Python has them in names of files that are not UTF-8, is told as `\udcff`.
pub(crate) struct Told(String);

impl FromPyObject<'_, '_> for Told {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let text = given.cast::<PyString>()?;
        match text.to_cow() {
            Ok(text) => Ok(Self(text.into_owned())),
            Err(_surrogates) => escaped(&text).map(Self),
        }
    }
}

/// By `str` itself: a class derived from it may do otherwise.
fn escaped(text: &Bound<'_, PyString>) -> PyResult<String> {
    let py = text.py();
    let encoded = py
        .get_type::<PyString>()
        .call_method1(intern!(py, "encode"), (text, "utf-8", "backslashreplace"))?;
    let bytes = encoded.cast::<PyBytes>()?.as_bytes();
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

impl From<Told> for String {
    fn from(told: Told) -> Self {
        told.0
    }
}

impl AsRef<str> for Told {
    fn as_ref(&self) -> &str {
        &self.0
    }
}
