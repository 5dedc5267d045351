//! Creating, opening, syncing and closing files: the one owner of these system calls.
//!
//! Files are created exclusively and never through a link. Closing is a checked call of its own, since
//! network file systems report lack of space there at the latest, and dropping a
//! [`File`] swallows the report.

use std::{
    fs::File,
    io::{self, IoSlice},
    os::fd::AsFd,
    path::Path,
};

use fsgather_core::{
    Error, StorageCause, bytes_text,
    sys::{files, limits},
};
use rustix::{
    fs::{CWD, FileType, OFlags},
    io::Errno,
};

/// Makes a new file for writing; an existing one, or a link, is an error.
///
/// Names are never used twice, so an empty file of that name is the deed of this very call, whose reply was lost.
pub(crate) fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    create_new_in(CWD, path, mode)
}

/// The same in a directory that is held.
pub(crate) fn create_new_in(directory: impl AsFd, path: &Path, mode: u32) -> io::Result<File> {
    let file = create_masked_in(directory, path, mode)?;
    // The umask takes away what sharing within a group was asked for, and what a directory has its files inherit may
    // give more than was; some file systems have no modes.
    let found = files::look_at(&file)?.mode & 0o777;
    if found != mode
        && let Err(errno) = files::set_mode(&file, mode)
    {
        tracing::debug!(path = %path.display(), found, %errno, "cannot set the mode");
    }
    Ok(file)
}

/// Creates a new file with the permissions that the umask leaves of `mode`.
pub(crate) fn create_masked(path: &Path, mode: u32) -> io::Result<File> {
    create_masked_in(CWD, path, mode)
}

fn create_masked_in(directory: impl AsFd, path: &Path, mode: u32) -> io::Result<File> {
    let directory = directory.as_fd();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match files::open(directory, path, flags, mode) {
        Err(Errno::EXIST) => Ok(open_empty(directory, path).ok_or(Errno::EXIST)?),
        opened => Ok(File::from(opened?)),
    }
}

/// Makes a file without a name in a directory that is held, where the file system can.
pub(crate) fn create_unnamed_in(directory: impl AsFd, mode: u32) -> io::Result<File> {
    Ok(File::from(files::create_unnamed(directory, mode)?))
}

/// Opens a file for writing if it is one of no other name that nothing was written to.
fn open_empty(directory: impl AsFd, path: &Path) -> Option<File> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(files::open(directory, path, flags, 0).ok()?);
    let found = examine(&file).ok()?;
    (found.is_regular && found.len == 0 && found.links == 1).then_some(file)
}

/// Opens an existing file for reading; a link is an error.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(files::open(CWD, path, flags, 0)?))
}

/// What a file that has been opened is.
pub(crate) struct Opened {
    /// A regular file, not a directory, pipe or device.
    pub(crate) is_regular: bool,
    /// The owner as the server shows it.
    pub(crate) uid: u32,
    /// The length in bytes.
    pub(crate) len: u64,
    /// The number of names.
    pub(crate) links: u64,
}

/// Looks at an open file.
pub(crate) fn examine(file: &File) -> io::Result<Opened> {
    let found = files::look_at(file)?;
    Ok(Opened {
        is_regular: found.kind == FileType::RegularFile,
        uid: found.uid,
        len: found.len,
        links: found.links,
    })
}

/// Writes all parts, in as few system calls as it takes.
///
/// Beyond the size that this process may give a file that is an error like others: the signal that the kernel would send
/// ends processes that do not expect it.
pub(crate) fn write_all(file: &File, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
    check_size_limit(file, bytes)?;
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        match files::write(file, parts) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut parts, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn check_size_limit(file: &File, more: u64) -> io::Result<()> {
    let Some(limit) = limits::file_bytes() else {
        return Ok(());
    };
    let at = rustix::fs::tell(file)?;
    if at.saturating_add(more) <= limit {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::FileTooLarge,
        format!(
            "files of this process may have {} at most (see `ulimit -f`)",
            bytes_text(limit)
        ),
    ))
}

/// Fills `buffer` from `offset` on; an early end is [`io::ErrorKind::UnexpectedEof`].
pub(crate) fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    files::read_exact_at(file, buffer, offset)
}

/// The reason why a small file was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotRead {
    /// The system refused.
    #[error("{0}")]
    Failed(#[from] io::Error),
    /// It is a link, directory, pipe, socket or device.
    #[error("it is not a file")]
    NoFile,
    /// It belongs to another user.
    #[error("it belongs to uid {0}")]
    Foreign(u32),
    /// It has more bytes than expected.
    #[error("its {0} bytes are too many")]
    TooLong(u64),
}

/// Reads a regular file of one of these users that has `bound` bytes at most.
///
/// Whoever may write beside it may put a pipe, a device, a link or a huge file there: nothing of another user is read, and
/// nothing can keep this process.
pub(crate) fn read_small(path: &Path, owners: &[u32], bound: u64) -> Result<Vec<u8>, NotRead> {
    let file = open_small(path, owners, bound)?;
    Ok(read_bounded(&file, bound)?)
}

/// The same file, open.
pub(crate) fn open_small(path: &Path, owners: &[u32], bound: u64) -> Result<File, NotRead> {
    let file = open(path).map_err(not_opened)?;
    let opened = examine(&file)?;
    if !opened.is_regular {
        return Err(NotRead::NoFile);
    }
    if !owners.contains(&opened.uid) {
        return Err(NotRead::Foreign(opened.uid));
    }
    if opened.len > bound {
        return Err(NotRead::TooLong(opened.len));
    }
    Ok(file)
}

/// Links and sockets are told by how they refuse to be opened.
fn not_opened(error: io::Error) -> NotRead {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::LOOP | Errno::NXIO) => NotRead::NoFile,
        _ => NotRead::Failed(error),
    }
}

/// Reads a file to its end, but not more than `bound` bytes of it.
pub(crate) fn read_bounded(file: &File, bound: u64) -> io::Result<Vec<u8>> {
    files::read_to_end(file, bound)
}

/// Has the file's data brought to where others can read it.
///
/// File systems that do not know the call are taken to have done so at close. A failure must not be
/// answered by trying again on the same descriptor: the kernel may have dropped the data.
pub(crate) fn sync(file: &File) -> io::Result<()> {
    match files::sync(file) {
        Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => {
            tracing::debug!("this file system does not know fsync; relying on close");
            Ok(())
        }
        Err(Errno::PERM) if is_sync_denied() => {
            tracing::debug!("a sandbox denies fsync; relying on close");
            Ok(())
        }
        other => Ok(other?),
    }
}

/// Whether a sandbox denies `fsync`, rather than a file server the data: the kernel rejects the call on a pipe with `EINVAL`.
fn is_sync_denied() -> bool {
    io::pipe().is_ok_and(|(_, pipe)| rustix::fs::fsync(pipe) == Err(Errno::PERM))
}

/// Empties a file that is going to be removed, so that nothing of it is still on its way.
///
/// Data that a server has refused stays with the client, which goes on trying to write it and keeps the
/// file open under another name meanwhile. Best effort: the file goes in any case.
pub(crate) fn forget_contents(file: &File) {
    if let Err(error) = files::set_len(file, 0) {
        tracing::trace!(%error, "a file that is going to be removed cannot be emptied");
    }
}

/// Has a file's data brought to the server as closing does, and says how that went; it stays open.
pub(crate) fn flush(file: &File) -> io::Result<()> {
    // Every descriptor that is closed has that effect.
    close(files::duplicate(file)?)
}

/// Closes a file and says how that went.
pub(crate) fn close(file: File) -> io::Result<()> {
    let file = match files::close_in_model(file) {
        Ok(closed) => return Ok(closed?),
        Err(file) => file,
    };
    match nix::unistd::close(file) {
        // The descriptor is gone all the same, and closing again could hit somebody else's.
        Ok(()) | Err(nix::Error::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Writes a small new file whole: create, write, sync if asked to, close, each checked. What a failure
/// leaves behind is removed.
pub(crate) fn write_new(path: &Path, mode: u32, contents: &[u8], synced: bool) -> io::Result<()> {
    write_new_in(CWD, path, mode, contents, synced)
}

/// The same in a directory that is held.
pub(crate) fn write_new_in(
    directory: impl AsFd,
    path: &Path,
    mode: u32,
    contents: &[u8],
    synced: bool,
) -> io::Result<()> {
    let directory = directory.as_fd();
    let file = create_new_in(directory, path, mode)?;
    let written = write_all(&file, &mut [IoSlice::new(contents)])
        .and_then(|()| if synced { sync(&file) } else { Ok(()) });
    let closed = close(file);
    written.and(closed).inspect_err(|_| {
        if let Err(error) = crate::os::remove::unlink_in(directory, path) {
            tracing::debug!(path = %path.display(), %error, "a file that failed could not be removed");
        }
    })
}

/// Writes a file of this user that nobody has read yet anew, within the room that it has, and as long as `contents`.
///
/// Whoever may rename beside it may have put a pipe, a device, or another name of a file elsewhere in its place: nothing
/// is written to those, and nothing can keep this process.
pub(crate) fn write_over(path: &Path, uid: u32, contents: &[u8], synced: bool) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(files::open(CWD, path, flags, 0)?);
    let opened = examine(&file)?;
    if !opened.is_regular || opened.uid != uid || opened.links != 1 {
        return Err(io::Error::other("something else is in its place"));
    }
    let written = write_all(&file, &mut [IoSlice::new(contents)])
        .and_then(|()| files::set_len(&file, contents.len() as u64))
        .and_then(|()| if synced { sync(&file) } else { Ok(()) });
    let closed = close(file);
    written.and(closed)
}

/// The errors that say that there is no room, for bytes or for another file: of the file system, of its owner's quota, or
/// within the size that a file may have.
const LACK_OF_ROOM: [Errno; 3] = [Errno::NOSPC, Errno::DQUOT, Errno::FBIG];

/// Whether an error says that there is no room, for bytes or for another file.
pub(crate) fn is_lack_of_room(error: &io::Error) -> bool {
    is_one_of(&StorageCause::from(error), &LACK_OF_ROOM)
}

/// Whether an error of storing something says the same.
pub(crate) fn is_for_lack_of_room(error: &Error) -> bool {
    matches!(error, Error::Storage { cause, .. } if is_one_of(cause, &LACK_OF_ROOM))
}

/// Whether an error of storing something says that the file system takes no more data: for want of room or quota, beyond
/// the size that a file may have, or because the device fails.
///
/// ```
/// use std::io;
///
/// use fsgather_core::Error;
///
/// let full = Error::storage("write", "/x/payload", &io::Error::from_raw_os_error(28));
/// assert!(fsgather_store::takes_no_data(&full));
/// assert!(!fsgather_store::takes_no_data(&Error::storage("open", "/x", &io::Error::from_raw_os_error(2))));
/// ```
#[must_use]
pub fn takes_no_data(error: &Error) -> bool {
    is_for_lack_of_room(error)
        || matches!(error, Error::Storage { cause, .. } if is_one_of(cause, &[Errno::IO]))
}

fn is_one_of(cause: &StorageCause, reasons: &[Errno]) -> bool {
    cause
        .os_code
        .is_some_and(|code| reasons.contains(&Errno::from_raw_os_error(code)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use rustix::fs::Mode;

    use super::*;

    #[test]
    fn existing_files_and_links_are_not_written_through() {
        let place = tempfile::tempdir().unwrap();
        let (file, link) = (place.path().join("file"), place.path().join("link"));
        write_new(&file, 0o600, b"first", true).unwrap();
        symlink(place.path().join("elsewhere"), &link).unwrap();
        for path in [&file, &link] {
            let error = write_new(path, 0o600, b"second", false).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        }
        assert!(open(&link).is_err());
        assert_eq!(std::fs::read(&file).unwrap(), b"first");
    }

    #[test]
    fn a_file_that_was_made_although_its_reply_was_lost_is_written() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, b"").unwrap();
        write_new(&file, 0o600, b"whole", false).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"whole");
        std::fs::write(&file, b"").unwrap();
        std::fs::hard_link(&file, place.path().join("another name")).unwrap();
        assert!(write_new(&file, 0o600, b"again", false).is_err());
        assert_eq!(std::fs::read(&file).unwrap(), b"");
    }

    #[test]
    fn group_access_is_given_whatever_the_umask() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        write_new(&path, 0o660, b"", false).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
    }

    #[test]
    fn only_a_short_file_of_the_right_owner_is_read() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        write_new(&path, 0o600, b"four", false).unwrap();
        let own = std::fs::metadata(&path).unwrap().uid();
        assert_eq!(read_small(&path, &[own], 4).unwrap(), b"four");
        let refused = |path, owners: &[u32], bound| read_small(path, owners, bound).unwrap_err();
        assert!(matches!(refused(&path, &[own], 3), NotRead::TooLong(4)));
        let others = refused(&path, &[own + 1], 4);
        assert!(matches!(others, NotRead::Foreign(uid) if uid == own));
        assert!(matches!(refused(place.path(), &[own], 4), NotRead::NoFile));
        let nowhere = place.path().join("nowhere");
        assert!(matches!(refused(&nowhere, &[own], 4), NotRead::Failed(_)));
    }

    #[test]
    fn only_an_own_file_of_one_name_is_written_over() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        write_new(&path("file"), 0o600, b"room", false).unwrap();
        let own = std::fs::metadata(path("file")).unwrap().uid();
        write_over(&path("file"), own, b"new", false).unwrap();
        assert_eq!(std::fs::read(path("file")).unwrap(), b"new");
        std::fs::write(path("precious"), b"precious").unwrap();
        std::fs::hard_link(path("precious"), path("second")).unwrap();
        symlink(path("file"), path("link")).unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mkfifoat(CWD, path("pipe"), mode).unwrap();
        // With a reader it could be opened for writing.
        let reader = open(&path("pipe")).unwrap();
        for name in ["second", "link", "pipe"] {
            write_over(&path(name), own, b"message", false).unwrap_err();
        }
        write_over(&path("file"), own + 1, b"message", false).unwrap_err();
        assert_eq!(std::fs::read(path("file")).unwrap(), b"new");
        assert_eq!(std::fs::read(path("precious")).unwrap(), b"precious");
        drop(reader);
        write_over(&path("pipe"), own, b"message", false).unwrap_err();
    }

    #[test]
    fn all_parts_arrive_even_empty_ones() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let file = create_new(&path, 0o600).unwrap();
        let mut parts = [b"".as_slice(), b"ab", b"", b"c"].map(IoSlice::new);
        write_all(&file, &mut parts).unwrap();
        close(file).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"abc");
    }

    #[test]
    fn a_full_or_broken_disk_takes_no_data() {
        let error = |code| Error::storage("write", "/x", &io::Error::from_raw_os_error(code));
        for (errno, takes_none, lacks_room) in [
            (Errno::NOSPC, true, true),
            (Errno::DQUOT, true, true),
            (Errno::FBIG, true, true),
            (Errno::IO, true, false),
            (Errno::NOENT, false, false),
        ] {
            let error = error(errno.raw_os_error());
            assert_eq!(takes_no_data(&error), takes_none, "{error}");
            assert_eq!(is_for_lack_of_room(&error), lacks_room, "{error}");
        }
        let limited = Error::storage("write", "/x", &io::ErrorKind::FileTooLarge.into());
        assert!(takes_no_data(&limited) && is_for_lack_of_room(&limited));
        assert!(!takes_no_data(&Error::config("full")));
    }
}
