//! The calls that the ranks of one world have left: [`World`], [`find`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{self, Path, PathBuf},
};

use fsgather_core::{Error, ProcessId, Rank};
use fsgather_store::{calls, layout::rendezvous_path};
use uuid::Uuid;

use crate::trace::black_box::{BlackBox, Extent};

/// The calls that the ranks of one world have left.
#[derive(Clone, Debug)]
pub struct World {
    /// The world.
    pub communicator: Uuid,
    /// The calls of each rank, by rank.
    pub boxes: Vec<BlackBox>,
    /// The files that cannot be read, each with the reason.
    pub unread: Vec<String>,
    /// All files, copies included.
    pub paths: Vec<PathBuf>,
}

impl World {
    /// Returns a world without calls.
    #[must_use]
    pub const fn new(communicator: Uuid) -> Self {
        Self {
            communicator,
            boxes: Vec::new(),
            unread: Vec::new(),
            paths: Vec::new(),
        }
    }

    /// Returns the time when the first of its ranks began, in nanoseconds since 1970.
    #[must_use]
    pub fn began(&self) -> Option<u64> {
        self.boxes.iter().map(|one| one.header.began).min()
    }

    /// Returns the id of the job, if it has one.
    #[must_use]
    pub fn job(&self) -> Option<&str> {
        self.boxes.first()?.header.job.as_deref()
    }

    /// Returns the directory that its ranks gather through, if it is known: the one in which its calls were found, unless that is the
    /// private directory of this host.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        let local = calls::known_local_rendezvous();
        let mut places = self.paths.iter().filter_map(|path| path.parent());
        let found = places.clone().find(|place| *place != local);
        found
            .map(without_rendezvous)
            .or_else(|| self.recorded_directories().next())
            .or_else(|| places.next().map(without_rendezvous))
    }

    /// Returns the directories that its ranks have recorded.
    fn recorded_directories(&self) -> impl Iterator<Item = &Path> {
        let boxes = self.boxes.iter();
        boxes.filter_map(|one| one.header.directory.as_deref().map(Path::new))
    }

    /// Returns the number of its ranks.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.boxes.first().map_or(0, |one| one.header.world_size)
    }

    /// Returns the calls of its rank 0, which answers questions.
    #[must_use]
    pub fn root(&self) -> Option<&BlackBox> {
        let mut boxes = self.boxes.iter();
        boxes.find(|one| one.header.rank == Rank::ZERO)
    }

    /// Whether its ranks have ended or failed meanwhile, as the calls of rank 0 show now. A world that ends well leaves none.
    #[must_use]
    pub fn is_over(&self, me: &ProcessId) -> bool {
        let root = self.root();
        let now = root.and_then(|root| BlackBox::read(&root.path, Extent::Last, me).ok());
        now.is_none_or(|root| !root.may_run() || root.has_failed())
    }

    /// Whether a process of it runs, or may run where none can be seen.
    #[must_use]
    pub fn may_run(&self) -> bool {
        let mut boxes = self.boxes.iter();
        // Processes that cannot be seen from here have ended if a call has failed.
        boxes.clone().any(|one| one.is_running == Some(true))
            || boxes.clone().any(BlackBox::may_run) && !boxes.any(BlackBox::has_failed)
    }

    /// Reads one file, of this rank; ranks come in ascending order.
    fn read(&mut self, rank: Rank, path: PathBuf, me: &ProcessId, extent: Extent) {
        let unread = |why: &str| format!("{}: {why}", path.display());
        match BlackBox::read(&path, extent, me) {
            Ok(found)
                if (found.header.communicator, found.header.rank) != (self.communicator, rank) =>
            {
                self.unread
                    .push(unread("it was moved here from another world"));
            }
            Ok(found) => {
                let damage = found.damage(extent);
                let has_lost_end = damage.as_ref().is_some_and(|damage| damage.has_lost_end);
                self.unread
                    .extend(damage.map(|damage| unread(&damage.text)));
                if !has_lost_end {
                    self.add(found);
                    self.paths.push(path);
                }
            }
            Err(why) => self.unread.push(unread(&why)),
        }
    }

    /// Adds the calls of a rank; if the rank has left them in several places, the latest remain.
    fn add(&mut self, found: BlackBox) {
        let last = |one: &BlackBox| one.records.last().map_or(0, |last| last.count);
        let known = self.boxes.last_mut();
        match known.filter(|one| one.header.rank == found.header.rank) {
            Some(known) if last(&found) >= last(known) => *known = found,
            Some(_) => {}
            None => self.boxes.push(found),
        }
    }
}

/// Returns the directory in which a place is the rendezvous directory, else the place itself.
fn without_rendezvous(place: &Path) -> &Path {
    let is_rendezvous = place.file_name() == rendezvous_path(Path::new("")).file_name();
    place.parent().filter(|_| is_rendezvous).unwrap_or(place)
}

/// Finds the calls that ranks have left, the oldest world first: in these rendezvous directories, and in the private one of this host,
/// from which calls are copied to a file server later. There it finds the worlds whose ranks gather through these directories, or
/// with `all_here` all of them.
///
/// # Errors
///
/// [`Error::Storage`] when a directory cannot be listed.
pub fn find(
    places: &[PathBuf],
    all_here: bool,
    me: &ProcessId,
    extent: Extent,
) -> Result<Vec<World>, Error> {
    let mut found = Vec::new();
    for place in places {
        let failed = |error: io::Error| Error::storage("list", place, &error);
        match calls::list(place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            listed => found.extend(listed.map_err(failed)?),
        }
    }
    let mut wanted: BTreeSet<Uuid> = BTreeSet::new();
    let local = calls::known_local_rendezvous();
    let shared = found
        .iter()
        .filter(|(.., path)| path.parent() != Some(&local));
    wanted.extend(shared.map(|(world, ..)| *world));
    if !places.contains(&local) {
        found.extend(calls::list(&local).unwrap_or_default());
    }
    // The files of one rank in several places follow each other.
    found.sort();
    found.dedup();
    let mut worlds: BTreeMap<Uuid, World> = BTreeMap::new();
    for (communicator, rank, path) in found {
        let world = worlds.entry(communicator);
        let world = world.or_insert_with(|| World::new(communicator));
        world.read(rank, path, me, extent);
    }
    let named: Vec<PathBuf> = places
        .iter()
        .flat_map(|place| names(without_rendezvous(place)))
        .collect();
    let is_named = |directory: &Path| named.iter().any(|named| named == directory);
    let is_local_named = places.contains(&local);
    worlds.retain(|communicator, world| {
        let mut recorded = world.recorded_directories().peekable();
        let is_without = recorded.peek().is_none();
        let is_wanted = all_here || wanted.contains(communicator);
        let is_read = !(world.boxes.is_empty() && world.unread.is_empty());
        is_read && (is_wanted || is_without && is_local_named || recorded.any(is_named))
    });
    let mut worlds: Vec<World> = worlds.into_values().collect();
    worlds.sort_by_key(World::began);
    Ok(worlds)
}

/// Returns the names that ranks may have recorded for a directory.
fn names(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let real = fs::canonicalize(directory).ok();
    [path::absolute(directory).ok(), real].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::timeline::tests::left;

    #[test]
    fn a_world_is_in_the_directory_where_its_calls_were_found() {
        let local = calls::known_local_rendezvous().join("calls");
        let world = |paths: &[&Path], recorded: Option<&str>| {
            let mut world = World::new(Uuid::nil());
            world.paths = paths.iter().map(PathBuf::from).collect();
            let mut left = left(0, 1, Vec::new());
            left.header.directory = recorded.map(str::to_owned);
            world.boxes.push(left);
            world.directory().map(Path::to_owned)
        };
        let shared = rendezvous_path(Path::new("/mnt/b")).join("calls");
        assert_eq!(
            world(&[&local, &shared], Some("/mnt/a")),
            Some("/mnt/b".into())
        );
        assert_eq!(world(&[&local], Some("/mnt/a")), Some("/mnt/a".into()));
        let private = without_rendezvous(local.parent().unwrap()).to_owned();
        assert_eq!(world(&[&local], None), Some(private));
        assert_eq!(
            world(&[Path::new("/saved/calls")], None),
            Some("/saved".into())
        );
        assert_eq!(world(&[], None), None);
    }
}
