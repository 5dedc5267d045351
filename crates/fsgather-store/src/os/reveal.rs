//! Making a finished file visible under its final name: [`PublishMode`], the one owner of `rename` and
//! `link`.

use std::{io, path::Path};

use fsgather_core::{Error, StorageCause, sys::files};
use rustix::{
    fs::{AtFlags, CWD},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use crate::{
    layout,
    os::{file, listing, remove},
};

/// The way in which a payload file gets its final name. Rank 0 determines it once for all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PublishMode {
    /// Written in `staging/`, then renamed into `payloads/`.
    Rename,
    /// Written in `staging/`, then linked into `payloads/`, if renaming is not possible.
    Link,
    /// Written in `payloads/` directly: object stores. Readers arrive only after an announcement, and check everything, so an
    /// incomplete file is not mistaken for a complete one.
    Direct,
}

/// Gives a closed file its final name.
///
/// A lost reply may make a success look like a failure. So after an error, this checks if the file has its new name. It
/// recognises the file by `beginning`, which no other file begins with; or by the name alone, which no other file has, if the
/// client has a cached answer that it is missing.
pub(crate) fn publish(
    mode: PublishMode,
    staging: &Path,
    target: &Path,
    beginning: &[u8],
) -> io::Result<()> {
    match mode {
        PublishMode::Direct => Ok(()),
        PublishMode::Rename => {
            let renamed = files::rename(staging, target);
            settle(renamed, || {
                is_absent(staging) && has_come(target, beginning)
            })
        }
        PublishMode::Link => {
            let linked = files::link(staging, target);
            settle(linked, || has_two_names(staging))?;
            if let Err(error) = remove::unlink(staging) {
                // The payload is visible; the second name is removed with the directory.
                tracing::debug!(path = %staging.display(), %error, "staging name left behind");
            }
            Ok(())
        }
    }
}

/// Gives a file another name, which must be free.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    Ok(files::rename(from, to)?)
}

/// Gives a file a second name, which uses neither an inode nor a block.
pub(crate) fn second_name(from: &Path, to: &Path) -> io::Result<()> {
    Ok(files::link(from, to)?)
}

fn settle(result: rustix::io::Result<()>, has_succeeded: impl FnOnce() -> bool) -> io::Result<()> {
    match result {
        Ok(()) => Ok(()),
        Err(errno) if has_succeeded() => {
            tracing::debug!(%errno, "publishing was reported to fail but has succeeded");
            Ok(())
        }
        Err(errno) => Err(errno.into()),
    }
}

fn is_absent(path: &Path) -> bool {
    matches!(
        files::look(CWD, path, AtFlags::SYMLINK_NOFOLLOW),
        Err(Errno::NOENT)
    )
}

/// Returns true if the file is there: by its beginning, or by a listing if the client has a cached answer that it is missing.
fn has_come(path: &Path, beginning: &[u8]) -> bool {
    let mut found = vec![0; beginning.len()];
    match file::open(path) {
        Ok(file) => file::read_exact_at(&file, &mut found, 0).is_ok() && found == beginning,
        Err(error) => error.kind() == io::ErrorKind::NotFound && is_listed(path),
    }
}

fn is_listed(path: &Path) -> bool {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return false;
    };
    listing::names(directory).is_ok_and(|names| names.iter().any(|found| **found == *name))
}

fn has_two_names(path: &Path) -> bool {
    file::open(path)
        .and_then(|file| file::examine(&file))
        .is_ok_and(|opened| opened.links == 2)
}

/// Determines how files can be published, by publishing one and removing it again.
pub(crate) fn detect(staging: &Path, payloads: &Path, nonce: u32) -> Result<PublishMode, Error> {
    let modes = [PublishMode::Rename, PublishMode::Link];
    let possible = first_possible(&modes, staging, payloads, nonce)?;
    Ok(possible.unwrap_or(PublishMode::Direct))
}

/// Returns the first of `modes` that works, by the same test.
pub(crate) fn first_possible(
    modes: &[PublishMode],
    staging: &Path,
    payloads: &Path,
    nonce: u32,
) -> Result<Option<PublishMode>, Error> {
    let name = layout::capability_name(nonce);
    let (from, to) = (staging.join(&name), payloads.join(&name));
    let contents = name.as_bytes();
    file::write_new(&from, 0o600, contents, false)
        .map_err(|error| Error::storage("write", staging, &error))?;
    let possible = modes.iter().copied().find(|mode| {
        publish(*mode, &from, &to, contents)
            .inspect_err(|error| {
                tracing::debug!(?mode, %error, path = %payloads.display(), "not possible here");
            })
            .is_ok()
    });
    for path in [&from, &to] {
        remove::unlink(path).map_err(|error| Error::storage("remove", path, &error))?;
    }
    Ok(possible)
}

/// Publishes a small file by `mode` and removes it again. Its error is the one that each payload of this process would get.
pub(crate) fn rehearse(
    mode: PublishMode,
    staging: &Path,
    payloads: &Path,
    nonce: u32,
) -> Result<(), Error> {
    let name = layout::capability_name(nonce);
    let target = payloads.join(&name);
    let from = match mode {
        PublishMode::Direct => target.clone(),
        PublishMode::Rename | PublishMode::Link => staging.join(&name),
    };
    let contents = name.as_bytes();
    let written = file::write_new(&from, 0o600, contents, false);
    written.map_err(|error| Error::storage("write", &from, without_empty_directories(&error)))?;
    let published = publish(mode, &from, &target, contents);
    for path in [&from, &target] {
        remove::unlink(path).map_err(|error| Error::storage("remove", path, &error))?;
    }
    published.map_err(|error| Error::storage("publish", &target, &error))
}

/// Explains the error that no file can be made in a directory which rank 0 has just made.
fn without_empty_directories(error: &io::Error) -> StorageCause {
    if error.kind() != io::ErrorKind::NotFound {
        return error.into();
    }
    StorageCause {
        os_code: error.raw_os_error(),
        message: "an empty directory that rank 0 has made does not exist on this host, as on mounts of object stores"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, std::path::PathBuf, std::path::PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let (staging, payloads) = (place.path().join("staging"), place.path().join("payloads"));
        std::fs::create_dir(&staging).unwrap();
        std::fs::create_dir(&payloads).unwrap();
        (place, staging, payloads)
    }

    #[test]
    fn ordinary_directories_can_rename_and_keep_no_trial_file() {
        let (_place, staging, payloads) = place();
        assert_eq!(detect(&staging, &payloads, 7).unwrap(), PublishMode::Rename);
        let only = [PublishMode::Link];
        let linked = first_possible(&only, &staging, &payloads, 8).unwrap();
        assert_eq!(linked, Some(PublishMode::Link));
        assert_eq!(first_possible(&[], &staging, &payloads, 9).unwrap(), None);
        for directory in [staging, payloads] {
            assert_eq!(std::fs::read_dir(directory).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_success_whose_reply_was_lost_is_recognised() {
        let (_place, staging, payloads) = place();
        let (from, to) = (staging.join("x"), payloads.join("x"));
        std::fs::write(&to, b"nonce and more").unwrap();
        publish(PublishMode::Rename, &from, &to, b"nonce").unwrap();
        assert!(publish(PublishMode::Rename, &from, &to, b"other").is_err());
        std::fs::hard_link(&to, &from).unwrap();
        publish(PublishMode::Link, &from, &to, b"nonce").unwrap();
        assert!(!from.exists() && to.exists());
    }

    #[test]
    fn linking_leaves_one_name() {
        let (_place, staging, payloads) = place();
        let (from, to) = (staging.join("x"), payloads.join("x"));
        std::fs::write(&from, b"nonce").unwrap();
        publish(PublishMode::Link, &from, &to, b"nonce").unwrap();
        assert!(!from.exists());
        assert_eq!(std::fs::read(&to).unwrap(), b"nonce");
    }

    #[test]
    fn a_failure_is_a_failure() {
        let (_place, staging, payloads) = place();
        let from = staging.join("x");
        std::fs::write(&from, b"nonce").unwrap();
        let nowhere = payloads.join("missing/x");
        assert!(publish(PublishMode::Rename, &from, &nowhere, b"nonce").is_err());
        assert!(from.exists());
    }

    #[test]
    fn a_file_has_come_once_it_begins_as_it_should() {
        let (_place, staging, _) = place();
        let path = staging.join("payload");
        assert!(!has_come(&path, b"abc") && !is_listed(&path));
        std::fs::write(&path, b"ab").unwrap();
        assert!(!has_come(&path, b"abc") && is_listed(&path));
        std::fs::write(&path, b"abd").unwrap();
        assert!(!has_come(&path, b"abc"));
        std::fs::write(&path, b"abcd").unwrap();
        assert!(has_come(&path, b"abc"));
    }
}
