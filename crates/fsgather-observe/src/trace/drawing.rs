//! The file of a trace, in the form that its name asks for: [`drawing`].

use std::path::Path;

use crate::trace::{
    black_box::{BlackBox, World},
    chrome, page,
    text::summary,
    timeline::Timeline,
};

/// What goes into a file: a page where its name ends in `.html`, else what Chrome and Perfetto read.
#[must_use]
pub fn drawing(file: &Path, timeline: &Timeline, end: i64, summary: &str) -> String {
    if file.extension().is_some_and(|form| form == "html") {
        page::page(timeline, end, summary)
    } else {
        chrome::trace(timeline, end).to_string()
    }
}

/// The same of what ranks have handed over, each the bytes of its file and how many calls it had made before; and what it
/// comes to, as text. None of them are open: who hands over has come to the end.
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
