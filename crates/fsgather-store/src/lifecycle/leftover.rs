//! Examines what lies beside gather directories: [`Leftover`] for what was left, or is none of ours, [`Meeting`] for what is in use.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use fsgather_core::{ProcessId, WorldSize};
use rustix::fs::FileType;

use crate::{
    calls,
    layout::RendezvousEntry,
    lifecycle::{
        contents::Contents,
        entries_by_gather::EntriesByGather,
        inventory::{self, Table},
        judgement::{Rules, Why},
        leftover_kind::{self, LeftoverKind},
        survey::{SurveyedEntry, Surveyor, View},
    },
    messages::detours::{self, DetourName},
    os::{
        listing::{self, Facts},
        process::{Liveness, liveness, user_text},
    },
    rendezvous::{
        record::RecordError,
        record_file::{Unread, read_record},
    },
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
    /// Why, or why not,
    pub reason: String,
    /// and that without what differs from one to the next, so that those that are alike can be counted.
    pub gist: String,
    /// Whom it belongs to: a name, or `uid 1001`.
    pub user: String,
    /// Whether that is another user than this process's.
    pub is_foreign: bool,
    /// Who has written it, where it tells.
    pub writer: Option<ProcessId>,
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
    /// Whether that process is not seen to have a gather directory here: the world forms, or needs none. One whose ranks meet
    /// through such a directory has it before.
    pub is_forming: bool,
    /// How many ranks the world will have, where [`Surveyor::reading`] has said how that is told.
    pub world_size: Option<WorldSize>,
    /// Why it stays.
    pub reason: String,
}

impl Surveyor {
    /// Looks at an entry of a rendezvous directory that is no gather directory; none if it is gone, or belongs to one.
    pub(crate) fn look_at_file(
        &self,
        rendezvous: &Path,
        name: &str,
        entries: &EntriesByGather,
        view: View,
    ) -> Option<SurveyedEntry> {
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
            Some(RendezvousEntry::Calls { .. }) => self.calls(&path, view),
            // They are answered, or given up, within a minute.
            Some(RendezvousEntry::Asked { .. } | RendezvousEntry::Answer { .. }) => {
                let rules = self.rules.for_nameless();
                old_file(&path, LeftoverKind::Message, view, &rules).filter(is_older_than_a_moment)
            }
            // What belongs to a directory that is there goes with it.
            Some(RendezvousEntry::Condemned { id, .. }) if entries.has(id) => None,
            Some(RendezvousEntry::Condemned { .. }) => {
                old_file(&path, LeftoverKind::Mark, view, &self.rules)
            }
            None if leftover_kind::is_of_python_original(name) => {
                old_file(&path, LeftoverKind::PythonOriginal, view, &self.rules)
            }
            None if leftover_kind::is_of_torchrun(name) => {
                self.tree(&path, LeftoverKind::Torchrun, leftover_kind::torchrun, view)
            }
            None => match DetourName::parse(name) {
                Some(detour) if entries.has(detour.id) => None,
                Some(_) => self.message(rendezvous, &path, view),
                None if inventory::is_lingering(name) => None,
                None => stranger(&path, view),
            },
            // It would have been one, were it a directory.
            Some(RendezvousEntry::Gather(_)) => stranger(&path, view)
                .filter(|found| !found.path.is_dir() || found.path.is_symlink()),
        };
        leftover.map(SurveyedEntry::Leftover)
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
            let why = Why::plain("the gather directory that it belongs to is gone");
            message.explain(why);
        }
        Some(message)
    }

    /// The last calls of a rank, which are left once its process has ended.
    pub(crate) fn calls(&self, path: &Path, view: View) -> Option<Leftover> {
        let is_empty = listing::examine_path(path).ok()?.len == 0;
        let rules = if is_empty {
            // Its writer was killed before it wrote who it is.
            self.rules.for_nameless()
        } else {
            self.rules
        };
        let mut leftover = old_file(path, LeftoverKind::Calls, view, &rules)?;
        let Some(writer) = calls::writer(path, view.own) else {
            return Some(leftover);
        };
        let name = format!("pid {} on {}", writer.pid, writer.host);
        match liveness(&writer, &self.me) {
            Liveness::Running => return None,
            Liveness::Gone | Liveness::Replaced => {
                leftover.removable = true;
                let reason = format!("its writer, {name}, has ended");
                leftover.explain(Why::new(reason, "its writer has ended"));
            }
            Liveness::Rebooted | Liveness::Unknown => {}
        }
        leftover.writer = Some(writer);
        Some(leftover)
    }

    /// Judges a directory of others, which tells nothing but its age, by what lies in it.
    pub(crate) fn tree(
        &self,
        path: &Path,
        kind: LeftoverKind,
        table: Table,
        view: View,
    ) -> Option<Leftover> {
        let Ok(seen) = Contents::with_table(path, table) else {
            return stranger(path, view);
        };
        let facts = (seen.uid, seen.bytes, seen.changed);
        let mut leftover = judge_by_age(path, kind, facts, view, &self.rules);
        if let Some(stranger) = seen.stranger {
            leftover.removable = false;
            let reason = format!("it holds {stranger}");
            leftover.explain(Why::new(reason, "it holds what is not of fsgather"));
        }
        Some(leftover)
    }

    pub(crate) fn record(&self, path: &Path, view: View) -> Option<SurveyedEntry> {
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
            Err(_) => return Some(SurveyedEntry::Leftover(leftover)),
        };
        let (writer, body) = (record.poster, record.body);
        let name = format!("pid {} on {}", writer.pid, writer.host);
        match liveness(&writer, &self.me) {
            Liveness::Running => {
                return Some(SurveyedEntry::Meeting(Meeting {
                    path: leftover.path,
                    bytes: leftover.bytes,
                    age: leftover.age,
                    writer,
                    is_forming: true,
                    world_size: (self.world_size)(&body),
                    reason: format!("its writer, {name}, runs"),
                }));
            }
            Liveness::Gone | Liveness::Replaced => {
                leftover.removable = true;
                let reason = format!("its writer, {name}, has ended");
                leftover.explain(Why::new(reason, "its writer has ended"));
            }
            // A record shows no life, so that a host that was booted since may be another one.
            Liveness::Rebooted | Liveness::Unknown => {}
        }
        leftover.writer = Some(writer);
        Some(SurveyedEntry::Leftover(leftover))
    }
}

impl Leftover {
    fn explain(&mut self, why: Why) {
        (self.reason, self.gist) = (why.reason, why.gist);
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

/// What is said of all that fsgather does not write.
const STRANGE: &str = "not written by fsgather";

/// Something whose name is no text, as well as that can be shown.
pub(crate) fn nameless_stranger(shown: &Path) -> Leftover {
    let uid = rustix::process::geteuid().as_raw();
    Leftover {
        path: shown.to_owned(),
        kind: LeftoverKind::Stranger,
        bytes: 0,
        age: Duration::ZERO,
        removable: false,
        reason: "not written by fsgather: its name is no text".into(),
        gist: STRANGE.into(),
        user: user_text(uid),
        is_foreign: false,
        writer: None,
        uid,
    }
}

fn not_ours(path: &Path, found: &Facts, view: View) -> Leftover {
    let (what, bytes) = match found.kind {
        FileType::Directory => ("directory", 0),
        FileType::RegularFile => ("file", found.len),
        FileType::Symlink => ("link", 0),
        _ => ("special file", 0),
    };
    let user = user_text(found.uid);
    Leftover {
        path: path.to_owned(),
        kind: LeftoverKind::Stranger,
        bytes,
        age: view.age_of(found.changed),
        removable: false,
        reason: format!("{STRANGE}: a {what} of {user}"),
        gist: STRANGE.into(),
        is_foreign: found.uid != view.own.0,
        user,
        writer: None,
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
    let user = user_text(uid);
    let is_foreign = uid != view.own.0;
    let (removable, why) = if is_foreign {
        (false, Why::plain(format!("owned by {user}")))
    } else {
        (is_old, silence)
    };
    Leftover {
        path: path.to_owned(),
        kind,
        bytes,
        age,
        removable,
        reason: why.reason,
        gist: why.gist,
        user,
        is_foreign,
        writer: None,
        uid,
    }
}
