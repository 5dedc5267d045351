//! The extension module `fsgather._fsgather` of the Python package.
//!
//! The public interface is written in Python, in `python/fsgather`; this crate has the parts that must be fast, or use the library.

mod arrival;
mod bootstrap;
mod command;
mod communicator;
mod ending;
mod errors;
mod how;
mod logging;
mod main_interpreter;
mod object;
mod parts;
mod payloads;
mod pending;
mod places;
mod samples;
mod stacks;
mod switches;
mod told;
mod tracing;
mod waiting;

use pyo3::prelude::*;

#[pymodule]
mod _fsgather {
    use super::{Bound, PyModule, PyModuleMethods, PyResult, main_interpreter};

    #[pymodule_export]
    use super::{
        arrival::Arrival,
        command::command,
        communicator::Communicator,
        ending::{end_calls, forget_calls},
        errors::plain_line,
        errors::plain_text,
        parts::Parts,
        payloads::Payloads,
        pending::Pending,
        places::{interface_of, list_afresh, make_rendezvous, own_addresses},
        samples::{SampleResults, Samples, gather_samples, read_samples},
        switches::{choose_path, join_timeout, launched_rank},
        tracing::draw_trace,
        waiting::Stop,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        main_interpreter::require(module.py())?;
        // Programs such as those of Hydra change it before they gather.
        fsgather_config::working_directory::remember();
        fsgather_plain::buffer::register(module)?;
        fsgather_plain::register(module)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
