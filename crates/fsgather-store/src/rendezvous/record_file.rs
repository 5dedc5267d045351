//! Reads the file of a record: [`read_record`].

use std::path::Path;

use fsgather_core::Error;

use crate::{
    directory::gather_dir::is_not_seen,
    os::{
        directory::OwnUid,
        file::{self, NotRead},
        listing,
    },
    rendezvous::record::{self, Record, RecordError},
};

/// The reason why a record was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unread {
    #[error("{0}")]
    File(#[from] NotRead),
    #[error("{0}")]
    Incompatible(Error),
    #[error("{0}")]
    Record(RecordError),
}

impl Unread {
    /// Returns true if there is a file whose contents the operating system does not return, or that is not a regular file.
    pub(crate) fn is_of_the_file_system(&self) -> bool {
        match self {
            Self::File(NotRead::Failed(error)) => !is_not_seen(error),
            Self::File(NotRead::NoFile) => true,
            _ => false,
        }
    }
}

/// Reads a record of this user in a rendezvous directory.
pub(crate) fn read_record(path: &Path, own: OwnUid) -> Result<Record, Unread> {
    // It may have been opened before it was written, and the client may have cached its length.
    listing::refresh(path);
    let bytes = file::read_small(path, &[own.0], record::MAX_LEN)?;
    Record::from_bytes(&bytes).map_err(|error| match error {
        RecordError::Version(theirs) => Unread::Incompatible(Error::incompatible(
            format!("the rendezvous record {}", path.display()),
            Record::version().to_string(),
            theirs.to_string(),
        )),
        other => Unread::Record(other),
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn file_system_failures_differ_from_gone_or_torn_files() {
        let of = |unread: Unread| unread.is_of_the_file_system();
        // EIO, and ENOENT.
        let failed = |code| Unread::File(NotRead::Failed(io::Error::from_raw_os_error(code)));
        assert!(of(failed(5)) && !of(failed(2)));
        assert!(of(Unread::File(NotRead::NoFile)));
        assert!(!of(Unread::File(NotRead::Foreign(7))));
        assert!(!of(Unread::Record(RecordError::Torn)));
    }
}
