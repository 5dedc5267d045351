//! Runs the `fsgather` command in a Python process: [`command`].

use std::ffi::OsString;

use pyo3::prelude::*;

use crate::object::decode_result;

/// Runs the command and returns its exit code. `program` starts the same command again, for its children.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>, program: Vec<OsString>) -> u8 {
    py.detach(|| fsgather_cli::main(arguments, program, Some(result_as_json)))
}

/// Converts a result to JSON, like `SampleResults.write_jsonl`.
fn result_as_json(encoded: Vec<u8>) -> Result<String, String> {
    let made = Python::try_attach(|py| {
        let text = || -> PyResult<String> {
            let result = decode_result(py, encoded)?;
            let module = py.import("fsgather._json_lines")?;
            module.call_method1("text_of", (result,))?.extract()
        };
        text().map_err(|error| error.value(py).to_string())
    });
    made.unwrap_or_else(|| Err("the interpreter has ended".into()))
}
