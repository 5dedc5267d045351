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

use crate::{directory::OwnUid, file, layout::RendezvousEntry, listing, remove};

/// A mark that this process has left.
#[derive(Debug)]
pub(crate) struct Mark {
    path: PathBuf,
}

impl Mark {
    /// Condemns a gather directory, in the name of `what` in the process `me`.
    pub(crate) fn leave(
        rendezvous: &Path,
        id: GatherId,
        what: &str,
        me: &ProcessId,
    ) -> io::Result<Self> {
        let entry = RendezvousEntry::Condemned {
            id,
            nonce: rand::random(),
        };
        let path = rendezvous.join(entry.to_string());
        let text = format!("{what} on {} (pid {})\n", me.host, me.pid);
        file::write_new(&path, 0o600, text.as_bytes(), true)?;
        Ok(Self { path })
    }

    /// Takes the mark back.
    pub(crate) fn take_back(&self) -> io::Result<()> {
        remove::unlink(&self.path)
    }
}

/// Who has condemned a gather directory, in the words of the first mark that this user or root has left.
pub(crate) fn condemned_by(
    rendezvous: &Path,
    id: GatherId,
    own: OwnUid,
) -> Option<(String, String)> {
    let names = listing::names(rendezvous).unwrap_or_default();
    marks_of(&names, id).find_map(|mark| {
        let by = match read_mark(&rendezvous.join(mark), own) {
            Ok(by) => by?,
            Err(error) => {
                tracing::debug!(mark, %error, "cannot read");
                "somebody".to_owned()
            }
        };
        Some((mark.clone(), by))
    })
}

/// The names of the marks beside a gather directory.
pub(crate) fn marks_of(names: &[String], id: GatherId) -> impl Iterator<Item = &String> {
    names.iter().filter(move |name| {
        matches!(
            RendezvousEntry::parse(name),
            Some(RendezvousEntry::Condemned { id: condemned, .. }) if condemned == id
        )
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
    let text: String = String::from_utf8_lossy(&bytes)
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
mod tests {
    use crate::owner::tests::record;

    use super::*;

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
        let mark = Mark::leave(place.path(), id, "fsgather clean", &me).unwrap();
        let by = |id, own| condemned_by(place.path(), id, own).map(|(_, by)| by);
        assert_eq!(by(id, own).unwrap(), "fsgather clean on n3 (pid 8)");
        assert_eq!(by(other, own), None);
        if own.0 != 0 {
            assert_eq!(by(id, OwnUid(own.0 + 1)), None, "not one that counts");
        }
        mark.take_back().unwrap();
        assert_eq!(by(id, own), None);
    }
}
