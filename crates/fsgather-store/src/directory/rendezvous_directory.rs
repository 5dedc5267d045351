//! The directory in which ranks meet and gather directories are made: [`make_rendezvous`] makes it, [`check_writing`] checks
//! that it can be used, and finds the owner of this process's files in it.
//!
//! Other users may be able to rename the directory and its entries. So a file is examined through the descriptor with which it
//! was made, and permissions are given to the descriptor that was checked: a path may lead elsewhere when it is looked up
//! again.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use fsgather_core::{Error, StorageCause, sys::clock};

use super::trial;
use crate::{
    layout::{self, RendezvousEntry},
    os::{
        directory::{self, OwnUid, explain, look},
        filesystem::{Class, FileSystem},
        listing, remove,
    },
};

/// Number of attempts to make a rendezvous directory that disappears. Each further attempt needs another process that removes
/// it in between.
const MAX_ATTEMPTS: usize = 1000;

/// Number of times that a directory is listed before an error counts: some errors are transient.
const LISTINGS: usize = 3;

/// Makes the rendezvous directory within `directory`, and returns its path.
///
/// Every rank does this; it is no error if the directory exists. It gets group and mode of `directory`, so that colleagues can
/// share a project directory. If users other than its owner may write in it, it also gets the sticky bit, so that they cannot
/// rename or remove files of others. It stays at the end of a run.
///
/// [`check_writing`] checks if an existing one can be trusted.
///
/// # Errors
///
/// [`Error::Storage`] about `directory`, identical on all ranks, if it cannot be made or if another kind of file has its name.
pub fn make_rendezvous(directory: &Path) -> Result<PathBuf, Error> {
    let path = layout::rendezvous_path(directory);
    let told = |error: io::Error| Error::storage("use", directory, explain(directory, &error));
    let parent = directory::look_through(directory).map_err(told)?;
    let wanted = (parent.gid, parent.mode & 0o3777);
    let make_or_look = || {
        let now = clock::wall();
        if directory::make(&path, 0o700)? {
            let made = directory::open(&path)?;
            if is_just_made(&made, now)? {
                adopt(&made, wanted.0, wanted.1)?;
            } else {
                tracing::debug!(path = %path.display(), "something else is in its place already");
            }
            Ok(true)
        } else {
            Ok(look(&path)?.is_directory)
        }
    };
    let mut is_directory = make_or_look();
    let mut tries = 1;
    // `clean` may remove it in between, while it is empty.
    let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    while tries < MAX_ATTEMPTS && is_directory.as_ref().is_err_and(is_gone) {
        is_directory = make_or_look();
        tries += 1;
    }
    if let Err(error) = &is_directory
        && is_gone(error)
        && let Ok(file_system) = FileSystem::of(directory)
    {
        // The parent directory exists.
        let problem = format!(
            "{} ({}) holds no directories of users; name another directory with FSGATHER_DIR",
            directory.display(),
            file_system.name()
        );
        return Err(Error::storage(
            "make directory",
            &path,
            StorageCause {
                os_code: error.raw_os_error(),
                message: problem,
            },
        ));
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

/// Makes a directory and its parents, with the permissions that the umask leaves. Does nothing if it exists.
///
/// # Errors
///
/// [`Error::Storage`] if one of them cannot be made.
pub fn make_directory(directory: &Path) -> Result<(), Error> {
    let is_missing = |path: &&Path| {
        let found = directory::look_through(path);
        found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    let missing: Vec<&Path> = directory.ancestors().take_while(is_missing).collect();
    for path in missing.into_iter().rev() {
        directory::make(path, 0o777)
            .map_err(|error| Error::storage("make directory", path, explain(path, &error)))?;
    }
    Ok(())
}

/// Returns true if an open directory is the one that was just made with mode 0700, and not a replacement by another user.
/// Otherwise a directory that was private would be opened to others.
pub(crate) fn is_just_made(made: &OwnedFd, now: SystemTime) -> io::Result<bool> {
    let found = listing::examine_open(made)?;
    let system = FileSystem::of_open(made)?;
    let is_older = || {
        // Both times are of one clock only on local file systems; it ticks.
        let born = found.born.filter(|_| system.class() == Class::Local);
        born.is_some_and(|born| {
            now.duration_since(born)
                .is_ok_and(|ago| ago > Duration::from_secs(1))
        })
    };
    if found.mode & 0o1777 != 0o700
        || system.shows_makers() && found.uid != rustix::process::geteuid().as_raw()
        || is_older()
    {
        return Ok(false);
    }
    // Other ranks may have begun to use it.
    let is_ours = |name: &Result<String, String>| {
        name.as_ref()
            .is_ok_and(|name| RendezvousEntry::parse(name).is_some())
    };
    let mut names = listing::names_of(made);
    for _ in 1..LISTINGS {
        if names.is_err() {
            names = listing::names_of(made);
        }
    }
    // A rank that cannot list the directory reports that when it looks for rank 0, when it can notify the others.
    Ok(names.is_ok_and(|names| names.iter().all(is_ours)))
}

/// Gives group and mode to a fresh directory.
fn adopt(fresh: &OwnedFd, group: u32, mode: u32) -> io::Result<()> {
    let mut mode = mode;
    if !directory::give_group(fresh, group)? {
        mode = of_another_group(mode);
    }
    if mode & 0o022 == 0 {
        return directory::give_mode(fresh, mode);
    }
    directory::give_mode(fresh, mode | 0o1000).or_else(|error| {
        tracing::debug!(%error, "no sticky bit here");
        directory::give_mode(fresh, mode)
    })
}

/// Returns the mode for a directory that cannot get the group that `mode` was meant for. Its group gets the permissions of all
/// other users: no more than the parent allows to others, and no less.
const fn of_another_group(mode: u32) -> u32 {
    mode & !0o2070 | (mode & 0o007) << 3
}

/// Runs [`check_writing`] for a directory that only this user may access, and returns the owner of this process's files.
///
/// # Errors
///
/// Those of [`check_writing`].
pub fn check_writable(directory: &Path) -> Result<OwnUid, Error> {
    check_writing(directory, 0o700).map(|(own, _)| own)
}

/// Checks that this process can write in a rendezvous directory, and that no other user can interfere. Returns the owner of its
/// files there, and the server's time: the time stamp of the file.
///
/// Writes, syncs, closes and removes a small file of a unique name. `mode` is the future mode of gather directories there, as
/// in [`GatherDir::create`](crate::GatherDir::create).
///
/// # Errors
///
/// [`Error::Storage`] that names the directory, not the file, so that all ranks report the same: if no file can be written; if
/// the directory belongs to a user other than this one and root and has no sticky bit, so that its owner and others can replace
/// its entries; and if files in it are open to other users with any mode, unless `mode` is
/// [`ANY_MODE`](fsgather_core::ANY_MODE).
pub fn check_writing(directory: &Path, mode: u32) -> Result<(OwnUid, SystemTime), Error> {
    let tried = in_rendezvous(directory, || trial::try_writing(directory))
        .map_err(|error| Error::storage("write in", directory, explain(directory, &error)))?;
    match tried.objection(mode) {
        Some((operation, problem)) => Err(Error::storage(
            operation,
            directory,
            StorageCause::described(problem),
        )),
        None => Ok((tried.own, tried.now)),
    }
}

/// Returns true if `directory` contains a rendezvous directory, or another file of its name.
#[must_use]
pub fn has_rendezvous(directory: &Path) -> bool {
    look(&layout::rendezvous_path(directory)).is_ok()
}

/// Removes the rendezvous directory in `directory` if it is empty; ranks that need it make it again.
///
/// Best effort: an empty one is harmless.
pub fn remove_empty_rendezvous(directory: &Path) {
    let path = layout::rendezvous_path(directory);
    if let Err(error) = remove::rmdir(&path) {
        tracing::debug!(path = %path.display(), %error, "an empty directory stays");
    }
}

/// Does some `work` in a rendezvous directory. If the directory has been removed because it was empty, as `clean` may do at any
/// moment, makes it again.
pub(crate) fn in_rendezvous<R>(
    rendezvous: &Path,
    work: impl Fn() -> io::Result<R>,
) -> io::Result<R> {
    let parent = rendezvous
        .parent()
        .filter(|parent| layout::rendezvous_path(parent) == rendezvous);
    for _ in 0..MAX_ATTEMPTS {
        match (work(), parent) {
            (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
                if let Err(error) = make_rendezvous(parent) {
                    tracing::debug!("{error}");
                }
            }
            // The client's cached path is stale, and is looked up anew the next time.
            (Err(error), _) if error.kind() == io::ErrorKind::StaleNetworkFileHandle => {
                tracing::debug!(path = %rendezvous.display(), %error, "trying again");
            }
            (done, _) => return done,
        }
    }
    work()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use rustix::io::Errno;

    use super::*;

    #[test]
    fn missing_directory_is_made_with_its_parents() {
        let place = tempfile::tempdir().unwrap();
        let wanted = place.path().join("new/deep/dir");
        for _ in 0..2 {
            make_directory(&wanted).unwrap();
            assert!(wanted.is_dir());
        }
        let error = make_directory(Path::new("/proc/none/below")).unwrap_err();
        assert!(matches!(error, Error::Storage { .. }), "{error}");
    }

    #[test]
    fn a_stale_handle_is_tried_again_and_another_error_is_not() {
        let place = tempfile::tempdir().unwrap();
        let failing = |errno: Errno| {
            let tries = std::cell::Cell::new(0);
            let done = in_rendezvous(place.path(), || {
                tries.set(tries.get() + 1);
                if tries.get() < 3 {
                    Err(errno.into())
                } else {
                    Ok(())
                }
            });
            (done.is_ok(), tries.get())
        };
        assert_eq!(failing(Errno::STALE), (true, 3));
        assert_eq!(failing(Errno::IO), (false, 1));
    }

    #[test]
    fn a_repeatedly_removed_rendezvous_directory_is_remade() {
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
    fn a_group_that_the_mode_is_not_about_may_what_everybody_may() {
        for (mode, without) in [
            (0o700, 0o700),
            (0o2770, 0o700),
            (0o2775, 0o755),
            (0o1777, 0o1777),
            (0o705, 0o755),
        ] {
            assert_eq!(of_another_group(mode), without, "{mode:o}");
        }
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
            let sticky = if mode & 0o022 == 0 { 0 } else { 0o1000 };
            assert_eq!(made.mode() & 0o7777, mode | sticky);
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
    fn the_write_check_leaves_nothing_and_tells_the_owner() {
        let place = tempfile::tempdir().unwrap();
        let (own, time) = check_writing(place.path(), 0o700).unwrap();
        assert_eq!(own.0, std::fs::metadata(place.path()).unwrap().uid());
        let off = SystemTime::now().duration_since(time).unwrap_or_default();
        assert!(off < Duration::from_secs(60), "{off:?}");
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
    fn the_write_check_names_the_directory_alike_on_all_ranks() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, b"").unwrap();
        let first = check_writable(&file).unwrap_err();
        assert_eq!(first, check_writable(&file).unwrap_err());
        assert!(matches!(&first, Error::Storage { path, peer: None, .. } if *path == file));
    }

    #[test]
    fn a_directory_that_was_there_before_is_not_opened_to_others() {
        let place = tempfile::tempdir().unwrap();
        let is_new =
            |path: &Path, since| is_just_made(&directory::open(path).unwrap(), since).unwrap();
        let since = SystemTime::now();
        let make = |name: &str, mode| {
            let path = place.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            path
        };
        let fresh = make("made", 0o700);
        assert!(is_new(&fresh, since));
        std::fs::write(fresh.join("probe-0000000000000007"), b"").unwrap();
        assert!(is_new(&fresh, since), "another rank has come");
        std::fs::write(fresh.join("diary"), b"").unwrap();
        assert!(!is_new(&fresh, since), "it holds something");
        assert!(!is_new(&make("open", 0o755), since));
        if listing::examine_open(directory::open(&fresh).unwrap())
            .unwrap()
            .born
            .is_some()
        {
            let later = since + Duration::from_secs(60);
            assert!(!is_new(&make("older", 0o700), later), "it is older");
        }
    }

    #[test]
    fn a_group_that_cannot_be_kept_may_do_what_everybody_may() {
        let place = tempfile::tempdir().unwrap();
        let group = Some(rustix::fs::Gid::from_raw(54_321));
        let can_be_given = rustix::fs::chown(place.path(), None, group).is_ok();
        for (mode, kept, narrowed) in [
            (0o1777, 0o1777, 0o1777),
            (0o2775, 0o3775, 0o755),
            (0o770, 0o1770, 0o700),
        ] {
            let path = place.path().join(format!("{mode:o}"));
            std::fs::create_dir(&path).unwrap();
            // A group that this user is not a member of.
            adopt(&directory::open(&path).unwrap(), 54_321, mode).unwrap();
            // Root can give any group, so no permission is removed.
            let expected = if can_be_given { kept } else { narrowed };
            assert_eq!(
                std::fs::metadata(&path).unwrap().mode() & 0o7777,
                expected,
                "{mode:o}"
            );
        }
    }
}
