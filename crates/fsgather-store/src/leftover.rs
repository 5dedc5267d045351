//! What lies beside gather directories: [`Leftover`] for what was left, or is none of ours, [`Meeting`] for what is in use.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use fsgather_core::ProcessId;
use rustix::fs::FileType;

use crate::{
    board::{Unread, read_record},
    contents::Contents,
    detours::{self, DetourName},
    inventory,
    judgement::Rules,
    layout::RendezvousEntry,
    leftovers::{self, LeftoverKind},
    listing::{self, Facts},
    neighbours::Neighbours,
    process::{Liveness, liveness, user_name},
    record::RecordError,
    survey::{Found, Surveyor, View},
};

/// Something that was left beside gather directories, or that is not ours and lies there.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Leftover {
    /// Where it is.
    pub path: PathBuf,
    /// What it is.
    pub kind: LeftoverKind,
    /// How many bytes it holds; none of a directory that is not ours.
    pub bytes: u64,
    /// How long ago it last changed, by server time.
    pub age: Duration,
    /// Whether it may be removed.
    pub removable: bool,
    /// Why, or why not.
    pub reason: String,
    /// Whom it belongs to.
    pub(crate) uid: u32,
}

/// A record by which ranks of a world that lives find each other.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Meeting {
    /// Where it is.
    pub path: PathBuf,
    /// How many bytes it holds.
    pub bytes: u64,
    /// How long ago it was written, by server time.
    pub age: Duration,
    /// Who has written it, and runs.
    pub writer: ProcessId,
    /// Whether that process has no gather directory here yet: the world forms, or needs none.
    pub is_forming: bool,
    /// Why it stays.
    pub reason: String,
}

impl Surveyor {
    /// Looks at an entry of a rendezvous directory that is no gather directory; none if it is gone, or belongs to one.
    pub(crate) fn look_at_file(
        &self,
        rendezvous: &Path,
        name: &str,
        neighbours: &Neighbours,
        view: View,
    ) -> Option<Found> {
        let path = rendezvous.join(name);
        let leftover = match RendezvousEntry::parse(name) {
            Some(
                RendezvousEntry::Record(_)
                | RendezvousEntry::Unreachable(_)
                | RendezvousEntry::Refusal(_),
            ) => return self.record(&path, view),
            Some(RendezvousEntry::Probe(_)) => {
                let rules = self.rules.for_nameless();
                old_file(&path, LeftoverKind::Probe, view, &rules).filter(is_older_than_a_moment)
            }
            // What belongs to a directory that is there goes with it.
            Some(RendezvousEntry::Condemned { id, .. }) if neighbours.has(id) => None,
            Some(RendezvousEntry::Condemned { .. }) => {
                old_file(&path, LeftoverKind::Mark, view, &self.rules)
            }
            None if leftovers::is_of_python_original(name) => {
                old_file(&path, LeftoverKind::PythonOriginal, view, &self.rules)
            }
            None => match DetourName::parse(name) {
                Some(detour) if neighbours.has(detour.id) => None,
                Some(_) => self.message(rendezvous, &path, view),
                None if inventory::is_lingering(name) => None,
                None => stranger(&path, view),
            },
            // It would have been one, were it a directory.
            Some(RendezvousEntry::Gather(_)) => stranger(&path, view)
                .filter(|found| !found.path.is_dir() || found.path.is_symlink()),
        };
        leftover.map(Found::Leftover)
    }

    /// Judges a message beside the place of the gather directory that it belongs to, which is gone.
    fn message(&self, rendezvous: &Path, path: &Path, view: View) -> Option<Leftover> {
        let rules = self.rules.for_nameless();
        let mut message = old_file(path, LeftoverKind::Message, view, &rules)?;
        if message.kind == LeftoverKind::Message
            && message.uid == view.own.0
            && !detours::may_belong_elsewhere(rendezvous)
        {
            message.removable = true;
            message.reason = "the gather directory that it belongs to is gone".into();
        }
        Some(message)
    }

    pub(crate) fn dist_test(&self, path: &Path, view: View) -> Option<Leftover> {
        let Ok(seen) = Contents::with_table(path, leftovers::dist_test) else {
            return stranger(path, view);
        };
        let facts = (seen.uid, seen.bytes, seen.changed);
        let mut leftover = judge_by_age(path, LeftoverKind::Mmengine, facts, view, &self.rules);
        if let Some(stranger) = seen.stranger {
            leftover.removable = false;
            leftover.reason = format!("it holds {stranger}");
        }
        Some(leftover)
    }

    fn record(&self, path: &Path, view: View) -> Option<Found> {
        let read = read_record(path, view.own);
        let rules = match &read {
            // Nobody needs so long to write one, and none that is torn is ever read.
            Err(Unread::Record(RecordError::Torn)) => self.rules.for_nameless(),
            _ => self.rules,
        };
        let mut leftover = old_file(path, LeftoverKind::Record, view, &rules)?;
        let record = match read {
            Ok(record) => record,
            Err(Unread::Record(RecordError::Torn)) if !is_older_than_a_moment(&leftover) => {
                return None;
            }
            Err(_) => return Some(Found::Leftover(leftover)),
        };
        let writer = record.poster;
        let name = format!("pid {} on {}", writer.pid, writer.host);
        match liveness(&writer, &self.me) {
            Liveness::Running => {
                return Some(Found::Meeting(Meeting {
                    path: leftover.path,
                    bytes: leftover.bytes,
                    age: leftover.age,
                    writer,
                    is_forming: true,
                    reason: format!("its writer, {name}, runs"),
                }));
            }
            Liveness::Gone | Liveness::Replaced => {
                leftover.removable = true;
                leftover.reason = format!("its writer, {name}, has ended");
            }
            // A record shows no life, so that a host that was booted since may be another one.
            Liveness::Rebooted | Liveness::Unknown => {}
        }
        Some(Found::Leftover(leftover))
    }
}

/// Whether it has outlived what lives for a moment only, or is being written: nobody has left that.
fn is_older_than_a_moment(leftover: &Leftover) -> bool {
    const MOMENT: Duration = Duration::from_secs(2);
    leftover.age > MOMENT
}

/// A file that tells nothing of its owner but its age; none if it is gone. What has its name and is no file is a stranger.
pub(crate) fn old_file(
    path: &Path,
    kind: LeftoverKind,
    view: View,
    rules: &Rules,
) -> Option<Leftover> {
    let found = listing::examine_path(path).ok()?;
    if found.kind != FileType::RegularFile {
        return Some(not_ours(path, &found, view));
    }
    let facts = (found.uid, found.len, found.changed);
    Some(judge_by_age(path, kind, facts, view, rules))
}

/// What fsgather does not write, or no more than a link to something; none if it is gone.
fn stranger(path: &Path, view: View) -> Option<Leftover> {
    let found = listing::examine_path(path).ok()?;
    Some(not_ours(path, &found, view))
}

/// Something whose name is no text, as well as that can be shown.
pub(crate) fn nameless_stranger(shown: &Path) -> Leftover {
    Leftover {
        path: shown.to_owned(),
        kind: LeftoverKind::Stranger,
        bytes: 0,
        age: Duration::ZERO,
        removable: false,
        reason: "not written by fsgather: its name is no text".into(),
        uid: 0,
    }
}

fn not_ours(path: &Path, found: &Facts, view: View) -> Leftover {
    let (what, bytes) = match found.kind {
        FileType::Directory => ("directory", 0),
        FileType::RegularFile => ("file", found.len),
        FileType::Symlink => ("link", 0),
        _ => ("special file", 0),
    };
    let user = user_name(found.uid).unwrap_or_else(|| format!("uid {}", found.uid));
    Leftover {
        path: path.to_owned(),
        kind: LeftoverKind::Stranger,
        bytes,
        age: view.age_of(found.changed),
        removable: false,
        reason: format!("not written by fsgather: a {what} of {user}"),
        uid: found.uid,
    }
}

fn judge_by_age(
    path: &Path,
    kind: LeftoverKind,
    (uid, bytes, changed): (u32, u64, SystemTime),
    view: View,
    rules: &Rules,
) -> Leftover {
    let age = view.age_of(changed);
    let (is_old, silence) = rules.silence(age);
    let (removable, reason) = if uid == view.own.0 {
        (is_old, silence)
    } else {
        (false, format!("owned by uid {uid}"))
    };
    Leftover {
        path: path.to_owned(),
        kind,
        bytes,
        age,
        removable,
        reason,
        uid,
    }
}
