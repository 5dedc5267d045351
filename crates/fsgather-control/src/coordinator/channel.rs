//! One communicator as rank 0 sees it: [`Channel`].

use std::collections::{BTreeMap, BTreeSet};

use fsgather_core::{ChannelId, Epoch, Error, Rank, Step};

use super::round::Round;

/// Payloads of a decided call that somebody still reads.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) owners: Vec<Rank>,
    pub(super) readers: BTreeSet<Rank>,
}

/// The undecided and unread calls of one communicator.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) id: ChannelId,
    pub(super) members: Vec<Rank>,
    pub(super) undecided: BTreeMap<Step, Round>,
    pub(super) reading: BTreeMap<Epoch, Reading>,
    pub(super) failure: Option<Error>,
    /// Members that have been told of the failure and have not said that they know.
    pub(super) untold: BTreeSet<Rank>,
}

impl Channel {
    pub(super) fn new(id: ChannelId, members: Vec<Rank>) -> Self {
        Self {
            id,
            members,
            undecided: BTreeMap::new(),
            reading: BTreeMap::new(),
            failure: None,
            untold: BTreeSet::new(),
        }
    }

    /// Whether `rank` has not said yet that it has read all payloads of some decided call.
    pub(super) fn is_read_by(&self, rank: Rank) -> bool {
        let mut reading = self.reading.values();
        reading.any(|reading| reading.readers.contains(&rank))
    }

    /// Notes that `rank` reads no more of `epoch`; the owners whose payloads nobody needs now.
    pub(super) fn finished_reading(&mut self, epoch: Epoch, rank: Rank) -> Vec<Rank> {
        let Some(reading) = self.reading.get_mut(&epoch) else {
            return Vec::new();
        };
        reading.readers.remove(&rank);
        if !reading.readers.is_empty() {
            return Vec::new();
        }
        self.reading
            .remove(&epoch)
            .map(|reading| reading.owners)
            .unwrap_or_default()
    }
}
