//! Draws the calls that ranks have sent: [`draw_trace`].

use std::path::PathBuf;

use fsgather_observe::trace::drawing::drawing_of;
use pyo3::prelude::*;

/// Returns the text for a file of this name, and a summary of the trace; `None` if no rank has sent its calls. Each rank sends the number
/// of calls that it had made before those to draw, and the bytes of its file.
#[pyfunction]
pub(crate) fn draw_trace(
    py: Python<'_>,
    file: PathBuf,
    ranks: Vec<(u64, Vec<u8>)>,
) -> Option<(String, String)> {
    py.detach(move || drawing_of(&file, &ranks))
}
