//! Reads the owner record of a gather directory: [`read_owner`].

use std::path::Path;

use fsgather_core::{Error, StorageCause};

use crate::{
    directory::owner::{self, OwnerRecord},
    layout::{self, RendezvousEntry},
    os::{
        directory::OwnUid,
        file::{self, NotRead},
    },
};

/// Reads the owner record of the gather directory at `path`, which must belong to `own`.
///
/// A record about another directory counts as damaged: a process that is gone there may be at work here.
///
/// # Errors
///
/// As `crate::GatherDir::owner`.
pub fn read_owner(path: &Path, own: OwnUid) -> Result<OwnerRecord, Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let path = path.join(layout::OWNER);
    let bytes = file::read_small(&path, &[own.0], owner::MAX_RECORD_LEN).map_err(|why| {
        let cause = match why {
            NotRead::Failed(error) => StorageCause::from(&error),
            why => {
                StorageCause::described(format!("it is not a small file of uid {}: {why}", own.0))
            }
        };
        Error::storage("read", &path, cause)
    })?;
    let corrupt = |reason: String| Error::corrupt(path.clone(), reason, None, None);
    let record = OwnerRecord::from_text(&bytes).map_err(|error| match error {
        owner::OwnerRecordError::Version(theirs) => {
            Error::incompatible(format!("the owner record {}", path.display()), "1", theirs)
        }
        other => corrupt(other.to_string()),
    })?;
    match RendezvousEntry::parse(&name) {
        Some(RendezvousEntry::Gather(id)) if id != record.gather => {
            let found = record.gather;
            Err(corrupt(format!(
                "it is about gather-{found}, expected gather-{id}"
            )))
        }
        _ => Ok(record),
    }
}
