//! The file of a trace, in the format of its extension: [`drawing`].

use std::path::Path;

use crate::trace::{
    black_box::BlackBox, chrome, page, text::summary, timeline::Timeline, world::World,
};

/// Returns the contents of a file: a page if its name ends in `.html`, else JSON for Chrome and Perfetto.
#[must_use]
pub fn drawing(file: &Path, timeline: &Timeline, end: i64, summary: &str) -> String {
    if file.extension().is_some_and(|form| form == "html") {
        page::page(timeline, end, summary)
    } else {
        chrome::trace(timeline, end).to_string()
    }
}

/// Returns the contents of a file and the summary of the files of ranks: for each rank the bytes of its file, and the
/// number of calls that it had made before. Calls that have not ended are left out: only the call that hands over the
/// files is open.
#[must_use]
pub fn drawing_of(file: &Path, ranks: &[(u64, Vec<u8>)]) -> Option<(String, String)> {
    let boxes: Vec<BlackBox> = ranks
        .iter()
        .filter_map(|(before, bytes)| {
            let mut left = BlackBox::from_bytes(bytes)?;
            left.records
                .retain(|record| record.count > *before && record.ended.is_some());
            Some(left)
        })
        .collect();
    let communicator = boxes.first()?.header.communicator;
    let mut world = World::new(communicator);
    world.boxes.clone_from(&boxes);
    let timeline = Timeline::new(boxes);
    let end = timeline.end();
    let summary = summary(&[world], &timeline, end);
    let text = drawing(file, &timeline, end, &summary);
    Some((text, summary))
}
