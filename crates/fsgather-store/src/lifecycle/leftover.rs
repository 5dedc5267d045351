//! Things beside gather directories: [`Leftover`] was left or is not of fsgather, a [`Meeting`] is in use.

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
        process::user_text,
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
    /// Number of bytes that it holds; none of a directory that is not ours.
    pub bytes: u64,
    /// Time since it last changed, by server time.
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
    /// Number of bytes that it holds.
    pub bytes: u64,
    /// Time since it was written, by server time.
    pub age: Duration,
    /// Who has written it, and runs.
    pub writer: ProcessId,
    /// Whether that process is not seen to have a gather directory here: the world forms, or needs none. One whose ranks meet
    /// through such a directory has it before.
    pub is_forming: bool,
    /// How many ranks the world will have, where [`Surveyor::reading`](crate::Surveyor::reading) has said how that is told.
    pub world_size: Option<WorldSize>,
    /// The reason why it stays.
    pub reason: String,
}

impl Leftover {
    pub(super) fn explain(&mut self, why: Why) {
        (self.reason, self.gist) = (why.reason, why.gist);
    }
}

/// Whether it has outlived what lives for a moment only, or is being written: nobody has left that.
pub(super) fn is_older_than_a_moment(leftover: &Leftover) -> bool {
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
pub(super) fn stranger(path: &Path, view: View) -> Option<Leftover> {
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
