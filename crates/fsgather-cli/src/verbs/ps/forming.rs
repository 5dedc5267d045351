//! Worlds whose ranks have not met yet, so that there are no calls of them: [`forming`].

use std::path::PathBuf;

use fsgather_core::duration_text;
use fsgather_store::{Meeting, Rules};

use crate::{housekeeping::surveyor, table::plain};

/// A line for each of these directories' worlds that are forming, or of which nobody keeps calls. Nothing of what cannot be looked at.
pub(super) fn forming(directories: &[PathBuf]) -> String {
    let Ok(surveyor) = surveyor(Rules::default()) else {
        return String::new();
    };
    let surveys = directories.iter().map(|place| surveyor.survey(place));
    let meetings = surveys
        .filter_map(Result::ok)
        .flat_map(|survey| survey.meetings);
    meetings
        .filter(|meeting| meeting.is_forming)
        .map(|meeting| line(&meeting))
        .collect()
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
