//! Making and looking at directories: the one owner of `mkdir`, `chmod`, `chown`, `lstat` of directories
//! and of touching them.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use fsgather_core::{
    Error, StorageCause,
    sys::{files, limits},
};
use rustix::{
    fs::{AtFlags, CWD, FileType},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use crate::os::listing;

/// The uid that files of this process have in a directory.
///
/// On file systems of this host it is the process's own. Elsewhere the server says it, which may map root to nobody,
/// for example. Found by [`check_writable`](crate::check_writable).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OwnUid(pub u32);

/// Whose a directory is and who may do what in it, as the server shows it.
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
    /// Looks at a directory, through links.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] when it is not there or cannot be looked at.
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

    /// Whether anybody may remove or replace what others have in it.
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

/// What lies at a path, links not followed.
pub(crate) struct FoundDirectory {
    pub(crate) is_directory: bool,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
}

/// Looks at a path without following a link.
pub(crate) fn look(path: &Path) -> io::Result<FoundDirectory> {
    look_with(path, AtFlags::SYMLINK_NOFOLLOW)
}

/// Looks at what a path leads to.
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

/// Makes a directory; `false` when something of that name is there already.
pub(crate) fn make(path: &Path, mode: u32) -> io::Result<bool> {
    match files::make_directory(path, mode) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Gives an open directory a group; whether it has that then.
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

/// Sets the mode of an open directory, whatever the umask has made of it.
pub(crate) fn give_mode(directory: &OwnedFd, mode: u32) -> io::Result<()> {
    files::set_mode(directory, mode).or_else(|errno| {
        // A sandbox may deny the call where the umask has taken nothing away.
        let found = listing::examine_open(directory)?;
        if found.mode == mode {
            Ok(())
        } else {
            Err(errno.into())
        }
    })
}

/// Moves a directory's time stamps on, so that clients that list it ask the server again.
pub(crate) fn touch(path: &Path) -> io::Result<()> {
    Ok(files::touch(open(path)?)?)
}

pub(crate) fn open(path: &Path) -> io::Result<OwnedFd> {
    listing::open(CWD, path)
}

/// The private directory used when all ranks run on one host and none was named: `/tmp/fsgather-<uid>`,
/// made if it is not there, for this user alone.
///
/// # Errors
///
/// [`Error::Storage`] when it belongs to somebody else, is a link or open to others, or cannot be made.
pub fn default_local(uid: u32) -> Result<PathBuf, Error> {
    private_directory(local_path(uid), uid)
}

/// Where [`default_local`] is or would be.
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

/// Adds to an error of writing what can be done about it.
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
        Some(Errno::MFILE) => {
            let allowed = limits::open_files().soft;
            let allowed = allowed.map_or_else(String::new, |allowed| format!(" (now {allowed})"));
            format!("raise the limit of open files with `ulimit -n`{allowed} before the job starts")
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
    fn a_directory_is_open_to_all_if_strangers_may_replace_what_is_in_it() {
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
