//! A message as one sealed file: [`write_in`] and [`read_in`] a gather directory, [`read`] elsewhere. Readers may see it
//! incomplete.

use std::{fmt, path::Path};

use fsgather_core::{Error, GatherId};

use crate::{
    directory::gather_dir::GatherDir,
    messages::sealed,
    os::{
        directory::OwnUid,
        file::{self, NotRead},
        listing,
    },
};

/// The reason why a message cannot be read, now or ever.
#[derive(Debug)]
pub(crate) enum Unread {
    /// It belongs to another user, or is not a regular file.
    NotOurs(OwnUid),
    /// Any other reason, perhaps temporary.
    NotYet(String),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOurs(own) => write!(f, "it is not a file of uid {}", own.0),
            Self::NotYet(why) => f.write_str(why),
        }
    }
}

/// Returns the proper place of a message, as its seal contains it: a message in another place is not accepted.
pub(crate) fn place(id: GatherId, name: &str) -> String {
    format!("{id}/{name}")
}

/// Reads a sealed file of this user whose proper place is `place`.
pub(crate) fn read(path: &Path, own: OwnUid, place: &str) -> Result<Vec<u8>, Unread> {
    let bytes = file::read_small(path, &[own.0], sealed::MAX_LEN).map_err(|why| match why {
        NotRead::NoFile | NotRead::Foreign(_) => Unread::NotOurs(own),
        // A file that only another user may read cannot even be opened.
        NotRead::Failed(_) if is_of_another(path, own) => Unread::NotOurs(own),
        why => Unread::NotYet(why.to_string()),
    })?;
    sealed::unseal(bytes, place).map_err(|error| Unread::NotYet(error.to_string()))
}

fn is_of_another(path: &Path, own: OwnUid) -> bool {
    listing::examine_path(path).is_ok_and(|found| found.uid != own.0)
}

fn place_in(directory: &GatherDir, path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    place(directory.facts().id, &name)
}

/// Seals a message for a path in a gather directory.
pub(crate) fn sealed_for(directory: &GatherDir, path: &Path, body: &[u8]) -> Vec<u8> {
    sealed::seal(body, &place_in(directory, path))
}

/// Writes a message to a gather directory.
pub(crate) fn write_in(directory: &GatherDir, path: &Path, body: &[u8]) -> Result<(), Error> {
    file::write_new(
        path,
        directory.file_mode(),
        &sealed_for(directory, path, body),
        directory.must_sync(),
    )
    .map_err(|error| Error::storage("write", path, directory.explain(&error)))
}

/// Reads a message in a gather directory.
pub(crate) fn read_in(directory: &GatherDir, path: &Path) -> Result<Vec<u8>, Unread> {
    read(path, directory.own(), &place_in(directory, path))
}

/// Returns true if a message that is not opened belongs to this user, and is not just a name.
pub(crate) fn is_own(directory: &GatherDir, path: &Path) -> bool {
    listing::examine_path(path).is_ok_and(|found| found.uid == directory.own().0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_counts_if_its_file_is_there_and_of_this_user() {
        let (_place, directory) = crate::payload::collect::tests::gather_dir();
        let path = directory.path().join("message");
        assert!(!is_own(&directory, &path));
        write_in(&directory, &path, b"word").unwrap();
        assert!(is_own(&directory, &path));
        let other = directory.own().0 + 1;
        assert!(!is_own(&directory.owned_by(other), &path));
    }

    #[test]
    fn only_what_this_user_has_sealed_for_its_place_is_read() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("message");
        let own = OwnUid(rustix::process::geteuid().as_raw());
        let other = OwnUid(own.0 + 1);
        assert!(matches!(read(&path, own, "here"), Err(Unread::NotYet(_))));
        assert!(!is_of_another(&path, other), "it is not there");
        std::fs::write(&path, sealed::seal(b"word", "here")).unwrap();
        assert_eq!(read(&path, own, "here").ok(), Some(b"word".to_vec()));
        assert!(matches!(read(&path, own, "there"), Err(Unread::NotYet(_))));
        assert!(matches!(
            read(&path, other, "here"),
            Err(Unread::NotOurs(_))
        ));
        assert!(is_of_another(&path, other) && !is_of_another(&path, own));
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(matches!(read(&path, own, "here"), Err(Unread::NotOurs(_))));
    }
}
