//! Lists what a directory holds now, as the server says: the one owner of `statx` and `readdir`.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    time::SystemTime,
};

use fsgather_core::sys::{Status, files};
use rustix::fs::{AtFlags, CWD, FileType, OFlags};

/// Lists the names in a directory afresh: a forced `statx`, so that a client that remembers the
/// directory asks the server, then open, read to the end, close.
///
/// Presence of a name is evidence, absence is not: a directory that changes while it is read may miss an
/// entry. Names that are not text, `.` and `..` are left out; names of others are the caller's to skip.
///
/// # Errors
///
/// Whatever opening or reading the directory gives.
pub fn names(directory: &Path) -> io::Result<Vec<String>> {
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
    Ok(files::open(parent, path, flags, 0)?)
}

/// Keeps hold of a directory, never through a link, without opening it for reading: what is made by way of this is
/// made in this directory, whatever has its name then.
pub(crate) fn hold(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(files::open(CWD, path, flags, 0)?)
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
    if let Err(errno) = files::look(directory, Path::new(""), flags) {
        tracing::trace!(%errno, "forced statx failed");
    }
    Ok(files::list(directory, &mut |name| {
        #[cfg(test)]
        tests::SEEN.with(|seen| seen.set(seen.get() + 1));
        if name != c"." && name != c".." {
            show(name);
        }
    })?)
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
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    Ok(facts(&files::look(directory, name, flags)?))
}

/// Looks at a path as the client remembers it, which is enough for what never changes: whose it is and which it is.
pub(crate) fn glance(path: &Path) -> io::Result<Facts> {
    glance_in(CWD, path)
}

/// The same in a directory that is held.
pub(crate) fn glance_in(directory: impl AsFd, name: &Path) -> io::Result<Facts> {
    Ok(facts(&files::look(
        directory,
        name,
        AtFlags::SYMLINK_NOFOLLOW,
    )?))
}

/// Looks at a path.
pub(crate) fn examine_path(path: &Path) -> io::Result<Facts> {
    examine(CWD, path)
}

/// Looks at a directory or file that is open: whatever has its name now does not matter.
pub(crate) fn examine_open(opened: impl AsFd) -> io::Result<Facts> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    Ok(facts(&files::look(opened, Path::new(""), flags)?))
}

fn facts(found: &Status) -> Facts {
    Facts {
        kind: found.kind,
        uid: found.uid,
        gid: found.gid,
        mode: found.mode,
        len: found.len,
        changed: found.changed,
        identity: Identity {
            device: found.device,
            inode: found.inode,
        },
        born: found.born,
    }
}

/// Makes the client ask the server about a file or directory instead of trusting its memory.
///
/// Best effort: what is wrong with the path shows in the call that follows.
pub(crate) fn refresh(path: &Path) {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    if let Err(errno) = files::look(CWD, path, flags) {
        tracing::trace!(path = %path.display(), %errno, "forced statx failed");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{
        cell::Cell, ffi::OsStr, os::unix::ffi::OsStrExt, os::unix::fs::symlink, time::Duration,
    };

    use super::*;

    thread_local! {
        /// Number of entries that this thread has been shown.
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
        assert!(age.unwrap_or_default() < Duration::from_secs(60));
    }

    #[test]
    fn a_link_to_a_directory_is_not_listed() {
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("link");
        symlink(place.path(), &link).unwrap();
        assert!(names(&link).is_err());
    }
}
