//! The result of a look at a directory: [`Survey`].

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use fsgather_core::{GatherId, ProcessId};

use crate::{
    directory::owner::OwnerRecord,
    lifecycle::{
        entries_by_gather::Beside,
        judgement::{Judgement, Removable},
        leftover::{Leftover, Meeting},
        leftover_kind::LeftoverKind,
        view::View,
    },
    os::{
        directory::OwnUid,
        process::{Liveness, liveness},
    },
    samples::SampleDirectory,
};

/// The contents of one directory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Survey {
    /// The directory as it was named.
    pub path: PathBuf,
    /// Its gather directories, oldest first.
    pub gathers: Vec<SurveyedGather>,
    /// What else was left, and what was not written by fsgather where it keeps its own.
    pub leftovers: Vec<Leftover>,
    /// By what ranks of worlds that live find each other: nothing was left there.
    pub meetings: Vec<Meeting>,
    /// Number of files of samples in it, once they are [counted](Self::count_samples).
    pub sample_files: usize,
    /// The rendezvous directory in it, if there is one and it was surveyed as a whole, and the owner that
    /// files of this process have in it.
    pub(crate) rendezvous: Option<(PathBuf, OwnUid)>,
}

impl Survey {
    /// Whether nothing was left there but the directory in which ranks meet, which is removed once nobody needs it.
    #[must_use]
    pub fn has_only_an_empty_rendezvous(&self) -> bool {
        let is_empty = self.gathers.is_empty() && self.leftovers.is_empty();
        is_empty && self.meetings.is_empty() && self.sample_files == 0 && self.rendezvous.is_some()
    }

    /// Counts files of samples. They are results of a program, and never removed.
    pub fn count_samples(&mut self) {
        self.sample_files = SampleDirectory::names(&self.path).map_or(0, |names| names.len());
    }

    /// The bytes in all files that are ours.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        let gathers = self.gathers.iter().map(|gather| gather.bytes);
        let leftovers = self.leftovers.iter();
        let leftovers = leftovers
            .filter(|leftover| leftover.kind != LeftoverKind::Stranger)
            .map(|leftover| leftover.bytes);
        let meetings = self.meetings.iter().map(|meeting| meeting.bytes);
        gathers
            .chain(leftovers)
            .chain(meetings)
            .fold(0, u64::saturating_add)
    }
}

/// A gather directory as it was seen.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SurveyedGather {
    /// The id in its name.
    pub id: GatherId,
    /// Where it is.
    pub path: PathBuf,
    /// What the evidence comes to.
    pub judgement: Judgement,
    /// Its owner record, if it can be read.
    pub owner: Option<OwnerRecord>,
    /// Whom it belongs to, as the server shows it,
    pub uid: u32,
    /// and by name where one is known, else as `uid 1001`.
    pub user: String,
    /// When it was made, by rank 0's clock.
    pub created: SystemTime,
    /// Time since then; now is the server's time.
    pub age: Duration,
    /// Time since its beat last changed, by server time.
    pub beat_age: Option<Duration>,
    /// How many ranks have payloads in it.
    pub ranks_present: u64,
    /// Number of payload files that it holds.
    pub payload_files: u64,
    /// Number of bytes that they hold.
    pub payload_bytes: u64,
    /// Number of messages between ranks that it holds; a directory for messages holds no payloads.
    pub messages: u64,
    /// Number of bytes that all its files hold.
    pub bytes: u64,
    /// Number of files and directories that it consists of.
    pub inodes: u64,
    /// Its permission bits.
    pub mode: u32,
    /// Whether it could not be looked into: then nothing is counted.
    pub is_closed: bool,
    /// Whether it holds nothing, and nobody can tell whose it was.
    pub(crate) is_nameless: bool,
    /// Whether something speaks against its owner.
    pub(crate) is_suspected: bool,
    /// What belongs to it and lies beside it.
    pub(crate) beside: Beside,
    /// How it was looked at.
    pub(crate) view: View,
}

impl SurveyedGather {
    pub(crate) fn is_owner_seen_gone(&self, me: &ProcessId) -> bool {
        self.owner.as_ref().is_some_and(|owner| {
            let liveness = liveness(&owner.process, me);
            liveness.has_ended() || liveness == Liveness::Rebooted
        })
    }

    /// Whether it belongs to another user than this process's.
    #[must_use]
    pub const fn is_foreign(&self) -> bool {
        self.uid != self.view.own.0
    }

    /// Whether it may be removed, perhaps after its beat has been watched.
    #[must_use]
    pub fn is_removable(&self) -> bool {
        self.judgement.removable != Removable::No
    }
}

/// An entry of a rendezvous directory.
pub(crate) enum SurveyedEntry {
    Gather(Box<SurveyedGather>),
    Leftover(Leftover),
    Meeting(Meeting),
}
