//! Reads what ranks have left of their calls: [`BlackBox`], [`worlds`].

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use fsgather_core::{ProcessId, Rank};
use fsgather_store::{
    Liveness,
    calls::{self, CallsFile, CallsHeader},
    liveness,
};
use uuid::Uuid;

use crate::record::{CallRecord, Outcome};

/// The calls of one rank.
#[derive(Clone, Debug)]
pub struct BlackBox {
    /// Where they lie.
    pub path: PathBuf,
    /// Whose they are.
    pub header: CallsHeader,
    /// The calls, oldest first.
    pub records: Vec<CallRecord>,
    /// How many places hold neither a call nor nothing: what was being written just then.
    pub torn: usize,
    /// Whether its process runs; none where that cannot be seen from here.
    pub is_running: Option<bool>,
}

impl BlackBox {
    /// Reads what lies in a file.
    #[must_use]
    pub fn of(file: &CallsFile, me: &ProcessId) -> Self {
        let is_running = match liveness(&file.header.process, me) {
            Liveness::Running => Some(true),
            Liveness::Gone | Liveness::Replaced => Some(false),
            Liveness::Rebooted | Liveness::Unknown => None,
        };
        Self::new(file, is_running)
    }

    /// Reads the bytes of a file, wherever they come from; nothing is known of its process.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let file = calls::from_bytes(Path::new(""), bytes).ok()?;
        Some(Self::new(&file, None))
    }

    fn new(file: &CallsFile, is_running: Option<bool>) -> Self {
        let (records, torn) = records(&file.records);
        Self {
            path: file.path.clone(),
            header: file.header.clone(),
            records,
            torn,
            is_running,
        }
    }

    /// The rank.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        self.header.rank
    }

    /// Whether its process may run, as far as can be seen from here.
    #[must_use]
    pub fn may_run(&self) -> bool {
        self.is_running != Some(false)
    }

    /// How many bytes it has handed in and read, in all its calls.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.records
            .last()
            .map_or(0, |last| last.moved_before.saturating_add(last.moved))
    }
}

/// The calls in the part of a file that holds records, and how many of them are torn. Pure.
#[must_use]
pub fn records(bytes: &[u8]) -> (Vec<CallRecord>, usize) {
    let mut torn = 0;
    let (places, _) = bytes.as_chunks::<{ CallRecord::SIZE }>();
    let mut records: Vec<CallRecord> = places
        .iter()
        .filter_map(|place| {
            let mut words = [0; CallRecord::WORDS];
            for (word, bytes) in words.iter_mut().zip(place.as_chunks().0) {
                *word = u64::from_ne_bytes(*bytes);
            }
            let record = CallRecord::from_words(&words);
            torn += usize::from(record.is_none() && words.iter().any(|word| *word != 0));
            record
        })
        .collect();
    records.sort_by_key(|record| record.count);
    (records, torn)
}

/// What the ranks of one world have left.
#[derive(Clone, Debug)]
pub struct World {
    /// The world.
    pub communicator: Uuid,
    /// What its ranks have left, by rank.
    pub boxes: Vec<BlackBox>,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}

impl World {
    /// The job, where it has an id.
    #[must_use]
    pub fn job(&self) -> Option<&str> {
        let mut jobs = self.boxes.iter().map(|one| one.header.job.as_deref());
        jobs.next().flatten()
    }

    /// How many ranks it has.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.boxes.first().map_or(0, |one| one.header.world_size)
    }

    /// Whether a process of it is seen to run, or none can be seen at all.
    #[must_use]
    pub fn may_run(&self) -> bool {
        let runs = |one: &BlackBox| one.is_running == Some(true);
        let has_failed = |one: &BlackBox| {
            let last = one.records.last();
            last.is_some_and(|last| last.outcome == Outcome::Failed)
        };
        // Of processes that cannot be seen from here a failure tells that they have ended.
        self.boxes.iter().any(runs)
            || self.boxes.iter().any(BlackBox::may_run) && !self.boxes.iter().any(has_failed)
    }
}

/// What the ranks of all worlds have left in a rendezvous directory, and in this host's own one what they have left there
/// later; oldest world first.
///
/// # Errors
///
/// When the directory cannot be listed.
pub fn worlds(rendezvous: &Path, me: &ProcessId) -> io::Result<Vec<World>> {
    let mut found = calls::list(rendezvous)?;
    let local = calls::known_local_rendezvous();
    if local != rendezvous {
        let known: Vec<Uuid> = found.iter().map(|(world, ..)| *world).collect();
        // A copy in a directory of a file server is some seconds old.
        let here = calls::list(&local).unwrap_or_default().into_iter();
        found.extend(here.filter(|(world, ..)| known.contains(world)));
    }
    let mut worlds: BTreeMap<Uuid, World> = BTreeMap::new();
    for (communicator, rank, path) in found {
        let world = worlds.entry(communicator).or_insert_with(|| World {
            communicator,
            boxes: Vec::new(),
            unread: Vec::new(),
        });
        let read = calls::read(&path).and_then(|file| {
            let header = &file.header;
            if (header.communicator, header.rank) == (communicator, rank) {
                Ok(file)
            } else {
                Err("it was moved here from another world".into())
            }
        });
        match read {
            Ok(file) => {
                let read = BlackBox::of(&file, me);
                let last = |one: &BlackBox| one.records.last().map_or(0, |last| last.count);
                match world.boxes.iter_mut().find(|one| one.rank() == rank) {
                    Some(known) if last(&read) >= last(known) => *known = read,
                    Some(_) => {}
                    None => world.boxes.push(read),
                }
            }
            Err(why) => world.unread.push(format!("{}: {why}", path.display())),
        }
    }
    let mut worlds: Vec<World> = worlds.into_values().collect();
    for world in &mut worlds {
        world.boxes.sort_by_key(BlackBox::rank);
    }
    worlds.retain(|world| !(world.boxes.is_empty() && world.unread.is_empty()));
    worlds.sort_by_key(|world| world.boxes.iter().map(|one| one.header.began).min());
    Ok(worlds)
}
