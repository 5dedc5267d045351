//! The mark beside a gather directory that is about to be removed: [`Mark`].
//!
//! With the mark, an owner that was only suspended, or cut off, learns on its return which process has removed its directory
//! and why, instead of finding files missing. If the owner was not proved to be gone, the mark outlives the directory, until a
//! later cleaning finds the mark old.

use std::{
    io,
    path::{Path, PathBuf},
};

use fsgather_core::{GatherId, ProcessId};

use rustix::fs::FileType;

use crate::{
    directory::owner::{self, OwnerRecord},
    layout::{self, RendezvousEntry},
    lifecycle::inventory::{self, KnownEntry, Table},
    os::{directory::OwnUid, file, listing, remove, reveal},
};

/// A mark that this process has left.
#[derive(Debug)]
pub(crate) struct Mark {
    path: PathBuf,
}

impl Mark {
    /// Condemns a gather directory, in the name of `what` in the process `me`.
    ///
    /// The mark is made visible on other hosts, unless the owner `is_gone`.
    ///
    /// If there is no space for one more file, the mark is a second name of the owner record, which does not say which process
    /// left it. If the file system has no second names and the owner `is_gone`, no process has to learn of the removal: then
    /// the first other file in the directory is renamed to the mark, as it would be removed next anyway.
    pub(crate) fn leave(
        rendezvous: &Path,
        id: GatherId,
        what: &str,
        me: &ProcessId,
        is_gone: bool,
    ) -> io::Result<Self> {
        let entry = RendezvousEntry::Condemned {
            id,
            nonce: fsgather_core::sys::random::fresh(),
        };
        let name = entry.to_string();
        let path = rendezvous.join(&name);
        let text = format!("{what} on {} (pid {})\n{id}\n", me.host, me.pid);
        // A link in place of the directory is never followed.
        let held = listing::hold(rendezvous)?;
        match file::write_new_in(held, Path::new(&name), 0o600, text.as_bytes(), !is_gone) {
            Ok(()) => {}
            Err(error) if file::is_lack_of_room(&error) => {
                let gather = rendezvous.join(RendezvousEntry::Gather(id).to_string());
                let is_left = link_of(&gather, &path) || is_gone && taken_from(&gather, &path);
                if !is_left {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        Ok(Self { path })
    }

    /// Replaces a mark that does not say which process left it by one that does, now that there is space.
    pub(crate) fn sign(&self, rendezvous: &Path, id: GatherId, what: &str, me: &ProcessId) {
        let is_mute = file::open(&self.path)
            .and_then(|file| file::read_bounded(&file, what.len() as u64))
            .is_ok_and(|text| text != what.as_bytes());
        if is_mute
            && Self::leave(rendezvous, id, what, me, false).is_ok()
            && let Err(error) = self.take_back()
        {
            tracing::debug!(path = %self.path.display(), %error, "a mark stays");
        }
    }

    /// Removes the mark.
    pub(crate) fn take_back(&self) -> io::Result<()> {
        remove::unlink(&self.path)
    }
}

/// Makes the mark a second name of the owner record.
fn link_of(gather: &Path, mark: &Path) -> bool {
    reveal::second_name(&gather.join(layout::OWNER), mark)
        .inspect_err(|error| tracing::debug!(%error, "the owner record cannot be the mark"))
        .is_ok()
}

/// Renames the first file in it that is not about the directory itself to the mark.
fn taken_from(gather: &Path, mark: &Path) -> bool {
    let mut below: Vec<(PathBuf, Table)> = vec![(gather.to_owned(), inventory::gather_directory)];
    while let Some((path, table)) = below.pop() {
        for name in listing::names(&path).unwrap_or_default() {
            let at = path.join(&name);
            let Ok(found) = listing::examine_path(&at) else {
                continue;
            };
            match (table(&name), found.kind) {
                (Some(KnownEntry::Directory(table)), FileType::Directory) => {
                    below.push((at, table));
                }
                (Some(KnownEntry::File(kind)), FileType::RegularFile)
                    if !kind.is_about_the_directory() && reveal::rename(&at, mark).is_ok() =>
                {
                    return true;
                }
                _ => {}
            }
        }
    }
    false
}

/// Returns the first valid mark beside a gather directory, and the process that has condemned the directory according to it.
///
/// A name alone proves nothing: any user may create it here, make it a link, or rename a file of this user to it. A valid mark
/// is a file of this user or of root that names the directory.
pub(crate) fn condemned_by(
    rendezvous: &Path,
    marks: &[String],
    id: GatherId,
    own: OwnUid,
) -> Option<(String, String)> {
    marks.iter().find_map(|mark| {
        let path = rendezvous.join(mark);
        match file::read_small(&path, &[own.0, 0], owner::MAX_RECORD_LEN) {
            Ok(contents) => author(&contents, id).map(|by| (mark.clone(), by)),
            Err(why) => {
                tracing::debug!(mark, %why, "passing over a mark");
                None
            }
        }
    })
}

/// Returns the author of a mark with these contents, if it is about this directory. Pure.
fn author(contents: &[u8], id: GatherId) -> Option<String> {
    // A mark that was made without free space is the owner record's second name.
    if OwnerRecord::from_text(contents).is_ok_and(|record| record.gather == id) {
        return Some("somebody".to_owned());
    }
    let mut lines = str::from_utf8(contents).ok()?.lines();
    let (who, about) = (lines.next()?, lines.next()?);
    if about != id.to_string() {
        return None;
    }
    let shown = who.chars().filter(|character| !character.is_control());
    Some(shown.take(200).collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::{directory::owner::tests::record, lifecycle::entries_by_gather::EntriesByGather};

    pub(crate) fn marks_of(rendezvous: &Path, id: GatherId) -> Vec<String> {
        EntriesByGather::among(&listing::names(rendezvous).unwrap())
            .beside(id)
            .marks
    }

    #[test]
    fn a_mark_says_who_left_it_until_it_is_taken_back() {
        let place = tempfile::tempdir().unwrap();
        let own = crate::check_writable(place.path()).unwrap();
        let (id, other) = (record(1).gather, record(2).gather);
        let me = ProcessId {
            host: "n3".into(),
            pid: 8,
            ..ProcessId::default()
        };
        let mark = Mark::leave(place.path(), id, "fsgather clean", &me, false).unwrap();
        let by = |id, own| {
            condemned_by(place.path(), &marks_of(place.path(), id), id, own).map(|(_, by)| by)
        };
        assert_eq!(by(id, own).unwrap(), "fsgather clean on n3 (pid 8)");
        assert_eq!(by(other, own), None);
        if own.0 != 0 {
            assert_eq!(by(id, OwnUid(own.0 + 1)), None, "not one that counts");
        }
        mark.take_back().unwrap();
        assert_eq!(by(id, own), None);
    }

    #[test]
    fn a_name_alone_stops_nobody() {
        let place = tempfile::tempdir().unwrap();
        let own = crate::check_writable(place.path()).unwrap();
        let (id, other) = (record(1).gather, record(2).gather);
        let path = |nonce| {
            let entry = RendezvousEntry::Condemned { id, nonce };
            place.path().join(entry.to_string())
        };
        symlink("nowhere", path(1)).unwrap();
        symlink(place.path(), path(2)).unwrap();
        std::fs::create_dir(path(3)).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path(4),
            FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        std::fs::write(path(5), b"").unwrap();
        std::fs::write(path(6), b"fsgather clean on n3 (pid 8)\n").unwrap();
        // Another mark, another owner record, and an arbitrary file of this name.
        let about_other = format!("fsgather clean on n3 (pid 8)\n{other}\n");
        std::fs::write(path(7), &about_other).unwrap();
        std::fs::write(path(8), record(2).to_text()).unwrap();
        std::fs::write(path(9), [0xff; 9000]).unwrap();
        let good = about_other.replace(&other.to_string(), &id.to_string());
        std::fs::write(path(10), &good).unwrap();
        std::fs::set_permissions(path(10), PermissionsExt::from_mode(0o000)).unwrap();
        let by = || condemned_by(place.path(), &marks_of(place.path(), id), id, own);
        if !rustix::process::geteuid().is_root() {
            assert_eq!(by(), None, "it cannot be read");
        }
        std::fs::remove_file(path(10)).unwrap();
        assert_eq!(by(), None);
        std::fs::write(path(11), &good).unwrap();
        assert_eq!(by().unwrap().1, "fsgather clean on n3 (pid 8)");
        std::fs::write(path(11), record(1).to_text()).unwrap();
        assert_eq!(by().unwrap().1, "somebody");
    }

    #[test]
    fn without_room_a_file_of_the_directory_is_the_mark() {
        let place = tempfile::tempdir().unwrap();
        let own = crate::check_writable(place.path()).unwrap();
        let made = crate::GatherDir::create(place.path(), 0o700, &record(1), own).unwrap();
        let mark = place.path().join(
            RendezvousEntry::Condemned {
                id: record(1).gather,
                nonce: 1,
            }
            .to_string(),
        );
        let marks = || marks_of(place.path(), record(1).gather);
        let id = record(1).gather;
        let by = || condemned_by(place.path(), &marks(), id, own).map(|(_, by)| by);
        assert!(link_of(made.path(), &mark));
        assert_eq!(by().as_deref(), Some("somebody"));
        assert!(made.owner().is_ok());
        std::fs::remove_file(&mark).unwrap();
        assert!(!taken_from(made.path(), &mark), "there is nothing else");
        let name = "payload-c0000000000000000-e00000000000000000012-r00003-0000beef";
        std::fs::write(made.payloads().join(name), b"\x89FSG\xff").unwrap();
        assert!(taken_from(made.path(), &mark));
        assert_eq!(by(), None, "nobody is left to be told");
        assert_eq!(std::fs::read_dir(made.payloads()).unwrap().count(), 0);
    }
}
