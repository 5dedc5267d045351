//! Lists the current contents of a directory, as the server shows them: the one owner of `statx` and `readdir`.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    time::SystemTime,
};

use fsgather_core::sys::{Status, files};
use rustix::fs::{AtFlags, CWD, FileType, OFlags};

/// Lists the names in a directory afresh: a forced `statx` makes a client with a cached directory ask the server; then it opens
/// the directory, reads to the end and closes it.
///
/// The presence of a name is evidence, its absence is not: a directory that changes while it is read may miss an entry. Names
/// that are not valid text, `.` and `..` are left out; the caller skips foreign names.
///
/// # Errors
///
/// The error of opening or reading the directory.
pub fn names(directory: &Path) -> io::Result<Vec<String>> {
    names_if(directory, &|_| true)
}

/// Lists only wanted names: the others cost almost nothing.
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

/// Opens a directory, never through a link, to examine its entries: replacing the directory at this path later has no effect.
pub(crate) fn open(parent: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(files::open(parent, path, flags, 0)?)
}

/// Holds a directory, never through a link, without opening it for reading: files that are created through the handle are
/// created in this directory, even if another one has its name by then.
pub(crate) fn hold(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(files::open(CWD, path, flags, 0)?)
}

/// Lists an open directory afresh. Names that are not valid text are returned as errors, with a readable form.
pub(crate) fn names_of(directory: &OwnedFd) -> io::Result<Vec<Result<String, String>>> {
    let mut names = Vec::new();
    read(directory, |name| {
        let text = name.to_str().map(str::to_owned);
        names.push(text.map_err(|_| name.to_string_lossy().into_owned()));
    })?;
    Ok(names)
}

/// Shows all current names in an open directory except `.` and `..`, as the server sees them.
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

/// Properties of an entry, without following links, as the server shows them.
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
    /// Time of its creation, by the server's clock, if known.
    pub(crate) born: Option<SystemTime>,
    pub(crate) identity: Identity,
}

/// Identity of a file or directory, independent of its name. Not stable on all file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: (u32, u32),
    inode: u64,
}

/// Examines a name in an open directory.
pub(crate) fn examine(directory: impl AsFd, name: &Path) -> io::Result<Facts> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    Ok(facts(&files::look(directory, name, flags)?))
}

/// Examines a path in the client's cache, which is enough for constant properties: owner and identity.
pub(crate) fn glance(path: &Path) -> io::Result<Facts> {
    glance_in(CWD, path)
}

/// Like [`glance`], in a directory that is held.
pub(crate) fn glance_in(directory: impl AsFd, name: &Path) -> io::Result<Facts> {
    Ok(facts(&files::look(
        directory,
        name,
        AtFlags::SYMLINK_NOFOLLOW,
    )?))
}

/// Examines a path.
pub(crate) fn examine_path(path: &Path) -> io::Result<Facts> {
    examine(CWD, path)
}

/// Examines an open directory or file, even if another one has its name by now.
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

/// Makes the client ask the server about a file or directory instead of trusting its cache.
///
/// Best effort: an error of the path shows in the next call.
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

    /// Number of directory entries that `work` reads.
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
