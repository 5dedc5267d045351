//! Directories of jobs that have crashed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use fsgather_store::{OwnerRecord, layout::RendezvousEntry};

use super::{Stage, World, everybody, left_in};

/// A copy of a gather directory without its payloads, beside it under the name of another job.
pub(crate) fn copy_of(gather: &Path, number: u32) -> PathBuf {
    let name = format!("gather-20261121t033336z-{number:08x}");
    let copy = gather.with_file_name(&name);
    for name in ["payloads", "staging"] {
        fs::create_dir_all(copy.join(name)).expect("a copy");
    }
    let owner = fs::read(gather.join("owner")).expect("a record");
    let mut owner = OwnerRecord::from_text(&owner).expect("a record");
    if let Some(RendezvousEntry::Gather(id)) = RendezvousEntry::parse(&name) {
        owner.gather = id;
    }
    fs::write(copy.join("owner"), owner.to_text()).expect("a copy");
    copy
}

/// Returns the gather directories in a directory.
pub(crate) fn gather_dirs(directory: &Path) -> Vec<PathBuf> {
    let mut left = left_in(directory);
    left.retain(|path| path.join("owner").exists());
    left
}

/// Starts a world that holds a gather directory and waits.
pub(crate) fn waiting(stage: &mut Stage, world: &World) {
    stage.start_all(world, |_| {
        "join all_gather_bytes:300000 at:ready all_gather_bytes:300000 close".into()
    });
    stage.wait_at(everybody(world.ranks), "ready");
}

/// Leaves the gather directory of a crashed job, and copies of it under names of other jobs.
pub(crate) fn crashed(directory: &Path, count: u32) -> Vec<PathBuf> {
    let mut stage = Stage::new();
    let world = World::new(2, directory)
        .with("FSGATHER_JOB", "4711")
        .with("FSGATHER_TRACE", "off");
    waiting(&mut stage, &world);
    stage.kill(0);
    stage.kill(1);
    stage.end_all(everybody(2));
    let mut gathers = gather_dirs(directory);
    assert_eq!(gathers.len(), 1);
    for number in 1..count {
        gathers.push(copy_of(&gathers[0], number));
    }
    gathers
}
