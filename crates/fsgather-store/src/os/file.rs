//! Creating, opening, syncing and closing files: the one owner of these system calls.
//!
//! Files are created exclusively and never through a link. Closing is a separate, checked call, because network file systems
//! may report a lack of space only then, and dropping a [`File`] ignores errors.

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
/// Names are never used twice, so an empty file of that name was created by this very call, whose reply was lost.
pub(crate) fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    create_new_in(CWD, path, mode)
}

/// Makes a new file for writing in a directory that is held.
pub(crate) fn create_new_in(directory: impl AsFd, path: &Path, mode: u32) -> io::Result<File> {
    let file = create_masked_in(directory, path, mode)?;
    // The umask may remove permissions of a group, and files may inherit too many permissions from their directory; some file
    // systems have no modes.
    let found = files::look_at(&file)?.mode & 0o777;
    if found != mode
        && let Err(errno) = files::set_mode(&file, mode)
    {
        tracing::debug!(path = %path.display(), found, %errno, "cannot set the mode");
    }
    Ok(file)
}

/// Creates a new file with the permissions of `mode` that the umask leaves.
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

/// Makes a file without a name in a directory that is held, if the file system supports that.
pub(crate) fn create_unnamed_in(directory: impl AsFd, mode: u32) -> io::Result<File> {
    Ok(File::from(files::create_unnamed(directory, mode)?))
}

/// Opens a file for writing if it is empty and has no other name.
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

/// Properties of an open file.
pub(crate) struct Opened {
    /// True for a regular file; false for a directory, pipe or device.
    pub(crate) is_regular: bool,
    /// The owner as the server shows it.
    pub(crate) uid: u32,
    /// The length in bytes.
    pub(crate) len: u64,
    /// The number of names.
    pub(crate) links: u64,
}

/// Examines an open file.
pub(crate) fn examine(file: &File) -> io::Result<Opened> {
    let found = files::look_at(file)?;
    Ok(Opened {
        is_regular: found.kind == FileType::RegularFile,
        uid: found.uid,
        len: found.len,
        links: found.links,
    })
}

/// Writes all parts, with as few system calls as possible.
///
/// Exceeding this process's limit of file sizes is an ordinary error: the kernel would send a signal, which kills processes
/// that do not handle it.
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

/// Fills `buffer` from `offset` on; if the file ends earlier, the error is [`io::ErrorKind::UnexpectedEof`].
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

/// Reads a regular file of one of these users with at most `bound` bytes.
///
/// Users who may write to the directory may put a pipe, a device, a link or a huge file there: no file of another user is read,
/// and no file can block this process.
pub(crate) fn read_small(path: &Path, owners: &[u32], bound: u64) -> Result<Vec<u8>, NotRead> {
    let file = open_small(path, owners, bound)?;
    Ok(read_bounded(&file, bound)?)
}

/// Opens the file that [`read_small`] reads.
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

/// Links and sockets are recognised by the error of opening them.
fn not_opened(error: io::Error) -> NotRead {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::LOOP | Errno::NXIO) => NotRead::NoFile,
        _ => NotRead::Failed(error),
    }
}

/// Reads a file to its end, but at most `bound` bytes.
pub(crate) fn read_bounded(file: &File, bound: u64) -> io::Result<Vec<u8>> {
    files::read_to_end(file, bound)
}

/// Flushes the file's data, so that other hosts can read it.
///
/// File systems without this call are assumed to flush when a file is closed. After an error, the call must not be repeated on
/// the same descriptor: the kernel may have dropped the data.
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

/// Returns true if a sandbox denies `fsync`; then the error is not from a file server. The kernel would reject the call on a
/// pipe with `EINVAL`.
fn is_sync_denied() -> bool {
    io::pipe().is_ok_and(|(_, pipe)| rustix::fs::fsync(pipe) == Err(Errno::PERM))
}

/// Empties a file that will be removed, so that none of its data is still in transit.
///
/// Data that a server has refused stays with the client, which continues to write it and keeps the file open under another name
/// meanwhile. Best effort: the file is removed in any case.
pub(crate) fn forget_contents(file: &File) {
    if let Err(error) = files::set_len(file, 0) {
        tracing::trace!(%error, "a file that is going to be removed cannot be emptied");
    }
}

/// Sends a file's data to the server as closing does, and returns errors of that. The file stays open.
pub(crate) fn flush(file: &File) -> io::Result<()> {
    // Closing any descriptor of the file has this effect.
    close(files::duplicate(file)?)
}

/// Closes a file and returns errors of that.
pub(crate) fn close(file: File) -> io::Result<()> {
    let file = match files::close_in_model(file) {
        Ok(closed) => return Ok(closed?),
        Err(file) => file,
    };
    match nix::unistd::close(file) {
        // The descriptor is closed in any case, and closing again could close one of another thread.
        Ok(()) | Err(nix::Error::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Writes a small new file: creates it, writes, syncs if requested, and closes, each with checks. On an error, the file is
/// removed.
pub(crate) fn write_new(path: &Path, mode: u32, contents: &[u8], synced: bool) -> io::Result<()> {
    write_new_in(CWD, path, mode, contents, synced)
}

/// Like [`write_new`], in a directory that is held.
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

/// Overwrites a file of this user that no process has read yet, within its space, and sets its length to that of `contents`.
///
/// Users who may rename files in the directory may have put a pipe, a device, or another name of a different file in its place:
/// those are not written to, and cannot block this process.
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

/// Errors that report a lack of space, for bytes or for another file: of the file system, of its owner's quota, or within the
/// limit of file sizes.
const LACK_OF_ROOM: [Errno; 3] = [Errno::NOSPC, Errno::DQUOT, Errno::FBIG];

/// Returns true if an error reports a lack of space, for bytes or for another file.
pub(crate) fn is_lack_of_room(error: &io::Error) -> bool {
    is_one_of(&StorageCause::from(error), &LACK_OF_ROOM)
}

/// Returns true if a storage error reports a lack of space.
pub(crate) fn is_for_lack_of_room(error: &Error) -> bool {
    matches!(error, Error::Storage { cause, .. } if is_one_of(cause, &LACK_OF_ROOM))
}

/// Returns true if a storage error says that the file system accepts no more data: for lack of space or quota, beyond the limit
/// of file sizes, or because the device fails.
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
        // If the pipe has a reader, it can be opened for writing.
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
