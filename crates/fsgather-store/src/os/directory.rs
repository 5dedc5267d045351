//! Making and examining directories: the one owner of `mkdir`, `chmod`, `chown`, `lstat` of directories and of touching them.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use fsgather_core::{Error, StorageCause, sys::files};
use rustix::{
    fs::{AtFlags, CWD, FileType},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use crate::os::listing;

/// The uid that owns files of this process in a directory.
///
/// On local file systems it is the process's own. On others the server determines it, and may map root to another user, for
/// example. [`check_writable`](crate::check_writable) returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OwnUid(pub u32);

/// Owner and permissions of a directory, as the server shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The permission bits, with the set-id and sticky ones.
    pub mode: u32,
}

impl Access {
    /// Examines a directory, and follows links.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if it is not there or cannot be examined.
    pub fn of(directory: &Path) -> Result<Self, Error> {
        let found = files::look(CWD, directory, AtFlags::empty()).map_err(|errno| {
            let error = io::Error::from(errno);
            Error::storage("use", directory, explain(directory, &error))
        })?;
        Ok(Self {
            uid: found.uid,
            gid: found.gid,
            mode: found.mode,
        })
    }

    /// Returns true if any user may remove or replace files of others in it.
    ///
    /// ```
    /// use fsgather_store::Access;
    ///
    /// let with = |mode| Access { uid: 0, gid: 0, mode };
    /// assert!(with(0o777).is_open_to_all());
    /// assert!(!with(0o1777).is_open_to_all()); // the sticky bit of /tmp
    /// assert!(!with(0o775).is_open_to_all());
    /// ```
    #[must_use]
    pub const fn is_open_to_all(self) -> bool {
        self.mode & 0o002 != 0 && self.mode & 0o1000 == 0
    }
}

/// Properties of a path, links not followed.
pub(crate) struct FoundDirectory {
    pub(crate) is_directory: bool,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
}

/// Examines a path without following a link.
pub(crate) fn look(path: &Path) -> io::Result<FoundDirectory> {
    look_with(path, AtFlags::SYMLINK_NOFOLLOW)
}

/// Examines a path, and follows links.
pub(crate) fn look_through(path: &Path) -> io::Result<FoundDirectory> {
    look_with(path, AtFlags::empty())
}

fn look_with(path: &Path, flags: AtFlags) -> io::Result<FoundDirectory> {
    let found = files::look(CWD, path, flags)?;
    Ok(FoundDirectory {
        is_directory: found.kind == FileType::Directory,
        uid: found.uid,
        gid: found.gid,
        mode: found.mode,
    })
}

/// Makes a directory; returns `false` if the name is already in use.
pub(crate) fn make(path: &Path, mode: u32) -> io::Result<bool> {
    match files::make_directory(path, mode) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Gives a group to an open directory, and returns true if it has that group then.
pub(crate) fn give_group(directory: &OwnedFd, group: u32) -> io::Result<bool> {
    if listing::examine_open(directory)?.gid == group {
        return Ok(true);
    }
    let given = files::set_group(directory, group);
    if let Err(errno) = given {
        tracing::debug!(group, %errno, "the parent's group cannot be given");
    }
    Ok(given.is_ok())
}

/// Sets the mode of an open directory, independently of the umask.
pub(crate) fn give_mode(directory: &OwnedFd, mode: u32) -> io::Result<()> {
    files::set_mode(directory, mode).or_else(|errno| {
        // A sandbox may deny the call, which does not matter if the umask has removed nothing.
        let found = listing::examine_open(directory)?;
        if found.mode == mode {
            Ok(())
        } else {
            Err(errno.into())
        }
    })
}

/// Updates a directory's time stamps, so that clients that list it ask the server again.
pub(crate) fn touch(path: &Path) -> io::Result<()> {
    Ok(files::touch(open(path)?)?)
}

pub(crate) fn open(path: &Path) -> io::Result<OwnedFd> {
    listing::open(CWD, path)
}

/// Returns the private directory of this user for ranks on one host, if no directory was named: `/tmp/fsgather-<uid>`. Makes it
/// if necessary.
///
/// # Errors
///
/// [`Error::Storage`] if it belongs to another user, is a link or open to others, or cannot be made.
pub fn default_local(uid: u32) -> Result<PathBuf, Error> {
    private_directory(local_path(uid), uid)
}

/// The path that [`default_local`] uses.
pub(crate) fn local_path(uid: u32) -> PathBuf {
    Path::new("/tmp").join(format!("fsgather-{uid}"))
}

fn private_directory(path: PathBuf, uid: u32) -> Result<PathBuf, Error> {
    let told = |error: &io::Error| Error::storage("make directory", &path, error);
    if make(&path, 0o700).map_err(|error| told(&error))? {
        open(&path)
            .and_then(|made| give_mode(&made, 0o700))
            .map_err(|error| told(&error))?;
    }
    let found = look(&path).map_err(|error| told(&error))?;
    let problem = if !found.is_directory {
        "it is not a directory".to_owned()
    } else if found.uid != uid {
        format!("it belongs to uid {}", found.uid)
    } else if found.mode & 0o077 != 0 {
        format!("others may use it (mode {:o})", found.mode)
    } else {
        return Ok(path);
    };
    Err(Error::storage(
        "use",
        &path,
        StorageCause::described(format!(
            "{problem}; it must be a directory of uid {uid} with mode 700: remove it, or name another \
             directory with FSGATHER_DIR"
        )),
    ))
}

/// Adds advice to an error of writing.
pub(crate) fn explain(path: &Path, error: &io::Error) -> StorageCause {
    let mut cause = StorageCause::from(error);
    let advice = match cause.os_code.map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC) => {
            let free = crate::os::filesystem::free_bytes(path).map_or_else(String::new, |free| {
                format!("{} are free; ", fsgather_core::bytes_text(free))
            });
            format!(
                "{free}make room (bytes or inodes), or name another directory with FSGATHER_DIR"
            )
        }
        Some(Errno::DQUOT) => {
            "your quota is used up: remove something, or name another directory with FSGATHER_DIR"
                .to_owned()
        }
        Some(Errno::FBIG) => {
            "raise the limit of file sizes (`ulimit -f`, or what the batch system calls it)"
                .to_owned()
        }
        Some(Errno::ROFS | Errno::ACCESS | Errno::PERM) => {
            "name a directory that you may write in with FSGATHER_DIR".to_owned()
        }
        Some(Errno::NOTDIR | Errno::NOENT) => {
            "name an existing directory with FSGATHER_DIR".to_owned()
        }
        _ => return cause,
    };
    cause.message = format!("{}; {advice}", cause.message);
    cause
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use rustix::fs::{Timespec, Timestamps};

    use super::*;

    #[test]
    fn errors_of_writing_say_what_can_be_done_about_them() {
        let place = tempfile::tempdir().unwrap();
        let advice = [
            (Errno::NOSPC, "make room"),
            (Errno::DQUOT, "quota"),
            (Errno::FBIG, "ulimit -f"),
            (Errno::ROFS, "that you may write in"),
            (Errno::ACCESS, "that you may write in"),
            (Errno::PERM, "that you may write in"),
            (Errno::MFILE, "ulimit -n"),
            (Errno::NOTDIR, "an existing directory"),
            (Errno::NOENT, "an existing directory"),
        ];
        for (errno, part) in advice {
            let cause = explain(place.path(), &errno.into());
            assert!(cause.message.contains(part), "{errno}: {}", cause.message);
            assert_eq!(cause.os_code, Some(errno.raw_os_error()));
        }
        let other = io::Error::from(Errno::IO);
        assert_eq!(explain(place.path(), &other), StorageCause::from(&other));
    }

    #[test]
    fn the_private_directory_is_made_for_its_user_alone() {
        let place = tempfile::tempdir().unwrap();
        let uid = std::fs::metadata(place.path()).unwrap().uid();
        let path = place.path().join("private");
        for _ in 0..2 {
            private_directory(path.clone(), uid).unwrap();
        }
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        let text = private_directory(path.clone(), uid + 1)
            .unwrap_err()
            .to_string();
        assert!(text.contains(&format!("belongs to uid {uid}")), "{text}");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        let text = private_directory(path.clone(), uid)
            .unwrap_err()
            .to_string();
        assert!(text.contains("mode 755"), "{text}");
        std::fs::remove_dir(&path).unwrap();
        symlink(place.path(), &path).unwrap();
        assert!(private_directory(path, uid).is_err());
    }

    #[test]
    fn a_directory_shows_whose_it_is() {
        let place = tempfile::tempdir().unwrap();
        std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o1770)).unwrap();
        let access = Access::of(place.path()).unwrap();
        let found = std::fs::metadata(place.path()).unwrap();
        assert_eq!(
            (access.uid, access.gid, access.mode),
            (found.uid(), found.gid(), 0o1770)
        );
        let error = Access::of(&place.path().join("x")).unwrap_err().to_string();
        assert!(error.contains("FSGATHER_DIR"), "{error}");
    }

    #[test]
    fn touching_moves_the_time_on() {
        let place = tempfile::tempdir().unwrap();
        let long_ago = Timestamps {
            last_access: Timespec::default(),
            last_modification: Timespec::default(),
        };
        rustix::fs::futimens(open(place.path()).unwrap(), &long_ago).unwrap();
        assert_eq!(std::fs::metadata(place.path()).unwrap().mtime(), 0);
        touch(place.path()).unwrap();
        assert!(std::fs::metadata(place.path()).unwrap().mtime() > 0);
    }

    #[test]
    fn a_directory_is_open_if_strangers_may_replace_entries() {
        let is_open = |mode| {
            Access {
                uid: 0,
                gid: 0,
                mode,
            }
            .is_open_to_all()
        };
        assert!(is_open(0o777) && is_open(0o702));
        assert!(!is_open(0o1777) && !is_open(0o775) && !is_open(0o700));
    }
}
