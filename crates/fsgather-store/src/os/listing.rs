//! Lists what a directory holds now, as the server says: the one owner of `statx` and `readdir`.

use std::{
    ffi::CStr,
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
    names_if(directory, &|_| true)
}

/// The same, of those names only that are wanted: the others cost next to nothing.
pub(crate) fn names_if(
    directory: &Path,
    is_wanted: &dyn Fn(&str) -> bool,
) -> io::Result<Vec<String>> {
    refresh(directory);
    let mut names = Vec::new();
    read(&open(CWD, directory)?, |name| {
        if let Ok(name) = name.to_str()
            && is_wanted(name)
        {
            names.push(name.to_owned());
        }
    })?;
    Ok(names)
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

/// Keeps hold of a directory, never through a link, without opening it for reading: what is made by way of this is
/// made in this directory, whatever has its name then.
pub(crate) fn hold(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(retry_on_intr(|| {
        rustix::fs::open(path, flags, Mode::empty())
    })?)
}

/// Lists an open directory afresh; names that are not text are errors that show them as well as can be.
pub(crate) fn names_of(directory: &OwnedFd) -> io::Result<Vec<Result<String, String>>> {
    let mut names = Vec::new();
    read(directory, |name| {
        let text = name.to_str().map(str::to_owned);
        names.push(text.map_err(|_| name.to_string_lossy().into_owned()));
    })?;
    Ok(names)
}

/// Shows all names in an open directory but `.` and `..`, as the server says now.
fn read(directory: &OwnedFd, mut show: impl FnMut(&CStr)) -> io::Result<()> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    if let Err(errno) =
        retry_on_intr(|| rustix::fs::statx(directory, "", flags, StatxFlags::BASIC_STATS))
    {
        tracing::trace!(%errno, "forced statx failed");
    }
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        #[cfg(test)]
        tests::SEEN.with(|seen| seen.set(seen.get() + 1));
        let name = entry.file_name();
        if name != c"." && name != c".." {
            show(name);
        }
    }
    Ok(())
}

/// What lies under a name, links not followed, as the server says now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) kind: FileType,
    /// The owner as the server shows it.
    pub(crate) uid: u32,
    /// The group as the server shows it.
    pub(crate) gid: u32,
    /// The permission bits.
    pub(crate) mode: u32,
    pub(crate) len: u64,
    /// The last change of the contents, by the server's time.
    pub(crate) changed: SystemTime,
    /// When it was made, by the server's time, where that is told.
    pub(crate) born: Option<SystemTime>,
    pub(crate) identity: Identity,
}

/// Which file or directory it is, whatever its name. Not all file systems keep to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: (u32, u32),
    inode: u64,
}

/// Looks at a name in a directory that is open.
pub(crate) fn examine(directory: impl AsFd, name: &Path) -> io::Result<Facts> {
    let directory = directory.as_fd();
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    let found =
        retry_on_intr(|| rustix::fs::statx(directory, name, flags, StatxFlags::BASIC_STATS))?;
    Ok(facts(&found))
}

/// Looks at a path as the client remembers it, which is enough for what never changes: whose it is and which it is.
pub(crate) fn glance(path: &Path) -> io::Result<Facts> {
    glance_in(CWD, path)
}

/// The same in a directory that is held.
pub(crate) fn glance_in(directory: impl AsFd, name: &Path) -> io::Result<Facts> {
    let (directory, flags) = (directory.as_fd(), AtFlags::SYMLINK_NOFOLLOW);
    let found =
        retry_on_intr(|| rustix::fs::statx(directory, name, flags, StatxFlags::BASIC_STATS))?;
    Ok(facts(&found))
}

/// Looks at a path.
pub(crate) fn examine_path(path: &Path) -> io::Result<Facts> {
    examine(CWD, path)
}

/// Looks at a directory or file that is open: whatever has its name now does not matter.
pub(crate) fn examine_open(opened: impl AsFd) -> io::Result<Facts> {
    let opened = opened.as_fd();
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let found = retry_on_intr(|| rustix::fs::statx(opened, "", flags, wanted))?;
    Ok(facts(&found))
}

fn facts(found: &Statx) -> Facts {
    let is_born = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    Facts {
        kind: FileType::from_raw_mode(u32::from(found.stx_mode)),
        uid: found.stx_uid,
        gid: found.stx_gid,
        mode: u32::from(found.stx_mode) & 0o7777,
        len: found.stx_size,
        changed: time(found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec),
        identity: Identity {
            device: (found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
        },
        born: is_born.then(|| time(found.stx_btime.tv_sec, found.stx_btime.tv_nsec)),
    }
}

fn time(seconds: i64, nanos: u32) -> SystemTime {
    let length = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 {
        UNIX_EPOCH.checked_sub(length)
    } else {
        UNIX_EPOCH.checked_add(length + Duration::from_nanos(u64::from(nanos)))
    };
    time.unwrap_or(UNIX_EPOCH)
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
