//! The options of one call: [`How`], and what its words mean.

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

/// What is said of a call, as `fsgather.Communicator` hands it over: a dictionary.
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

    // By hand, since what is derived makes the names anew for each call, which takes longer than all else.
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

/// What is said by this name, if anything.
fn said<'py, T: FromPyObjectOwned<'py>>(
    how: &Bound<'py, PyDict>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<T>> {
    match how.get_item(name)? {
        Some(said) => said.extract::<Option<T>>().map_err(Into::into),
        None => Ok(None),
    }
}

/// How an object is carried.
#[derive(Clone, Copy)]
pub(crate) struct Carrying {
    pub(crate) pickling: Pickling,
    pub(crate) like: Like,
}

impl How {
    /// The same for the library, and for objects.
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

/// What a program says of an argument: a number, or a text.
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

/// What the argument of this name means.
pub(crate) fn word<T: FromWord>(name: &str, said: Said) -> PyResult<T> {
    T::from_word(name, said.into()).map_err(|error| Python::attach(|py| errors::raise(py, &error)))
}
