//! What a directory holds now, as the server says: the one owner of `statx` and `readdir`.

use std::{io, path::Path};

use rustix::{
    fs::{AtFlags, CWD, Dir, Mode, OFlags, StatxFlags},
    io::retry_on_intr,
};

/// Lists the names in a directory afresh: a forced `statx`, so that a client that remembers the
/// directory asks the server, then open, read to the end, close.
///
/// Presence of a name is evidence, absence is not: a directory that changes while it is read may miss an
/// entry. Names that are not text, `.` and `..` are left out; names of others are the caller's to skip.
///
/// # Errors
///
/// Whatever opening or reading the directory gives.
pub(crate) fn names(directory: &Path) -> io::Result<Vec<String>> {
    refresh(directory);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = retry_on_intr(|| rustix::fs::open(directory, flags, Mode::empty()))?;
    let mut names = Vec::new();
    for entry in Dir::new(opened)? {
        let entry = entry?;
        match entry.file_name().to_str() {
            Ok("." | "..") | Err(_) => {}
            Ok(name) => names.push(name.to_owned()),
        }
    }
    Ok(names)
}

/// Makes the client ask the server about a file or directory instead of trusting its memory.
///
/// Best effort: what is wrong with the path shows in the call that follows.
pub(crate) fn refresh(path: &Path) {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    if let Err(errno) =
        retry_on_intr(|| rustix::fs::statx(CWD, path, flags, StatxFlags::BASIC_STATS))
    {
        tracing::trace!(path = %path.display(), %errno, "forced statx failed");
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_listing_is_fresh_every_time() {
        let place = tempfile::tempdir().unwrap();
        assert!(names(place.path()).unwrap().is_empty());
        std::fs::write(place.path().join("one"), b"").unwrap();
        assert_eq!(names(place.path()).unwrap(), ["one"]);
        std::fs::remove_file(place.path().join("one")).unwrap();
        assert!(names(place.path()).unwrap().is_empty());
    }

    #[test]
    fn names_that_are_not_text_are_left_out() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join(OsStr::from_bytes(b"\xff")), b"").unwrap();
        assert!(names(place.path()).unwrap().is_empty());
    }

    #[test]
    fn a_link_to_a_directory_is_not_listed() {
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("link");
        symlink(place.path(), &link).unwrap();
        assert!(names(&link).is_err());
    }
}
