//! Answers agents of torchrun, which meet in a directory before there are ranks.

use std::{net::IpAddr, path::PathBuf};

use fsgather::bindings;
use pyo3::prelude::*;

use crate::errors;

/// Makes the rendezvous directory within a directory; its path.
#[pyfunction]
pub(crate) fn make_rendezvous(py: Python<'_>, directory: PathBuf) -> PyResult<PathBuf> {
    let made = py.detach(move || bindings::make_rendezvous(&directory));
    made.map_err(|error| errors::raise(py, &error))
}

/// The names in a directory as its server has them now.
#[pyfunction]
pub(crate) fn list_afresh(py: Python<'_>, directory: PathBuf) -> PyResult<Vec<String>> {
    Ok(py.detach(move || bindings::list_afresh(&directory))?)
}

/// The addresses of this host that others may reach, loopback ones last, where `FSGATHER_INTERFACE` is this.
#[pyfunction]
pub(crate) fn own_addresses(py: Python<'_>, rule: &str) -> PyResult<Vec<String>> {
    let found = bindings::own_addresses(rule).map_err(|error| errors::raise(py, &error))?;
    Ok(found.iter().map(ToString::to_string).collect())
}

/// The name of the interface that has this address.
#[pyfunction]
pub(crate) fn interface_of(address: &str) -> Option<String> {
    bindings::interface_of(address.parse::<IpAddr>().ok()?)
}
