//! What a directory holds now, as the server says: the one owner of `statx` and `readdir`.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Statx, StatxFlags},
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
    let all = names_of(&open(CWD, directory)?)?;
    Ok(all.into_iter().filter_map(Result::ok).collect())
}

/// Opens a directory, never through a link, as a place from which to look at what is in it: whatever is
/// put in the way of its path later does not matter any more.
pub(crate) fn open(parent: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let parent = parent.as_fd();
    Ok(retry_on_intr(|| {
        rustix::fs::openat(parent, path, flags, Mode::empty())
    })?)
}

/// Lists an open directory afresh; names that are not text are errors that show them as well as can be.
pub(crate) fn names_of(directory: &OwnedFd) -> io::Result<Vec<Result<String, String>>> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    if let Err(errno) =
        retry_on_intr(|| rustix::fs::statx(directory, "", flags, StatxFlags::BASIC_STATS))
    {
        tracing::trace!(%errno, "forced statx failed");
    }
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        #[cfg(test)]
        tests::SEEN.with(|seen| seen.set(seen.get() + 1));
        match entry.file_name().to_str() {
            Ok("." | "..") => {}
            Ok(name) => names.push(Ok(name.to_owned())),
            Err(_) => names.push(Err(entry.file_name().to_string_lossy().into_owned())),
        }
    }
    Ok(names)
}

/// What lies under a name, links not followed, as the server says now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) kind: FileType,
    /// The owner as the server shows it.
    pub(crate) uid: u32,
    /// The permission bits.
    pub(crate) mode: u32,
    pub(crate) len: u64,
    /// The last change of the contents, by the server's time.
    pub(crate) changed: SystemTime,
}

/// Looks at a name in a directory that is open.
pub(crate) fn examine(directory: impl AsFd, name: &Path) -> io::Result<Facts> {
    let directory = directory.as_fd();
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    let found =
        retry_on_intr(|| rustix::fs::statx(directory, name, flags, StatxFlags::BASIC_STATS))?;
    Ok(facts(&found))
}

/// Looks at a path.
pub(crate) fn examine_path(path: &Path) -> io::Result<Facts> {
    examine(CWD, path)
}

/// Looks at an open directory.
pub(crate) fn examine_open(directory: &OwnedFd) -> io::Result<Facts> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let found = retry_on_intr(|| rustix::fs::statx(directory, "", flags, StatxFlags::BASIC_STATS))?;
    Ok(facts(&found))
}

fn facts(found: &Statx) -> Facts {
    let seconds = Duration::from_secs(found.stx_mtime.tv_sec.unsigned_abs());
    let changed = if found.stx_mtime.tv_sec < 0 {
        UNIX_EPOCH.checked_sub(seconds)
    } else {
        let nanos = Duration::from_nanos(u64::from(found.stx_mtime.tv_nsec));
        UNIX_EPOCH.checked_add(seconds + nanos)
    };
    Facts {
        kind: FileType::from_raw_mode(u32::from(found.stx_mode)),
        uid: found.stx_uid,
        mode: u32::from(found.stx_mode) & 0o7777,
        len: found.stx_size,
        changed: changed.unwrap_or(UNIX_EPOCH),
    }
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
pub(crate) mod tests {
    use std::{cell::Cell, ffi::OsStr, os::unix::ffi::OsStrExt, os::unix::fs::symlink};

    use super::*;

    thread_local! {
        /// How many entries this thread has been shown.
        pub(crate) static SEEN: Cell<u64> = const { Cell::new(0) };
    }

    /// How many entries of directories `work` reads.
    pub(crate) fn entries_read(work: impl FnOnce()) -> u64 {
        let before = SEEN.get();
        work();
        SEEN.get() - before
    }

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
    fn links_are_looked_at_and_not_through() {
        let place = tempfile::tempdir().unwrap();
        let (file, link) = (place.path().join("file"), place.path().join("link"));
        std::fs::write(&file, b"12345").unwrap();
        symlink(&file, &link).unwrap();
        let opened = open(CWD, place.path()).unwrap();
        let found = examine(&opened, Path::new("file")).unwrap();
        assert_eq!((found.kind, found.len), (FileType::RegularFile, 5));
        assert_eq!(examine_path(&link).unwrap().kind, FileType::Symlink);
        assert_eq!(examine_open(&opened).unwrap().kind, FileType::Directory);
        let age = SystemTime::now().duration_since(found.changed);
        assert!(age.unwrap_or_default() < Duration::from_mins(1));
    }

    #[test]
    fn a_link_to_a_directory_is_not_listed() {
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("link");
        symlink(place.path(), &link).unwrap();
        assert!(names(&link).is_err());
    }
}
