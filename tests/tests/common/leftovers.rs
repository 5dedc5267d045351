//! Directories of jobs that have crashed, made from one: [`copy_of`].

use std::{
    fs,
    path::{Path, PathBuf},
};

use fsgather_store::{OwnerRecord, layout::RendezvousEntry};

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
