//! Worlds whose ranks have not met yet, so that there are no calls of them: [`forming`].

use std::path::PathBuf;

use fsgather_core::{ProcessId, duration_text};
use fsgather_observe::trace::black_box::Extent;
use fsgather_store::{Meeting, Rules};

use crate::{housekeeping::surveyor, table::plain, verbs::trace::worlds_of};

/// These directories' worlds that are forming, or of which nobody keeps calls. Nothing of what cannot be looked at.
///
/// Who has met keeps calls from then on. That there is a gather directory tells nothing: ranks may meet through it.
pub(super) fn forming(directories: &[PathBuf], me: &ProcessId) -> Vec<Meeting> {
    let Ok(surveyor) = surveyor(Rules::default()) else {
        return Vec::new();
    };
    let places = directories.iter();
    let mut meetings: Vec<Meeting> = places
        .filter_map(|place| surveyor.meetings(place).ok())
        .flatten()
        .collect();
    if meetings.is_empty() {
        return meetings;
    }
    // Whose writer runs, runs on this host, where its calls are seen at once. They are looked for last: ranks may meet meanwhile.
    let worlds = worlds_of(directories, &[], me, Extent::Last).unwrap_or_default();
    meetings.retain(|meeting| {
        let mut boxes = worlds.iter().flat_map(|world| &world.boxes);
        !boxes.any(|one| one.header.process == meeting.writer)
    });
    meetings
}

/// A line for each of them.
pub(super) fn text(meetings: &[Meeting]) -> String {
    meetings.iter().map(line).collect()
}

fn line(meeting: &Meeting) -> String {
    let ranks = meeting
        .world_size
        .map_or_else(String::new, |size| format!(" of {size} ranks"));
    format!(
        "a world{ranks} is forming, or keeps no calls: its rank 0 is on {} (pid {}), for {} now\n",
        plain(&meeting.writer.host),
        meeting.writer.pid,
        duration_text(meeting.age)
    )
}
