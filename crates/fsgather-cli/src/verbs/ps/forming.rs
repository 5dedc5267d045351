//! Worlds whose ranks have not met yet, so that they have no calls: [`FormingWorlds`].

use std::path::{Path, PathBuf};

use fsgather_core::{WorldSize, duration_text};
use fsgather_observe::trace::world::World;
use fsgather_store::{Meeting, Rules};
use serde_json::{Value, json};

use crate::{housekeeping::surveyor, table::plain};

/// The worlds that are forming, or keep no calls.
pub(super) struct FormingWorlds(Vec<Meeting>);

impl FormingWorlds {
    /// Finds the records by which ranks meet. Directories that cannot be read have none.
    pub(super) fn find(directories: &[PathBuf]) -> Self {
        let Ok(surveyor) = surveyor(Rules::default()) else {
            return Self(Vec::new());
        };
        let directories = directories.iter();
        let meetings = directories.filter_map(|directory| surveyor.meetings(directory).ok());
        Self(meetings.flatten().collect())
    }

    /// Keeps those without calls in `worlds`, which were found later: ranks that have met keep calls. The writer of a record runs on
    /// this host, where its calls are seen at once.
    pub(super) fn without(mut self, worlds: &[World]) -> Self {
        self.0.retain(|meeting| {
            let mut boxes = worlds.iter().flat_map(|world| &world.boxes);
            !boxes.any(|one| one.header.process == meeting.writer)
        });
        self
    }

    /// Returns a line for each of them.
    pub(super) fn text(&self) -> String {
        let line = |meeting: &Meeting| {
            let size = meeting.world_size;
            let ranks = size.map_or_else(String::new, |size| format!(" of {size} ranks"));
            let (host, pid) = (plain(&meeting.writer.host), meeting.writer.pid);
            let age = duration_text(meeting.age);
            let place = plain(&directory(meeting).display().to_string());
            format!(
                "a world{ranks} is forming, or keeps no calls: its rank 0 is on {host} (pid {pid}), for {age} now, in {place}\n"
            )
        };
        self.0.iter().map(line).collect()
    }

    /// Returns `forming` of the JSON of `ps`.
    pub(super) fn to_json(&self) -> Vec<Value> {
        let world = |meeting: &Meeting| {
            json!({
                "directory": directory(meeting),
                "host": meeting.writer.host,
                "pid": meeting.writer.pid,
                "world_size": meeting.world_size.map(WorldSize::get),
                "age_seconds": meeting.age.as_secs_f64(),
            })
        };
        self.0.iter().map(world).collect()
    }
}

/// Returns the directory through which the ranks of a world meet.
fn directory(meeting: &Meeting) -> &Path {
    let mut parents = meeting.path.ancestors();
    parents.nth(2).unwrap_or(&meeting.path)
}
