//! Functions for agents of torchrun, which meet in a directory before there are ranks.

use std::{net::IpAddr, path::PathBuf};

use fsgather::bindings;
use pyo3::prelude::*;

use crate::errors;

/// Creates the rendezvous directory in a directory, and returns its path.
#[pyfunction]
pub(crate) fn make_rendezvous(py: Python<'_>, directory: PathBuf) -> PyResult<PathBuf> {
    let made = py.detach(move || bindings::make_rendezvous(&directory));
    made.map_err(|error| errors::raise(py, &error))
}

/// Returns the names in a directory as its server has them now.
#[pyfunction]
pub(crate) fn list_afresh(py: Python<'_>, directory: PathBuf) -> PyResult<Vec<String>> {
    Ok(py.detach(move || bindings::list_afresh(&directory))?)
}

/// Returns the addresses of this host that others may reach, loopback addresses last; `rule` is a value of `FSGATHER_INTERFACE`.
#[pyfunction]
pub(crate) fn own_addresses(py: Python<'_>, rule: &str) -> PyResult<Vec<String>> {
    let found = bindings::own_addresses(rule).map_err(|error| errors::raise(py, &error))?;
    Ok(found.iter().map(ToString::to_string).collect())
}

/// Returns the name of the interface with this address.
#[pyfunction]
pub(crate) fn interface_of(address: &str) -> Option<String> {
    bindings::interface_of(address.parse::<IpAddr>().ok()?)
}
