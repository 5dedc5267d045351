//! The mark beside a gather directory that somebody is about to remove: [`Mark`].
//!
//! It is there so that an owner that was only suspended, or cut off, learns on its return who has taken
//! its directory away and why, instead of finding files missing. So it outlives the directory where the
//! owner was not proved to be gone, until a later cleaning finds it old.

use std::{
    io,
    path::{Path, PathBuf},
};

use fsgather_core::{GatherId, ProcessId};

use rustix::fs::FileType;

use crate::{
    directory::OwnUid,
    file,
    gather_dir::is_not_seen,
    inventory::{self, Part, Table},
    layout::RendezvousEntry,
    listing,
    owner::OwnerRecord,
    remove, reveal,
};

/// A mark that this process has left.
#[derive(Debug)]
pub(crate) struct Mark {
    path: PathBuf,
}

impl Mark {
    /// Condemns a gather directory, in the name of `what` in the process `me`.
    ///
    /// Where there is no room for one more file the mark is a second name of a file that speaks for the
    /// directory, which then says nothing of who has left it; and where files have one name only and the
    /// owner `is_gone`, the directory's first other file becomes the mark, as it would be removed next.
    pub(crate) fn leave(
        rendezvous: &Path,
        id: GatherId,
        what: &str,
        me: &ProcessId,
        is_gone: bool,
    ) -> io::Result<Self> {
        let entry = RendezvousEntry::Condemned {
            id,
            nonce: crate::random::fresh(),
        };
        let path = rendezvous.join(entry.to_string());
        let text = format!("{what} on {} (pid {})\n", me.host, me.pid);
        match file::write_new(&path, 0o600, text.as_bytes(), true) {
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

    /// Has a mark that stays say who left it, now that there is room, where it does not yet.
    pub(crate) fn say(&self, rendezvous: &Path, id: GatherId, what: &str, me: &ProcessId) {
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

    /// Takes the mark back.
    pub(crate) fn take_back(&self) -> io::Result<()> {
        remove::unlink(&self.path)
    }
}

/// Has a file that speaks for the directory appear as the mark as well.
fn link_of(gather: &Path, mark: &Path) -> bool {
    let names = listing::names(gather).unwrap_or_default();
    let speaks = |name: &&String| {
        matches!(
            inventory::gather_directory(name),
            Some(Part::File(kind)) if kind.is_about_the_directory()
        )
    };
    names.iter().filter(speaks).any(|name| {
        reveal::second_name(&gather.join(name), mark)
            .inspect_err(|error| tracing::debug!(name, %error, "cannot be the mark"))
            .is_ok()
    })
}

/// Has the first file below that does not speak for the directory become the mark.
fn taken_from(gather: &Path, mark: &Path) -> bool {
    let mut below: Vec<(PathBuf, Table)> = vec![(gather.to_owned(), inventory::gather_directory)];
    while let Some((path, table)) = below.pop() {
        for name in listing::names(&path).unwrap_or_default() {
            let at = path.join(&name);
            let Ok(found) = listing::examine_path(&at) else {
                continue;
            };
            match (table(&name), found.kind) {
                (Some(Part::Directory(table)), FileType::Directory) => below.push((at, table)),
                (Some(Part::File(kind)), FileType::RegularFile)
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

/// Who has condemned a gather directory, in the words of the first of the marks beside it that this user or root
/// has left.
pub(crate) fn condemned_by(
    rendezvous: &Path,
    marks: &[String],
    own: OwnUid,
) -> Option<(String, String)> {
    marks.iter().find_map(|mark| {
        let by = match read_mark(&rendezvous.join(mark), own) {
            Ok(by) => by?,
            // Taken back since it was listed.
            Err(error) if is_not_seen(&error) => return None,
            Err(error) => {
                tracing::debug!(mark, %error, "cannot read");
                "somebody".to_owned()
            }
        };
        Some((mark.clone(), by))
    })
}

/// Who left a mark, in the words of its first line; `None` when another user did.
fn read_mark(path: &Path, own: OwnUid) -> io::Result<Option<String>> {
    let file = file::open(path)?;
    let uid = file::examine(&file)?.uid;
    if uid != own.0 && uid != 0 {
        return Ok(None);
    }
    let bytes = file::read_bounded(&file, 200)?;
    // A mark for which there was no room is another file's second name.
    let text: String = str::from_utf8(&bytes)
        .ok()
        .filter(|text| !text.starts_with(OwnerRecord::TITLE_STEM))
        .unwrap_or_default()
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .filter(|character| !character.is_control())
        .collect();
    Ok(Some(if text.is_empty() {
        "somebody".to_owned()
    } else {
        text
    }))
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::owner::tests::record;

    use super::*;
    use crate::neighbours::Neighbours;

    pub(crate) fn marks_of(rendezvous: &Path, id: GatherId) -> Vec<String> {
        Neighbours::among(&listing::names(rendezvous).unwrap())
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
            condemned_by(place.path(), &marks_of(place.path(), id), own).map(|(_, by)| by)
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
    fn a_file_of_the_directory_is_the_mark_where_there_is_no_room_for_one() {
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
        let by = || condemned_by(place.path(), &marks(), own).map(|(_, by)| by);
        assert!(link_of(made.path(), &mark));
        assert_eq!(by().as_deref(), Some("somebody"));
        assert!(made.owner().is_ok());
        std::fs::remove_file(&mark).unwrap();
        assert!(!taken_from(made.path(), &mark), "there is nothing else");
        let name = "payload-c0000000000000000-e00000000000000000012-r00003-0000beef";
        std::fs::write(made.payloads().join(name), b"\x89FSG\xff").unwrap();
        assert!(taken_from(made.path(), &mark));
        assert_eq!(by().as_deref(), Some("somebody"));
        assert_eq!(std::fs::read_dir(made.payloads()).unwrap().count(), 0);
    }
}
