//! Messages outside of their proper directory, if that cannot be used: [`Detours`].
//!
//! A message that cannot be written to its directory is written to the rendezvous directory, which other hosts see, and to the
//! private directory of this host, which does not depend on the failing file system. It keeps its number, so that a reader that
//! finds it in both places reads it once.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

use fsgather_core::{GatherId, lock, sys::clock};

use crate::{
    directory::rendezvous_directory,
    layout,
    messages::{message_file, names::MarkerName, sealed},
    os::{
        directory::{self, OwnUid},
        file, listing, remove,
    },
};

/// Interval between two looks on this host.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// `detour-<id>-<message>`: a message that belongs into the gather directory `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DetourName {
    pub(crate) id: GatherId,
    pub(crate) message: MarkerName,
}

impl fmt::Display for DetourName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "detour-{}-{}", self.id, self.message)
    }
}

impl DetourName {
    /// Parses a name; `None` for names that are not ours.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("detour-")?;
        let (at, _) = rest.match_indices('-').nth(1)?;
        let (id, message) = rest.split_at(at);
        Some(Self {
            id: id.parse().ok()?,
            message: MarkerName::parse(message.strip_prefix('-')?)?,
        })
    }
}

/// Returns the names in a rendezvous directory that may be detours: few among thousands of others.
fn detours_in(rendezvous: &Path) -> Vec<String> {
    listing::names_if(rendezvous, &|name| name.starts_with("detour-")).unwrap_or_default()
}

/// Returns those of these names that belong to a gather directory.
pub(crate) fn of_gather(names: &[String], id: GatherId) -> impl Iterator<Item = &String> {
    let belongs = move |name: &&String| DetourName::parse(name).is_some_and(|name| name.id == id);
    names.iter().filter(belongs)
}

/// Returns true if detours in this rendezvous directory may belong to a gather directory in another one: in this host's private
/// one.
pub(crate) fn may_belong_elsewhere(rendezvous: &Path) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    rendezvous == layout::rendezvous_path(&directory::local_path(uid))
}

/// One rank's detours.
#[derive(Debug)]
pub(crate) struct Detours {
    id: GatherId,
    shared: PathBuf,
    own: OwnUid,
    state: Mutex<DetoursState>,
}

#[derive(Debug, Default)]
struct DetoursState {
    left: Vec<PathBuf>,
    /// Names of messages that were read; a message has the same name in all places.
    read: BTreeSet<String>,
    looked: Option<Instant>,
    is_asked: bool,
}

impl Detours {
    /// Detours around the gather directory `id` in a rendezvous directory.
    pub(crate) fn around(id: GatherId, rendezvous: &Path, own: OwnUid) -> Self {
        Self {
            id,
            shared: rendezvous.to_owned(),
            own,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, DetoursState> {
        lock(&self.state)
    }

    /// Writes a message to each place where that is possible. Best effort.
    pub(crate) fn leave(&self, message: MarkerName, body: &[u8]) {
        let name = DetourName {
            id: self.id,
            message,
        };
        let sealed = sealed::seal(body, &self.place_of(&message));
        let uid = rustix::process::geteuid().as_raw();
        let local = directory::default_local(uid)
            .and_then(|made| rendezvous_directory::make_rendezvous(&made));
        for place in local.into_iter().chain([self.shared.clone()]) {
            let path = place.join(name.to_string());
            // The file is never created through a link, which another user may have put in place of the directory since this
            // rank joined.
            let written = listing::hold(&place).and_then(|held| {
                file::write_new_in(held, Path::new(&name.to_string()), 0o600, &sealed, true)
            });
            match written {
                Ok(()) => self.lock().left.push(path),
                Err(error) => {
                    tracing::debug!(path = %path.display(), %error, "no way around either");
                }
            }
        }
    }

    /// Returns the proper place of a message, for which a detour is sealed.
    fn place_of(&self, message: &MarkerName) -> String {
        message_file::place(self.id, &message.to_string())
    }

    /// Makes the next look examine all places.
    pub(crate) fn look_around(&self) {
        self.lock().is_asked = true;
    }

    /// Returns the places to examine now, with the owner that files must have: this host's once in a while, all on request.
    fn due(&self) -> Vec<(PathBuf, OwnUid)> {
        let now = clock::now();
        let mut state = self.lock();
        let is_asked = std::mem::take(&mut state.is_asked);
        let since = state.looked.map(|at| now.saturating_duration_since(at));
        if !is_asked && since.is_some_and(|since| since < LOOK_EVERY) {
            return Vec::new();
        }
        state.looked = Some(now);
        let uid = rustix::process::geteuid().as_raw();
        let here = layout::rendezvous_path(&directory::local_path(uid));
        let mut places = vec![(here, OwnUid(uid))];
        if is_asked {
            places.push((self.shared.clone(), self.own));
        }
        places
    }

    /// Returns wanted messages that are found in the places that are due, each once.
    pub(crate) fn messages(
        &self,
        is_wanted: impl Fn(&MarkerName) -> bool,
    ) -> Vec<(MarkerName, Vec<u8>)> {
        let mut messages = Vec::new();
        for (place, own) in self.due() {
            for name in detours_in(&place) {
                let Some(detour) = DetourName::parse(&name) else {
                    continue;
                };
                let path = place.join(&name);
                if detour.id != self.id
                    || !is_wanted(&detour.message)
                    || self.lock().read.contains(&name)
                {
                    continue;
                }
                match message_file::read(&path, own, &self.place_of(&detour.message)) {
                    Ok(body) => {
                        messages.push((detour.message, body));
                        self.lock().read.insert(name);
                    }
                    Err(why) => tracing::trace!(path = %path.display(), %why, "not readable yet"),
                }
            }
        }
        messages
    }

    /// Removes detours of all ranks, once their gather directory is gone.
    pub(crate) fn remove_all(&self) {
        let uid = rustix::process::geteuid().as_raw();
        let here = layout::rendezvous_path(&directory::local_path(uid));
        for (place, own) in [(here, OwnUid(uid)), (self.shared.clone(), self.own)] {
            let names = detours_in(&place);
            for name in of_gather(&names, self.id) {
                let path = place.join(name);
                if listing::examine_path(&path).is_ok_and(|found| found.uid == own.0) {
                    remove::or_leave(&path);
                }
            }
        }
    }

    /// Removes the detours of this rank: all ranks have read them, or none should.
    pub(crate) fn take_back(&self) {
        for path in std::mem::take(&mut self.lock().left) {
            remove::or_leave(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use fsgather_core::Rank;

    use super::*;
    use crate::directory::owner::tests::record;

    #[test]
    fn names_of_detours_parse_both_ways_and_are_short_enough() {
        let messages = [
            MarkerName::Bulletin {
                number: 7,
                to: None,
                nonce: 9,
            },
            MarkerName::Letter {
                from: Rank::new(3),
                sender: 8,
                number: 12,
                nonce: 1,
            },
        ];
        for message in messages {
            let name = DetourName {
                id: record(1).gather,
                message,
            };
            let text = name.to_string();
            assert!(text.len() <= 100, "{text}");
            assert_eq!(DetourName::parse(&text), Some(name));
        }
        for strange in [
            "detour-",
            "detour-x-y-z",
            "detour-20261121t033336z-00000001-owner",
        ] {
            assert_eq!(DetourName::parse(strange), None, "{strange}");
        }
    }
}
