//! Calls about files and directories, one function each. Interrupted calls are repeated.

use std::{
    ffi::CStr,
    fs::File,
    io::{self, IoSlice},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{FileExt, MetadataExt},
    },
    path::Path,
    time::UNIX_EPOCH,
};

use rustix::{
    fs::{
        AtFlags, Dir, FileType, Gid, Mode, OFlags, StatFs, StatxFlags, Timespec, Timestamps,
        UTIME_NOW, Uid,
    },
    io::{Errno, Result, retry_on_intr},
};

use crate::sys::{
    ask_model,
    status::{Room, Status},
};

/// Opens a path in a directory.
///
/// # Errors
///
/// Those of `openat`.
pub fn open(directory: impl AsFd, path: &Path, flags: OFlags, mode: u32) -> Result<OwnedFd> {
    let directory = directory.as_fd();
    ask_model!(model => model.open(directory, path, flags, mode));
    let mode = Mode::from_raw_mode(mode);
    retry_on_intr(|| rustix::fs::openat(directory, path, flags, mode))
}

/// Makes a file without a name in a directory, for writing; it disappears when its last descriptor is closed.
///
/// # Errors
///
/// Those of `openat`; `EOPNOTSUPP` if the file system does not support it.
pub fn create_unnamed(directory: impl AsFd, mode: u32) -> Result<OwnedFd> {
    let directory = directory.as_fd();
    ask_model!(_model => Err(Errno::OPNOTSUPP));
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(mode);
    retry_on_intr(|| rustix::fs::openat(directory, ".", flags, mode))
}

/// Reads from `offset` on until the buffer is full.
///
/// # Errors
///
/// Those of `pread`; [`io::ErrorKind::UnexpectedEof`] at an early end.
pub fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    #[cfg(feature = "model")]
    if let Some(model) = crate::sys::model::current() {
        let mut done = 0;
        while done < buffer.len() {
            match model.read_at(file.as_fd(), &mut buffer[done..], offset + done as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => done += read,
            }
        }
        return Ok(());
    }
    file.read_exact_at(buffer, offset)
}

/// Reads a file that was just opened to its end, but not more than `bound` bytes of it.
///
/// # Errors
///
/// Those of `read`.
pub fn read_to_end(file: &File, bound: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    #[cfg(feature = "model")]
    if let Some(model) = crate::sys::model::current() {
        let mut buffer = [0; 1 << 14];
        while (bytes.len() as u64) < bound {
            match model.read_at(file.as_fd(), &mut buffer, bytes.len() as u64)? {
                0 => break,
                read => bytes.extend_from_slice(&buffer[..read]),
            }
        }
        bytes.truncate(usize::try_from(bound).unwrap_or(usize::MAX));
        return Ok(bytes);
    }
    io::Read::read_to_end(&mut io::Read::take(file, bound), &mut bytes)?;
    Ok(bytes)
}

/// Writes as many of these parts as possible. Returns the number of bytes.
///
/// # Errors
///
/// Those of `writev`.
pub fn write(mut file: &File, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    ask_model!(model => Ok(model.write(file.as_fd(), parts)?));
    io::Write::write_vectored(&mut file, parts)
}

/// Sets the length of a file.
///
/// # Errors
///
/// Those of `ftruncate`.
pub fn set_len(file: &File, len: u64) -> io::Result<()> {
    ask_model!(model => Ok(model.set_len(file.as_fd(), len)?));
    file.set_len(len)
}

/// Brings a file's data to permanent storage.
///
/// # Errors
///
/// Those of `fsync`.
pub fn sync(file: &File) -> Result<()> {
    ask_model!(model => model.sync(file.as_fd()));
    retry_on_intr(|| rustix::fs::fsync(file))
}

/// Returns another descriptor of an open file.
///
/// # Errors
///
/// Those of `dup`.
pub fn duplicate(file: &File) -> io::Result<File> {
    ask_model!(model => Ok(model.duplicate(file.as_fd())?.into()));
    file.try_clone()
}

/// Makes the model, if there is one, close a file; else returns the file.
///
/// # Errors
///
/// Those of `close`.
pub fn close_in_model(file: File) -> std::result::Result<Result<()>, File> {
    ask_model!(model => Ok(model.close(file)));
    Err(file)
}

/// Returns the facts of the file with this name in a directory, or, with an empty name and its flag, of the open file.
///
/// # Errors
///
/// Those of `statx`.
pub fn look(directory: impl AsFd, path: &Path, flags: AtFlags) -> Result<Status> {
    let directory = directory.as_fd();
    ask_model!(model => model.look(directory, path, flags));
    let wanted = if flags.contains(AtFlags::EMPTY_PATH) {
        StatxFlags::BASIC_STATS | StatxFlags::BTIME
    } else {
        StatxFlags::BASIC_STATS
    };
    match retry_on_intr(|| rustix::fs::statx(directory, path, flags, wanted)) {
        // A kernel before 4.11, or a sandbox. A client of a file server then answers from its cache.
        Err(Errno::NOSYS) => look_without_statx(directory, path, flags),
        found => Ok(Status::of(&found?)),
    }
}

fn look_without_statx(directory: BorrowedFd<'_>, path: &Path, flags: AtFlags) -> Result<Status> {
    let flags = flags & (AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW);
    let found = retry_on_intr(|| rustix::fs::statat(directory, path, flags))?;
    Ok(Status::of_older_call(&found))
}

/// Returns the facts of an open file, as its client has them in its cache.
///
/// # Errors
///
/// Those of `fstat`.
pub fn look_at(file: &File) -> io::Result<Status> {
    ask_model!(model => Ok(model.look(file.as_fd(), Path::new(""), AtFlags::EMPTY_PATH)?));
    let found = file.metadata()?;
    Ok(Status {
        kind: FileType::from_raw_mode(found.mode()),
        mode: found.mode() & 0o7777,
        uid: found.uid(),
        gid: found.gid(),
        len: found.len(),
        links: found.nlink(),
        device: (0, 0),
        inode: found.ino(),
        changed: found.modified().unwrap_or(UNIX_EPOCH),
        born: None,
    })
}

/// Shows all names in an open directory, `.` and `..` too.
///
/// # Errors
///
/// Those of `getdents`.
pub fn list(directory: impl AsFd, show: &mut dyn FnMut(&CStr)) -> Result<()> {
    ask_model!(model => model.list(directory.as_fd(), show));
    for entry in Dir::read_from(directory)? {
        show(entry?.file_name());
    }
    Ok(())
}

/// Gives a file another name.
///
/// # Errors
///
/// Those of `rename`.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    ask_model!(model => model.rename(from, to));
    retry_on_intr(|| rustix::fs::rename(from, to))
}

/// Gives a file a second name.
///
/// # Errors
///
/// Those of `link`.
pub fn link(from: &Path, to: &Path) -> Result<()> {
    ask_model!(model => model.link(from, to));
    retry_on_intr(|| rustix::fs::link(from, to))
}

/// Removes a name, or with the flag for it an empty directory.
///
/// # Errors
///
/// Those of `unlinkat`.
pub fn unlink(directory: impl AsFd, name: &Path, flags: AtFlags) -> Result<()> {
    let directory = directory.as_fd();
    ask_model!(model => model.unlink(directory, name, flags));
    retry_on_intr(|| rustix::fs::unlinkat(directory, name, flags))
}

/// Makes a directory.
///
/// # Errors
///
/// Those of `mkdir`.
pub fn make_directory(path: &Path, mode: u32) -> Result<()> {
    ask_model!(model => model.make_directory(path, mode));
    retry_on_intr(|| rustix::fs::mkdir(path, Mode::from_raw_mode(mode)))
}

/// Sets the mode of an open file.
///
/// # Errors
///
/// Those of `fchmod`.
pub fn set_mode(opened: impl AsFd, mode: u32) -> Result<()> {
    ask_model!(model => model.set_mode(opened.as_fd(), mode));
    rustix::fs::fchmod(opened, Mode::from_raw_mode(mode))
}

/// Sets the group of an open file.
///
/// # Errors
///
/// Those of `fchown`.
pub fn set_group(opened: impl AsFd, group: u32) -> Result<()> {
    ask_model!(model => model.set_group(opened.as_fd(), group));
    rustix::fs::fchown(opened, None, Some(Gid::from_raw(group)))
}

/// Gives an open file to another user, which takes privileges.
///
/// # Errors
///
/// Those of `fchown`.
pub fn set_owner(opened: impl AsFd, user: u32) -> Result<()> {
    ask_model!(_model => Err(Errno::PERM));
    rustix::fs::fchown(opened, Some(Uid::from_raw(user)), None)
}

/// Sets the time stamps of an open file to now.
///
/// # Errors
///
/// Those of `futimens`.
pub fn touch(opened: impl AsFd) -> Result<()> {
    ask_model!(model => model.touch(opened.as_fd()));
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    rustix::fs::futimens(opened, &times)
}

/// Returns the number of the type of the file system of a path.
///
/// # Errors
///
/// Those of `statfs`.
pub fn kind(path: &Path) -> Result<u32> {
    ask_model!(model => model.kind(path));
    Ok(number(&retry_on_intr(|| rustix::fs::statfs(path))?))
}

/// Like [`kind`], for an open file.
///
/// # Errors
///
/// Those of `fstatfs`.
pub fn kind_of(opened: impl AsFd) -> Result<u32> {
    let opened = opened.as_fd();
    ask_model!(model => model.kind_of(opened));
    Ok(number(&retry_on_intr(|| rustix::fs::fstatfs(opened))?))
}

/// The magic number is 32 bits wide; the width of the field that carries it differs.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number is the low 32 bits, sign-extended or not"
)]
fn number(facts: &StatFs) -> u32 {
    facts.f_type as u32
}

/// Returns the space of the file system of a path.
///
/// # Errors
///
/// Those of `statvfs`.
pub fn room(path: &Path) -> Result<Room> {
    ask_model!(model => model.room(path));
    let facts = retry_on_intr(|| rustix::fs::statvfs(path))?;
    Ok(Room {
        total_bytes: facts.f_blocks.saturating_mul(facts.f_frsize),
        free_bytes: facts.f_bavail.saturating_mul(facts.f_frsize),
        total_inodes: facts.f_files,
        free_inodes: facts.f_favail,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_without_statx_finds_the_same() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        std::fs::write(&path, "four").unwrap();
        std::os::unix::fs::symlink(&path, place.path().join("link")).unwrap();
        let file = File::open(&path).unwrap();
        let force = AtFlags::STATX_FORCE_SYNC;
        for (path, flags) in [
            ("", AtFlags::EMPTY_PATH | force),
            ("/", AtFlags::empty()),
            (path.to_str().unwrap(), force),
            (
                place.path().join("link").to_str().unwrap(),
                AtFlags::SYMLINK_NOFOLLOW | force,
            ),
        ] {
            let expected = Status {
                born: None,
                ..look(&file, Path::new(path), flags).unwrap()
            };
            let found = look_without_statx(file.as_fd(), Path::new(path), flags).unwrap();
            assert_eq!(found, expected, "{path}");
        }
    }
}
