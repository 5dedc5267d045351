//! The result of surveying a directory: [`Survey`].

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
    /// Other entries that were left, and foreign ones in fsgather's own directories.
    pub leftovers: Vec<Leftover>,
    /// Records by which ranks of live worlds find each other. They are not leftovers.
    pub meetings: Vec<Meeting>,
    /// Number of sample files in it, once they are [counted](Self::count_samples).
    pub sample_files: usize,
    /// The rendezvous directory in it, if there is one and it was surveyed as a whole, with the owner of files that this
    /// process makes there.
    pub(crate) rendezvous: Option<(PathBuf, OwnUid)>,
}

impl Survey {
    /// Returns true if there is nothing except an empty rendezvous directory, which is removed once no rank needs it.
    #[must_use]
    pub fn has_only_an_empty_rendezvous(&self) -> bool {
        let is_empty = self.gathers.is_empty() && self.leftovers.is_empty();
        is_empty && self.meetings.is_empty() && self.sample_files == 0 && self.rendezvous.is_some()
    }

    /// Counts sample files. They are results of a program, and never removed.
    pub fn count_samples(&mut self) {
        self.sample_files = SampleDirectory::names(&self.path).map_or(0, |names| names.len());
    }

    /// Returns the number of bytes in all files of ours.
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

/// A gather directory at the time of the survey.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SurveyedGather {
    /// The id in its name.
    pub id: GatherId,
    /// Its path.
    pub path: PathBuf,
    /// The conclusion from the evidence.
    pub judgement: Judgement,
    /// Its owner record, if it can be read.
    pub owner: Option<OwnerRecord>,
    /// Id of the user who owns it, as the server shows it.
    pub uid: u32,
    /// Name of that user if known, else `uid 1001`.
    pub user: String,
    /// Time of its creation, by rank 0's clock.
    pub created: SystemTime,
    /// Time since its creation, by server time.
    pub age: Duration,
    /// Time since its heartbeat last changed, by server time.
    pub beat_age: Option<Duration>,
    /// Number of ranks with payloads in it.
    pub ranks_present: u64,
    /// Number of payload files that it holds.
    pub payload_files: u64,
    /// Number of bytes in payload files.
    pub payload_bytes: u64,
    /// Number of messages between ranks in it. A directory for messages holds no payloads.
    pub messages: u64,
    /// Number of bytes in all its files.
    pub bytes: u64,
    /// Number of its files and directories.
    pub inodes: u64,
    /// Its permission bits.
    pub mode: u32,
    /// True if it could not be opened. Then nothing is counted.
    pub is_closed: bool,
    /// True if it holds nothing and its owner cannot be determined.
    pub(crate) is_nameless: bool,
    /// True if there is evidence against its owner.
    pub(crate) is_suspected: bool,
    /// Entries beside it that belong to it.
    pub(crate) beside: Beside,
    /// Owner and time with which it was examined.
    pub(crate) view: View,
}

impl SurveyedGather {
    pub(crate) fn is_owner_seen_gone(&self, me: &ProcessId) -> bool {
        self.owner.as_ref().is_some_and(|owner| {
            let liveness = liveness(&owner.process, me);
            liveness.has_ended() || liveness == Liveness::Rebooted
        })
    }

    /// Returns true if it does not belong to the user of this process.
    #[must_use]
    pub const fn is_foreign(&self) -> bool {
        self.uid != self.view.own.0
    }

    /// Returns true if it may be removed, perhaps after its heartbeat was watched.
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
