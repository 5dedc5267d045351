//! The options of one call: [`How`], and the meaning of their values.

use std::ffi::OsString;

use fsgather::Options;
use fsgather_config::words::{FromWord, Word};
use pyo3::{
    conversion::FromPyObjectOwned,
    intern,
    prelude::*,
    types::{PyDict, PyString},
};

use fsgather_plain::Like;

use crate::{errors, object::Pickling, told::Told};

/// The options of a call, which `fsgather.Communicator` passes as a dictionary.
pub(crate) struct How {
    site: Option<Told>,
    tag: Option<String>,
    timeout: Option<Said>,
    allow_pickle: bool,
    like: Option<String>,
    max_size: Option<u64>,
}

impl FromPyObject<'_, '_> for How {
    type Error = PyErr;

    // Written by hand, since the derived code creates the names for each call, which takes longer than all other steps.
    fn extract(how: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let py = how.py();
        let how = how.cast::<PyDict>()?;
        Ok(Self {
            site: said(&how, intern!(py, "site"))?,
            tag: said(&how, intern!(py, "tag"))?,
            timeout: said(&how, intern!(py, "timeout"))?,
            allow_pickle: said(&how, intern!(py, "allow_pickle"))?.unwrap_or(false),
            like: said(&how, intern!(py, "like"))?,
            max_size: said(&how, intern!(py, "max_size"))?,
        })
    }
}

/// The option of this name, if it is set.
fn said<'py, T: FromPyObjectOwned<'py>>(
    how: &Bound<'py, PyDict>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<T>> {
    match how.get_item(name)? {
        Some(said) => said.extract::<Option<T>>().map_err(Into::into),
        None => Ok(None),
    }
}

/// The encoding of an object.
#[derive(Clone, Copy)]
pub(crate) struct Carrying {
    pub(crate) pickling: Pickling,
    pub(crate) like: Like,
}

impl How {
    /// Splits the options into those of the library, and those of objects.
    pub(crate) fn take(self) -> PyResult<(Carrying, Options)> {
        let mut options = Options::new();
        if let Some(said) = self.timeout {
            options = options.timeout(word("timeout", said)?);
        }
        if let Some(bound) = self.max_size {
            options = options.bound(bound);
        }
        if let Some(tag) = self.tag {
            options = options.tag(tag);
        }
        if let Some(site) = self.site {
            options = options.site(String::from(site));
        }
        let pickling = if self.allow_pickle {
            Pickling::Allowed
        } else {
            Pickling::Refused
        };
        let like = Like::of(self.like.as_deref())?;
        Ok((Carrying { pickling, like }, options))
    }
}

/// The value of an argument: a number, or a text.
#[derive(FromPyObject)]
pub(crate) enum Said {
    Number(u64),
    Fraction(f64),
    Text(OsString),
}

impl From<Said> for Word {
    fn from(said: Said) -> Self {
        match said {
            Said::Number(number) => Self::Number(number),
            Said::Fraction(number) => Self::Fraction(number),
            Said::Text(text) => Self::Text(text),
        }
    }
}

/// Parses the argument of this name.
pub(crate) fn word<T: FromWord>(name: &str, said: Said) -> PyResult<T> {
    T::from_word(name, said.into()).map_err(|error| Python::attach(|py| errors::raise(py, &error)))
}
