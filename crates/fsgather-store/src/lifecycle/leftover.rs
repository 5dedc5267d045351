//! Entries beside gather directories: a [`Leftover`] was left or is foreign, a [`Meeting`] is in use.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use fsgather_core::{ProcessId, WorldSize};
use rustix::fs::FileType;

use crate::{
    lifecycle::{
        judgement::{Rules, Why},
        leftover_kind::LeftoverKind,
        view::View,
    },
    os::{
        listing::{self, Facts},
        process::{Liveness, user_text},
    },
};

/// A file or directory that was left beside gather directories, or a foreign one there.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Leftover {
    /// Its path.
    pub path: PathBuf,
    /// Its kind.
    pub kind: LeftoverKind,
    /// Number of bytes that it holds; zero for a foreign directory.
    pub bytes: u64,
    /// Time since it last changed, by server time.
    pub age: Duration,
    /// True if it may be removed.
    pub removable: bool,
    /// The reason why it may or may not be removed.
    pub reason: String,
    /// The reason without the details that differ between items, so that items of one reason can be counted.
    pub gist: String,
    /// The user who owns it: a name, or `uid 1001`.
    pub user: String,
    /// True if that is not the user of this process.
    pub is_foreign: bool,
    /// The process that wrote it, if it names one.
    pub writer: Option<ProcessId>,
    pub(crate) uid: u32,
}

/// A record by which ranks of a live world find each other.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Meeting {
    /// Its path.
    pub path: PathBuf,
    /// Number of bytes that it holds.
    pub bytes: u64,
    /// Time since it was written, by server time.
    pub age: Duration,
    /// The process that wrote it, which still runs.
    pub writer: ProcessId,
    /// True if that process has no visible gather directory here: the world is forming, or needs no directory. A world whose
    /// ranks meet through a gather directory has it earlier.
    pub is_forming: bool,
    /// Number of ranks of the future world, if [`Surveyor::reading`](crate::Surveyor::reading) has set how it is read.
    pub world_size: Option<WorldSize>,
    /// The reason why it stays.
    pub reason: String,
}

impl Leftover {
    /// Takes note of its writer, which is not seen to run. It may be removed if the writer has ended; after a reboot the host may be another.
    pub(super) fn take_writer(&mut self, writer: ProcessId, liveness: Liveness) {
        if matches!(liveness, Liveness::Gone | Liveness::Replaced) {
            self.removable = true;
            let reason = format!(
                "its writer, pid {} on {}, has ended",
                writer.pid, writer.host
            );
            self.explain(Why::new(reason, "its writer has ended"));
        }
        self.writer = Some(writer);
    }

    pub(super) fn explain(&mut self, why: Why) {
        (self.reason, self.gist) = (why.reason, why.gist);
    }
}

/// Returns true if it is older than files that live only for a moment, or are being written. Younger ones are not leftovers.
pub(super) fn is_older_than_a_moment(leftover: &Leftover) -> bool {
    const MOMENT: Duration = Duration::from_secs(2);
    leftover.age > MOMENT
}

/// Returns a file that reveals nothing about its owner except its age, or `None` if it is gone. An entry of that name that is
/// not a regular file is foreign.
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

/// Returns an entry that fsgather does not write, or a mere link; `None` if it is gone.
pub(super) fn stranger(path: &Path, view: View) -> Option<Leftover> {
    let found = listing::examine_path(path).ok()?;
    Some(not_ours(path, &found, view))
}

/// The gist of all entries that fsgather does not write.
const STRANGE: &str = "not written by fsgather";

/// Returns an entry whose name is not valid text, with as much of the name as can be shown.
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

pub(super) fn judge_by_age(
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
