//! Reads what ranks have left of their calls: [`BlackBox`], [`worlds`].

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
};

use fsgather_core::{Error, ProcessId, Rank};
use fsgather_store::{
    Liveness,
    calls::{self, CallsFile, CallsHeader},
    liveness,
};
use uuid::Uuid;

use crate::trace::{
    record::{CallRecord, Outcome},
    recorder::{KEPT, places_of_last},
};

/// How many calls are looked at where the last ones are enough.
const LAST: u64 = 128;

/// How many records may be missing in a file that is whole, where a process may write to it: the one that is being written.
const BEING_WRITTEN: u64 = 1;

/// How many calls of each rank are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All that are kept.
    All,
    /// The last ones: what it takes to tell what a rank is at.
    Last,
}

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
    /// How many calls had begun, where the file tells that; 0 elsewhere.
    pub(crate) begun: u64,
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
            begun: file.count,
        }
    }

    /// How many of the last calls it has no record of, beyond what may be so in a file that is whole: who goes by the others takes
    /// an older call for what the rank was at.
    #[must_use]
    fn missing_at_end(&self) -> u64 {
        let last = self.records.last().map_or(0, |last| last.count);
        let missing = self.begun.saturating_sub(last);
        // That it has made no call is not to be told of one that has.
        let is_all = self.records.is_empty() && self.is_running != Some(true);
        if missing > self.being_written() || is_all {
            missing
        } else {
            0
        }
    }

    /// How many of its records may be missing although nothing has been damaged.
    const fn being_written(&self) -> u64 {
        match self.is_running {
            Some(false) => 0,
            Some(true) | None => BEING_WRITTEN,
        }
    }

    /// The same of all that are kept, and how many these are.
    fn missing(&self) -> (u64, u64) {
        let last = self.records.last().map_or(0, |last| last.count);
        let kept = last.min(KEPT);
        let within = self
            .records
            .iter()
            .filter(|record| record.count > last - kept)
            .count();
        let missing = kept.saturating_sub(within as u64);
        if missing > self.being_written() {
            (missing, kept)
        } else {
            (0, kept)
        }
    }

    /// The rank, as people call it.
    #[must_use]
    #[expect(
        clippy::misnamed_getters,
        reason = "what it is in its world matters to the file alone"
    )]
    pub const fn rank(&self) -> Rank {
        self.header.called
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
    /// Where all of it lies, copies as well.
    pub paths: Vec<PathBuf>,
}

impl World {
    /// One of which nothing is known yet.
    #[must_use]
    pub const fn new(communicator: Uuid) -> Self {
        Self {
            communicator,
            boxes: Vec::new(),
            unread: Vec::new(),
            paths: Vec::new(),
        }
    }

    /// When the first of its ranks began, in nanoseconds since 1970.
    #[must_use]
    pub fn began(&self) -> Option<u64> {
        self.boxes.iter().map(|one| one.header.began).min()
    }

    /// Takes what a rank has left, ranks in ascending order; of what it has left in several places the latest.
    fn add(&mut self, found: BlackBox) {
        let last = |one: &BlackBox| one.records.last().map_or(0, |last| last.count);
        let known = self.boxes.last_mut();
        match known.filter(|one| one.header.rank == found.header.rank) {
            Some(known) if last(&found) >= last(known) => *known = found,
            Some(_) => {}
            None => self.boxes.push(found),
        }
    }

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

    /// Whether its ranks have ended meanwhile, or failed, as what rank 0 has left tells by now.
    #[must_use]
    pub fn is_over(&self, me: &ProcessId) -> bool {
        let root = self.boxes.iter().find(|one| one.rank() == Rank::ZERO);
        let Some(Ok(file)) = root.map(|root| read(&root.path, Extent::Last)) else {
            // What ends well leaves nothing.
            return true;
        };
        let root = BlackBox::of(&file, me);
        let last = root.records.last();
        !root.may_run() || last.is_some_and(|last| last.outcome == Outcome::Failed)
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

/// What the ranks of all worlds have left in rendezvous directories, and in this host's own one what the same ranks have left
/// there later, or with `all_here` what any have; oldest world first. Each file is read once.
///
/// # Errors
///
/// [`Error::Storage`] when a directory cannot be listed.
pub fn worlds(
    places: &[PathBuf],
    all_here: bool,
    me: &ProcessId,
    extent: Extent,
) -> Result<Vec<World>, Error> {
    let mut found = Vec::new();
    for place in places {
        let told = |error: io::Error| Error::storage("list", place, &error);
        found.extend(calls::list(place).map_err(told)?);
    }
    let local = calls::known_local_rendezvous();
    if !places.contains(&local) {
        let known: BTreeSet<Uuid> = found.iter().map(|(world, ..)| *world).collect();
        // A copy in a directory of a file server is some seconds old.
        let here = calls::list(&local).unwrap_or_default().into_iter();
        found.extend(here.filter(|(world, ..)| all_here || known.contains(world)));
    }
    // Of each rank what lies in several places is side by side.
    found.sort();
    found.dedup();
    let mut worlds: BTreeMap<Uuid, World> = BTreeMap::new();
    for (communicator, rank, path) in found {
        let world = worlds
            .entry(communicator)
            .or_insert_with(|| World::new(communicator));
        match read(&path, extent) {
            Ok(file) if (file.header.communicator, file.header.rank) == (communicator, rank) => {
                let found = BlackBox::of(&file, me);
                let missing = found.missing_at_end();
                if missing > 0 {
                    let which = match (missing, file.count) {
                        (1, 1) => "its only call is".to_owned(),
                        (1, all) => format!("the last of its {all} calls is"),
                        (missing, all) if missing == all => format!("all of its {all} calls are"),
                        (missing, all) => format!("the last {missing} of its {all} calls are"),
                    };
                    let place = path.display();
                    let why = format!("{place}: {which} missing or damaged");
                    world.unread.push(why);
                    continue;
                }
                let (missing, kept) = found.missing();
                // What is written over meanwhile is read at several moments.
                if missing > 0 && extent == Extent::All && found.is_running != Some(true) {
                    let are = if missing == 1 { "is" } else { "are" };
                    world.unread.push(format!(
                        "{}: {missing} of its last {kept} calls, which {are} missing or damaged",
                        path.display()
                    ));
                }
                world.add(found);
                world.paths.push(path);
            }
            Ok(_) => world.unread.push(format!(
                "{}: it was moved here from another world",
                path.display()
            )),
            Err(why) => world.unread.push(format!("{}: {why}", path.display())),
        }
    }
    let mut worlds: Vec<World> = worlds.into_values().collect();
    worlds.retain(|world| !(world.boxes.is_empty() && world.unread.is_empty()));
    worlds.sort_by_key(World::began);
    Ok(worlds)
}

/// Reads a file of calls, or the last of them.
fn read(path: &Path, extent: Extent) -> Result<CallsFile, String> {
    match extent {
        Extent::All => calls::read(path),
        Extent::Last => calls::read_some(path, &|count| places_of_last(count, LAST)),
    }
}
