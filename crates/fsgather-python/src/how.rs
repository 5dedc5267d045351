//! The options of one call: [`How`], and what its words mean.

use std::{path::PathBuf, time::Duration};

use fsgather::{CallOptions, Transport};
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{errors, like::Like, object::Pickling};

/// What all calls have in common, as `fsgather.Communicator` hands it over: a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct How {
    site: Option<String>,
    timeout: Option<f64>,
    allow_pickle: bool,
    like: Option<String>,
    transport: Option<String>,
    directory: Option<PathBuf>,
    max_size: Option<u64>,
}

/// How an object is carried.
#[derive(Clone, Copy)]
pub(crate) struct Carrying {
    pub(crate) pickling: Pickling,
    pub(crate) like: Like,
}

impl How {
    /// The same for the library, and for objects.
    pub(crate) fn take(self) -> PyResult<(Carrying, CallOptions)> {
        let options = CallOptions {
            transport: self.transport.as_deref().map(transport).transpose()?,
            directory: self.directory,
            timeout: self.timeout.map(duration).transpose()?,
            bound: self.max_size,
            site: self.site,
        };
        let pickling = if self.allow_pickle {
            Pickling::Allowed
        } else {
            Pickling::Refused
        };
        let like = Like::of(self.like.as_deref())?;
        Ok((Carrying { pickling, like }, options))
    }
}

pub(crate) fn duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| {
            PyValueError::new_err(format!(
                "a time-out of {seconds} s must be a positive number of seconds, such as 1800"
            ))
        })
}

pub(crate) fn transport(text: &str) -> PyResult<Transport> {
    match text {
        "auto" => Ok(Transport::Auto),
        "filesys" => Ok(Transport::Filesys),
        "memory" => Ok(Transport::Memory),
        _ => Err(errors::config(&format!(
            "transport={text:?} must be auto, filesys or memory"
        ))),
    }
}
