//! The calls that the ranks of one world have left: [`World`], [`find`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{self, Path, PathBuf},
};

use fsgather_core::{Error, ProcessId, Rank};
use fsgather_store::{calls, layout::rendezvous_path, user_text};
use uuid::Uuid;

use crate::trace::black_box::{BlackBox, Extent};

/// The calls that the ranks of one world have left.
#[derive(Clone, Debug)]
pub struct World {
    /// The world.
    pub communicator: Uuid,
    /// The user whose job it is, if the calls of another user than this one were found.
    pub user: Option<String>,
    /// The calls of each rank, by rank.
    pub boxes: Vec<BlackBox>,
    /// The files that cannot be read or do not count, each with the reason.
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
            user: None,
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

    /// Returns the directory through which its ranks gather, if it is known: the one in which its calls were found,
    /// unless that is the private directory of this host.
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

    /// Returns true if its ranks have ended or failed meanwhile, as the calls of rank 0 show now. A world that ends successfully
    /// leaves no calls.
    #[must_use]
    pub fn is_over(&self, me: &ProcessId) -> bool {
        let root = self.root();
        let now = root.and_then(|root| {
            let now = BlackBox::read(&root.path, Extent::Last, me).ok()?;
            (now.owner == root.owner).then_some(now)
        });
        now.is_none_or(|root| !root.may_run() || root.has_failed())
    }

    /// Returns true if a process of it runs, or may run on a host that cannot be seen from here.
    #[must_use]
    pub fn may_run(&self) -> bool {
        let mut boxes = self.boxes.iter();
        // Processes that cannot be seen from here have ended if a call has failed.
        boxes.clone().any(|one| one.is_running == Some(true))
            || boxes.clone().any(BlackBox::may_run) && !boxes.any(BlackBox::has_failed)
    }

    /// Reads the files of a world, by ascending rank.
    fn read(communicator: Uuid, files: Vec<CallsPath>, me: &ProcessId, extent: Extent) -> Self {
        let mut world = Self::new(communicator);
        let read: Vec<_> = files
            .into_iter()
            .map(|file| {
                let mut found = BlackBox::read(&file.path, extent, me);
                if found.as_ref().is_ok_and(|found| {
                    (found.header.communicator, found.header.rank) != (communicator, file.rank)
                }) {
                    found = Err("it was moved here from another world".to_owned());
                }
                (file.path, found)
            })
            .collect();
        let owner = owner_of(read.iter().filter_map(|(_, found)| found.as_ref().ok()));
        for (path, found) in read {
            world.take(path, found, owner, extent);
        }
        let own = rustix::process::geteuid().as_raw();
        world.user = owner.filter(|owner| *owner != own).map(user_text);
        world
    }

    /// Adds a file, if it counts: another user may have left it by the name of a rank.
    fn take(
        &mut self,
        path: PathBuf,
        found: Result<BlackBox, String>,
        owner: Option<u32>,
        extent: Extent,
    ) {
        let unread = |why: &str| format!("{}: {why}", path.display());
        match (found, owner) {
            (Ok(found), Some(owner)) if found.owner != owner => {
                let (its, owner) = (user_text(found.owner), user_text(owner));
                let why = format!("it is of {its}, but this is a job of {owner}");
                self.unread.push(unread(&why));
            }
            (Ok(found), _) => {
                let damage = found.damage(extent);
                let has_lost_end = damage.as_ref().is_some_and(|damage| damage.has_lost_end);
                self.unread
                    .extend(damage.map(|damage| unread(&damage.text)));
                if !has_lost_end {
                    self.add(found);
                    self.paths.push(path);
                }
            }
            (Err(why), _) => self.unread.push(unread(&why)),
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

/// A file that has the name of a rank's calls.
struct CallsPath {
    rank: Rank,
    path: PathBuf,
}

/// Returns the user whose job it is: the owner of the calls of rank 0, else of most ranks.
fn owner_of<'a>(boxes: impl Iterator<Item = &'a BlackBox>) -> Option<u32> {
    let mut owners: BTreeMap<u32, (bool, usize)> = BTreeMap::new();
    for one in boxes {
        let (has_root, ranks) = owners.entry(one.owner).or_default();
        *has_root |= one.header.rank == Rank::ZERO;
        *ranks += 1;
    }
    let owners = owners.into_iter();
    Some(owners.max_by_key(|(_, claim)| *claim)?.0)
}

/// Returns the directory in which a place is the rendezvous directory, else the place itself.
fn without_rendezvous(place: &Path) -> &Path {
    let is_rendezvous = place.file_name() == rendezvous_path(Path::new("")).file_name();
    place.parent().filter(|_| is_rendezvous).unwrap_or(place)
}

/// Finds the calls that ranks have left, the oldest world first: in these rendezvous directories, and in the private one
/// of this host, from which calls are copied to a file server later. In the private directory it finds the worlds whose
/// ranks gather through these directories, or with `all_here` all worlds.
///
/// # Errors
///
/// [`Error::Storage`] if a directory cannot be listed.
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
    let mut files: BTreeMap<Uuid, Vec<CallsPath>> = BTreeMap::new();
    for (communicator, rank, path) in found {
        let of_world = files.entry(communicator).or_default();
        of_world.push(CallsPath { rank, path });
    }
    let read = |(communicator, files)| {
        let world = World::read(communicator, files, me, extent);
        (communicator, world)
    };
    let mut worlds: BTreeMap<Uuid, World> = files.into_iter().map(read).collect();
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

    #[test]
    fn calls_belong_to_the_owner_of_rank_0_or_of_most_ranks() {
        let owner = |boxes: &[(u32, u32)]| {
            let of = |(rank, owner): &(u32, u32)| {
                let mut left = left(*rank, 1, Vec::new());
                left.owner = *owner;
                left
            };
            let boxes: Vec<BlackBox> = boxes.iter().map(of).collect();
            owner_of(boxes.iter())
        };
        assert_eq!(owner(&[]), None);
        assert_eq!(owner(&[(0, 7), (1, 8), (2, 8)]), Some(7));
        assert_eq!(owner(&[(1, 8), (2, 7), (3, 8)]), Some(8));
    }

    #[test]
    fn calls_of_another_user_in_a_world_do_not_count() {
        const OTHER: u32 = 12_345;
        if !rustix::process::geteuid().is_root() {
            eprintln!("ignored: files of another user take root");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let me = fsgather_store::this_process().unwrap();
        let paths = [0, 1, 2].map(|rank| {
            let header = left(rank, 1, Vec::new()).header;
            let len = crate::trace::record_file::LEN;
            calls::create(place.path(), &header, len).unwrap().1
        });
        std::os::unix::fs::chown(&paths[2], Some(OTHER), None).unwrap();
        let places = [place.path().to_owned()];
        let seen = || find(&places, false, &me, Extent::All).unwrap();
        let worlds = seen();
        let ranks = worlds[0].boxes.iter().map(|one| one.header.rank.get());
        assert_eq!(ranks.collect::<Vec<_>>(), [0, 1]);
        let why = "it is of uid 12345, but this is a job of root";
        assert_eq!(worlds[0].unread, [format!("{}: {why}", paths[2].display())]);
        assert_eq!(worlds[0].user, None);
        for path in &paths {
            std::os::unix::fs::chown(path, Some(OTHER), None).unwrap();
        }
        let worlds = seen();
        assert_eq!(worlds[0].boxes.len(), 3);
        assert_eq!(worlds[0].user.as_deref(), Some("uid 12345"));
    }
}
