//! Making and judging directories: the one owner of `mkdir`, `chmod`, `chown`, `lstat` of directories
//! and of touching them.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::SystemTime,
};

use fsgather_core::{Error, StorageCause};
use rustix::{
    fs::{FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW},
    io::{Errno, retry_on_intr},
};
use serde::{Deserialize, Serialize};

use crate::{file, layout, layout::RendezvousEntry, listing, remove};

/// The uid that the file server shows for files of this process.
///
/// It may differ from the process's own uid, for example on a server that maps root to nobody. Found by
/// [`check_writable`].
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
        let stat = retry_on_intr(|| rustix::fs::stat(directory)).map_err(|errno| {
            let error = io::Error::from(errno);
            Error::storage("use", directory, explain(directory, &error))
        })?;
        Ok(Self {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: stat.st_mode & 0o7777,
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
pub(crate) struct Found {
    pub(crate) is_directory: bool,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
}

/// Looks at a path without following a link.
pub(crate) fn look(path: &Path) -> io::Result<Found> {
    let stat = retry_on_intr(|| rustix::fs::lstat(path))?;
    Ok(Found {
        is_directory: FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
        uid: stat.st_uid,
        gid: stat.st_gid,
        mode: stat.st_mode & 0o7777,
    })
}

/// Makes a directory; `false` when something of that name is there already.
pub(crate) fn make(path: &Path, mode: u32) -> io::Result<bool> {
    match retry_on_intr(|| rustix::fs::mkdir(path, Mode::from_raw_mode(mode))) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Sets the mode of a directory, whatever the umask has made of it.
pub(crate) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    let directory = open(path)?;
    Ok(rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode))?)
}

/// Moves a directory's time stamps on, so that clients that list it ask the server again.
pub(crate) fn touch(path: &Path) -> io::Result<()> {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    Ok(rustix::fs::futimens(open(path)?, &times)?)
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(retry_on_intr(|| {
        rustix::fs::open(path, flags, Mode::empty())
    })?)
}

/// How often to make a rendezvous directory that is gone again: each time somebody has to come between.
const TRIES: usize = 1000;

/// Makes the rendezvous directory within `directory`, and returns its path.
///
/// Every rank does this; that it exists is success. It takes group and mode of `directory`, so that
/// colleagues can share a project directory. Nobody removes it at the end of a run.
///
/// # Errors
///
/// [`Error::Storage`] about `directory`, alike on all ranks, when it cannot be made or when something
/// that is not a directory has its name.
pub fn make_rendezvous(directory: &Path) -> Result<PathBuf, Error> {
    let path = layout::rendezvous_path(directory);
    let told = |error: io::Error| Error::storage("use", directory, explain(directory, &error));
    let parent = std::fs::metadata(directory).map_err(told)?;
    let wanted = {
        use std::os::unix::fs::MetadataExt;
        (parent.gid(), parent.mode() & 0o7777)
    };
    let make_or_look = || {
        if make(&path, wanted.1)? {
            adopt(&path, wanted.0, wanted.1)?;
            Ok(true)
        } else {
            Ok(look(&path)?.is_directory)
        }
    };
    let mut is_directory = make_or_look();
    let mut tries = 1;
    // `clean` may remove it in between, as long as it is empty.
    let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    while tries < TRIES && is_directory.as_ref().is_err_and(is_gone) {
        is_directory = make_or_look();
        tries += 1;
    }
    if !is_directory.map_err(told)? {
        return Err(Error::storage(
            "use",
            &path,
            StorageCause::described("it exists and is not a directory; move it out of the way"),
        ));
    }
    Ok(path)
}

/// Gives a fresh directory group and mode. If the group cannot be given, the group it has instead gets
/// no access.
fn adopt(path: &Path, group: u32, mode: u32) -> io::Result<()> {
    let directory = open(path)?;
    let mut mode = mode;
    if look(path)?.gid != group
        && let Err(errno) = rustix::fs::fchown(&directory, None, Some(Gid::from_raw(group)))
    {
        tracing::debug!(path = %path.display(), group, %errno, "the parent's group cannot be given");
        mode &= !0o2070;
    }
    Ok(rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode))?)
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
        set_mode(&path, 0o700).map_err(|error| told(&error))?;
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

/// Proves that this process can write in a rendezvous directory, and finds out as whom.
///
/// Writes, syncs and closes a small file of a unique name, and removes it.
///
/// # Errors
///
/// [`Error::Storage`] that names the directory, not the file, so that all ranks say the same.
pub fn check_writable(directory: &Path) -> Result<OwnUid, Error> {
    check_writing(directory).map(|(own, _)| own)
}

/// [`check_writable`], and what time it is there: the time stamp that the server has given the file.
///
/// # Errors
///
/// Those of [`check_writable`].
pub fn check_writing(directory: &Path) -> Result<(OwnUid, SystemTime), Error> {
    in_rendezvous(directory, || try_writing(directory))
        .map_err(|error| Error::storage("write in", directory, explain(directory, &error)))
}

/// Whether there is a rendezvous directory in `directory`, or anything else of its name.
#[must_use]
pub fn has_rendezvous(directory: &Path) -> bool {
    look(&layout::rendezvous_path(directory)).is_ok()
}

/// Removes the rendezvous directory in `directory` if nothing is in it; whoever needs it makes it again.
///
/// Best effort: nobody is disturbed by an empty one.
pub fn remove_empty_rendezvous(directory: &Path) {
    let path = layout::rendezvous_path(directory);
    if let Err(error) = remove::rmdir(&path) {
        tracing::debug!(path = %path.display(), %error, "an empty directory stays");
    }
}

/// Whose files of this process are in a directory, and what time it is there: owner and time stamp of a
/// small file, which is written, synced, closed and removed.
pub(crate) fn try_writing(directory: &Path) -> io::Result<(OwnUid, SystemTime)> {
    let path = directory.join(RendezvousEntry::Probe(crate::random::fresh()).to_string());
    let written = write_probe(&path);
    let removed = remove::unlink(&path);
    let found = written?;
    removed?;
    Ok((OwnUid(found.uid), found.changed))
}

/// What time it is in a directory, as the server says: the time stamp of a small file, which is removed. Nothing is
/// synced, so that the answer is not old already where that takes long; closing brings it to the server.
pub(crate) fn server_time(directory: &Path) -> io::Result<SystemTime> {
    let path = directory.join(RendezvousEntry::Probe(crate::random::fresh()).to_string());
    let examined =
        file::write_new(&path, 0o600, &[0x66], false).and_then(|()| listing::examine_path(&path));
    remove::unlink(&path)?;
    Ok(examined?.changed)
}

fn write_probe(path: &Path) -> io::Result<listing::Facts> {
    let created = file::create_new(path, 0o600)?;
    file::write_all(&created, &mut [io::IoSlice::new(&[0x66; 4096])])?;
    file::sync(&created)?;
    file::close(created)?;
    listing::examine_path(path)
}

/// Does something in a rendezvous directory. If that has been removed because it was empty, as `clean` may
/// do at any moment, it is made again.
pub(crate) fn in_rendezvous<R>(
    rendezvous: &Path,
    work: impl Fn() -> io::Result<R>,
) -> io::Result<R> {
    let parent = rendezvous
        .parent()
        .filter(|parent| layout::rendezvous_path(parent) == rendezvous);
    for _ in 0..TRIES {
        match (work(), parent) {
            (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
                if let Err(error) = make_rendezvous(parent) {
                    tracing::debug!("{error}");
                }
            }
            (done, _) => return done,
        }
    }
    work()
}

/// Adds to an error of writing what can be done about it.
pub(crate) fn explain(path: &Path, error: &io::Error) -> StorageCause {
    let mut cause = StorageCause::from(error);
    let advice = match cause.os_code.map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC) => {
            let free = crate::filesystem::free_bytes(path).map_or_else(String::new, |free| {
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

    use super::*;

    #[test]
    fn a_rendezvous_directory_that_is_removed_all_the_time_is_made_again() {
        let place = tempfile::tempdir().unwrap();
        let path = layout::rendezvous_path(place.path());
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let order = std::sync::atomic::Ordering::Relaxed;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(order) {
                    let _ = std::fs::remove_dir(&path);
                }
            });
            for _ in 0..300 {
                if let Err(error) = make_rendezvous(place.path()) {
                    is_over.store(true, order);
                    panic!("{error}");
                }
            }
            is_over.store(true, order);
        });
    }

    #[test]
    fn the_rendezvous_directory_takes_group_and_mode_of_its_parent() {
        let place = tempfile::tempdir().unwrap();
        for mode in [0o700, 0o770, 0o1777, 0o2775] {
            let parent = place.path().join(format!("{mode:o}"));
            std::fs::create_dir(&parent).unwrap();
            std::fs::set_permissions(&parent, PermissionsExt::from_mode(mode)).unwrap();
            let made = make_rendezvous(&parent).unwrap();
            let (made, parent) = (
                std::fs::metadata(made).unwrap(),
                std::fs::metadata(parent).unwrap(),
            );
            assert_eq!(made.mode() & 0o7777, mode);
            assert_eq!(made.gid(), parent.gid());
        }
    }

    #[test]
    fn making_it_again_or_at_once_is_success() {
        let place = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            let makers: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| make_rendezvous(place.path())))
                .collect();
            for maker in makers {
                let path = maker.join().unwrap().unwrap();
                assert_eq!(path, layout::rendezvous_path(place.path()));
            }
        });
    }

    #[test]
    fn links_and_files_are_not_taken_for_the_rendezvous_directory() {
        let place = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let path = layout::rendezvous_path(place.path());
        symlink(elsewhere.path(), &path).unwrap();
        let text = make_rendezvous(place.path()).unwrap_err().to_string();
        assert!(text.contains("not a directory"), "{text}");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, b"").unwrap();
        assert!(make_rendezvous(place.path()).is_err());
    }

    #[test]
    fn a_missing_directory_is_told_with_the_way_out() {
        let place = tempfile::tempdir().unwrap();
        let missing = place.path().join("missing");
        let text = make_rendezvous(&missing).unwrap_err().to_string();
        let expected = format!("cannot use {}: No such file", missing.display());
        assert!(text.starts_with(&expected), "{text}");
        assert!(text.contains("FSGATHER_DIR"), "{text}");
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
    fn the_write_check_leaves_nothing_and_tells_the_owner() {
        let place = tempfile::tempdir().unwrap();
        let (own, time) = check_writing(place.path()).unwrap();
        assert_eq!(own.0, std::fs::metadata(place.path()).unwrap().uid());
        let off = SystemTime::now().duration_since(time).unwrap_or_default();
        assert!(off < std::time::Duration::from_mins(1), "{off:?}");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_an_empty_rendezvous_directory_is_removed() {
        let place = tempfile::tempdir().unwrap();
        assert!(!has_rendezvous(place.path()));
        let path = make_rendezvous(place.path()).unwrap();
        std::fs::write(path.join("x"), b"").unwrap();
        remove_empty_rendezvous(place.path());
        assert!(has_rendezvous(place.path()));
        std::fs::remove_file(path.join("x")).unwrap();
        remove_empty_rendezvous(place.path());
        assert!(!has_rendezvous(place.path()));
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
    fn the_write_check_names_the_directory_alike_on_all_ranks() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, b"").unwrap();
        let first = check_writable(&file).unwrap_err();
        assert_eq!(first, check_writable(&file).unwrap_err());
        assert!(matches!(&first, Error::Storage { path, peer: None, .. } if *path == file));
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
}
