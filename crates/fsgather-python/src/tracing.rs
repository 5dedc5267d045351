//! Draws what ranks have handed over of their calls: [`draw_trace`].

use std::path::PathBuf;

use fsgather_observe::trace::drawing::drawing_of;
use pyo3::prelude::*;

/// The text of a file of this name, and what the trace comes to; nothing if no rank has handed over its calls. Each rank
/// hands over how many calls it had made before, and the bytes of its file.
#[pyfunction]
pub(crate) fn draw_trace(
    py: Python<'_>,
    file: PathBuf,
    ranks: Vec<(u64, Vec<u8>)>,
) -> Option<(String, String)> {
    py.detach(move || drawing_of(&file, &ranks))
}
