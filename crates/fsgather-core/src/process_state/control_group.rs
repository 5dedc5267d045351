//! Control groups that freeze their processes, as `docker pause` and Slurm's suspension do: [`is_frozen`].

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns true if the control group of a process, or a group around it, is frozen. `root` is `/` except in tests.
///
/// Only files of the kernel are read, which never hang.
pub(super) fn is_frozen(root: &Path, pid: u32) -> bool {
    let read = |path: &Path| fs::read_to_string(root.join(path)).unwrap_or_default();
    let memberships = read(Path::new(&format!("proc/{pid}/cgroup")));
    let mounts = read(Path::new("proc/self/mountinfo"));
    let mounts: Vec<GroupMount<'_>> = mounts.lines().filter_map(GroupMount::parse).collect();
    memberships.lines().any(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else {
            return false;
        };
        let freezer = if controllers.is_empty() {
            Freezer::Second
        } else if controllers.split(',').any(|name| name == "freezer") {
            Freezer::First
        } else {
            return false;
        };
        let (file, frozen) = match freezer {
            Freezer::First => ("freezer.state", "FROZEN"),
            Freezer::Second => ("cgroup.events", "frozen 1"),
        };
        let mut mounts = mounts.iter().filter(|mount| mount.freezer == freezer);
        mounts.any(|mount| {
            let place = mount.place_of(group);
            let state = place.map(|place| read(&place.join(file)));
            state.is_some_and(|state| state.lines().any(|line| line == frozen))
        })
    })
}

/// The version of control groups that a freezer belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Freezer {
    First,
    Second,
}

/// A mounted hierarchy of control groups that has a freezer.
struct GroupMount<'a> {
    freezer: Freezer,
    /// The group that is mounted.
    group: &'a Path,
    place: &'a Path,
}

impl<'a> GroupMount<'a> {
    /// Reads a line of `mountinfo`.
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (group, place) = (mount.next()?, mount.next()?);
        let mut file_system = file_system.split(' ');
        let freezer = match (file_system.next()?, file_system.nth(1)?) {
            ("cgroup2", _) => Freezer::Second,
            ("cgroup", options) if options.split(',').any(|option| option == "freezer") => {
                Freezer::First
            }
            _ => return None,
        };
        Some(Self {
            freezer,
            group: Path::new(group),
            place: Path::new(place.trim_start_matches('/')),
        })
    }

    /// Returns the directory of a group below the root, if the group is mounted here.
    fn place_of(&self, group: &str) -> Option<PathBuf> {
        let inside = Path::new(group).strip_prefix(self.group).ok()?;
        Some(self.place.join(inside))
    }
}

#[cfg(test)]
#[path = "control_group_tests.rs"]
mod tests;
