//! A small file that shows owner, mode and time of new files in a directory: [`Tried`].
//!
//! A process can be killed while the file exists. So the file has no name if the file system supports that, except if named
//! files are to be tested.

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    path::Path,
    time::{Duration, SystemTime},
};

use fsgather_core::ANY_MODE;

use crate::{
    layout::RendezvousEntry,
    os::{
        directory::OwnUid,
        file,
        filesystem::{Class, FileSystem},
        listing, remove,
    },
};

/// Properties of a file that was made in a directory.
#[derive(Clone, Debug)]
pub(crate) struct Tried {
    /// Owner of the file.
    pub(crate) own: OwnUid,
    /// Its time stamp.
    pub(crate) now: SystemTime,
    /// Mode of the file, which should be 0600.
    mode: u32,
    /// Owner and mode of the directory.
    holder: (u32, u32),
    file_system: FileSystem,
}

impl Tried {
    /// Returns the reason why the directory must not be used with gather directories of this mode, and the operation that fails
    /// for it.
    pub(super) fn objection(&self, mode: u32) -> Option<(&'static str, String)> {
        let (owner, holder) = self.holder;
        if owner != self.own.0 && owner != 0 && holder & 0o1000 == 0 {
            return Some((
                "trust",
                format!(
                    "it belongs to uid {owner}, and whoever may write in it can replace what this user (uid {}) leaves \
                     there; have its owner make it sticky (chmod +t), or name another directory with FSGATHER_DIR",
                    self.own.0
                ),
            ));
        }
        if self.mode & 0o077 != 0 && mode & ANY_MODE != ANY_MODE {
            return Some((
                "keep private what is in",
                format!(
                    "files have mode {:o} on this file system ({}), whatever they are given; name another directory \
                     with FSGATHER_DIR, or let whoever can read it join and read with FSGATHER_DIR_MODE=any",
                    self.mode,
                    self.file_system.name()
                ),
            ));
        }
        None
    }
}

/// Makes a small file in a directory, writes, syncs, closes and removes it, and returns its properties.
pub(crate) fn try_writing(directory: &Path) -> io::Result<Tried> {
    let held = listing::hold(directory)?;
    let seen = examine_named(&held, &[0x66; 4096], true)?;
    Tried::of(&held, seen)
}

/// Returns the properties of this process's files in a directory, including the server's time. Nothing is synced, so that the
/// time is not outdated if syncing is slow; closing sends the file to the server.
pub(crate) fn look_at_own(directory: &Path) -> io::Result<Tried> {
    let held = listing::hold(directory)?;
    let seen = examine_unnamed(&held).or_else(|error| {
        tracing::trace!(path = %directory.display(), %error, "no files without a name");
        examine_named(&held, &[0x66], false)
    })?;
    Tried::of(&held, seen)
}

/// A file's properties and its file system.
type Seen = (listing::Facts, FileSystem);

impl Tried {
    fn of(held: &OwnedFd, (made, file_system): Seen) -> io::Result<Self> {
        let holder = listing::examine_open(held)?;
        let me = rustix::process::geteuid().as_raw();
        if file_system.shows_makers() && made.uid != me {
            return Err(io::Error::other(format!(
                "a file that this process (uid {me}) has made there belongs to uid {}",
                made.uid
            )));
        }
        Ok(Self {
            own: OwnUid(made.uid),
            now: made.changed,
            mode: made.mode & 0o777,
            holder: (holder.uid, holder.mode),
            file_system,
        })
    }
}

/// Makes a file of a unique name and examines that file, not one that has the name afterwards. The file is always removed.
fn examine_named(held: &OwnedFd, contents: &[u8], is_synced: bool) -> io::Result<Seen> {
    let name = RendezvousEntry::Probe(fsgather_core::sys::random::fresh()).to_string();
    let name = Path::new(&name);
    let created = file::create_new_in(held, name, 0o600)?;
    let examined = examine(&created, contents, is_synced);
    let closed = file::close(created);
    if let Ok((_, file_system)) = &examined {
        remove::wait_until_closed(file_system, Duration::ZERO);
    }
    remove::unlink_in(held, name)?;
    closed.and(examined)
}

/// Examines a file without a name; only on local file systems.
fn examine_unnamed(held: &OwnedFd) -> io::Result<Seen> {
    if FileSystem::of_open(held)?.class() != Class::Local {
        return Err(io::ErrorKind::Unsupported.into());
    }
    examine(&file::create_unnamed_in(held, 0o600)?, &[0x66], false)
}

fn examine(created: &File, contents: &[u8], is_synced: bool) -> io::Result<Seen> {
    file::write_all(created, &mut [io::IoSlice::new(contents)])?;
    if is_synced {
        file::sync(created)?;
    }
    file::flush(created)?;
    Ok((
        listing::examine_open(created)?,
        FileSystem::of_open(created)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_here(mode: u32, holder: (u32, u32)) -> Tried {
        Tried {
            own: OwnUid(1000),
            now: SystemTime::now(),
            mode,
            holder,
            file_system: FileSystem::from_magic(0x6969),
        }
    }

    #[test]
    fn a_directory_of_somebody_else_is_trusted_only_if_it_is_sticky() {
        for (holder, is_trusted) in [
            ((1000, 0o2775), true),
            ((0, 0o2775), true),
            ((1001, 0o3775), true),
            ((1001, 0o1777), true),
            ((1001, 0o2775), false),
            ((1001, 0o777), false),
            ((1001, 0o700), false),
        ] {
            let objection = made_here(0o600, holder).objection(0o700);
            assert_eq!(objection.is_none(), is_trusted, "{holder:?}");
            if let Some((_, text)) = objection {
                assert!(
                    text.contains("uid 1001") && text.contains("chmod +t"),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn files_that_others_can_read_are_refused_unless_that_is_known() {
        let private = (1000, 0o700);
        for mode in [0o700, 0o750, 0o770] {
            assert!(made_here(0o600, private).objection(mode).is_none());
            for open in [0o755, 0o666, 0o640] {
                let (_, text) = made_here(open, private).objection(mode).unwrap();
                assert!(text.contains("FSGATHER_DIR_MODE=any"), "{text}");
            }
        }
        assert!(made_here(0o777, private).objection(ANY_MODE).is_none());
    }

    #[test]
    fn what_a_file_is_like_is_seen_on_it_and_not_by_its_name() {
        let place = tempfile::tempdir().unwrap();
        let held = listing::hold(place.path()).unwrap();
        // A user who may rename files here replaces each probe by an old file.
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let order = std::sync::atomic::Ordering::Relaxed;
        let planted = place.path().join("planted");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(order) {
                    for name in listing::names(place.path()).unwrap() {
                        if name.starts_with("probe-") {
                            let old = File::create(&planted).unwrap();
                            old.set_modified(SystemTime::UNIX_EPOCH).unwrap();
                            let _ = std::fs::rename(&planted, place.path().join(name));
                        }
                    }
                }
            });
            let seen: Vec<_> = (0..200)
                .map(|_| examine_named(&held, &[0x66; 4096], true).unwrap().0)
                .collect();
            is_over.store(true, order);
            for found in seen {
                assert!(found.changed > SystemTime::UNIX_EPOCH && found.len == 4096);
            }
        });
    }

    #[test]
    fn both_kinds_of_files_show_the_same() {
        let place = tempfile::tempdir().unwrap();
        let held = listing::hold(place.path()).unwrap();
        let named = examine_named(&held, &[0x66], false).unwrap();
        match examine_unnamed(&held) {
            Ok((unnamed, file_system)) => {
                assert_eq!((unnamed.uid, unnamed.mode), (named.0.uid, named.0.mode));
                assert_eq!(unnamed.len, 1);
                assert!(unnamed.changed >= named.0.changed);
                assert_eq!(file_system, named.1);
            }
            Err(error) => println!("no files without a name here: {error}"),
        }
        let (tried, own) = (
            try_writing(place.path()).unwrap(),
            look_at_own(place.path()).unwrap(),
        );
        assert_eq!((tried.own, tried.holder), (own.own, own.holder));
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
