//! Reads the file of a record, whoever has written it: [`read_record`].

use std::{io, path::Path};

use fsgather_core::Error;

use crate::{
    os::{directory::OwnUid, file, listing},
    rendezvous::record::{self, Record, RecordError},
};

/// Why a record was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unread {
    #[error("{0}")]
    Failed(io::Error),
    #[error("it is not a file")]
    NoFile,
    #[error("it belongs to uid {0}")]
    Foreign(u32),
    #[error("{0}")]
    Incompatible(Error),
    #[error("{0}")]
    Record(RecordError),
}

/// Reads a record of this user in a rendezvous directory.
pub(crate) fn read_record(path: &Path, own: OwnUid) -> Result<Record, Unread> {
    // It may have been opened before it was written, and the client may remember its length.
    listing::refresh(path);
    let file = file::open(path).map_err(Unread::Failed)?;
    let opened = file::examine(&file).map_err(Unread::Failed)?;
    if !opened.is_regular {
        return Err(Unread::NoFile);
    }
    if opened.uid != own.0 {
        return Err(Unread::Foreign(opened.uid));
    }
    if opened.len > record::MAX_LEN {
        return Err(Unread::Record(RecordError::TooLong));
    }
    let bytes = file::read_bounded(&file, record::MAX_LEN).map_err(Unread::Failed)?;
    Record::from_bytes(&bytes).map_err(|error| match error {
        RecordError::Version(theirs) => Unread::Incompatible(Error::Incompatible {
            what: format!("the rendezvous record {}", path.display()),
            ours: Record::version().to_string(),
            theirs: theirs.to_string(),
        }),
        other => Unread::Record(other),
    })
}
