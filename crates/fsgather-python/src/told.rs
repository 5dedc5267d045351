//! A text of the program that messages show: [`Told`].

use pyo3::{
    intern,
    prelude::*,
    types::{PyBytes, PyString},
};

/// A place or a reason, with any characters, which is sent to other ranks.
///
/// A surrogate, which Python uses in names of files that are not UTF-8, becomes `\udcff`.
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

/// Calls `encode` of `str` itself: a derived class may override it.
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
