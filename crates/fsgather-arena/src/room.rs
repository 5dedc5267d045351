//! Amount of memory that ranks may share: [`budget`], [`check`].

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use fsgather_core::sys::limits;

use crate::slots::SPREAD;

/// Ranks that share memory take up this fraction of the memory that a machine, or its control group, allows.
const SHARE: u64 = 8;

/// Memory that must be available before more is taken up, as a multiple of the latter.
const SPARE: u64 = 4;

/// Number of open files that a process must be allowed for each rank that shares memory.
const DESCRIPTORS: u64 = 4;

/// Number of bytes that each of `ranks` ranks of a host may share: at most `setting`, and all together at most an eighth of the
/// memory that the machine, or the control group, has; with all of them mapped, an eighth of the addresses that this process
/// may use. Zero if this process cannot raise its limit of open files far enough.
#[must_use]
pub fn budget(setting: u64, ranks: usize) -> u64 {
    let needed = DESCRIPTORS * ranks as u64;
    if limits::raise_open_files(needed).is_some_and(|allowed| allowed < needed) {
        return 0;
    }
    let limits = limit(Path::new("/"))
        .into_iter()
        .chain(limits::address_bytes().map(|addresses| addresses / SPREAD));
    let limit = limits.min().unwrap_or(u64::MAX);
    setting.min(limit / SHARE / (ranks as u64).max(1))
}

/// Returns an error unless `len` bytes more can be taken up without a risk that the system kills a process for it.
pub(crate) fn check(len: u64) -> io::Result<()> {
    match left(Path::new("/")) {
        Some(left) if left / SPARE < len => Err(io::ErrorKind::OutOfMemory.into()),
        _ => Ok(()),
    }
}

/// Returns the memory of the machine, or the lowest limit of this process's control groups.
fn limit(root: &Path) -> Option<u64> {
    let machine = of_machine(root, "MemTotal:");
    let groups = groups(root).into_iter().filter_map(|group| group.limit());
    machine.into_iter().chain(groups).min()
}

/// Returns how much of that memory is available.
fn left(root: &Path) -> Option<u64> {
    let machine = of_machine(root, "MemAvailable:");
    let groups = groups(root).into_iter().filter_map(|group| group.left());
    machine.into_iter().chain(groups).min()
}

/// A control group, with the file names that its version has for the limit, the use, and the reclaimable pages of files.
struct Group {
    path: PathBuf,
    names: [&'static str; 3],
}

impl Group {
    fn limit(&self) -> Option<u64> {
        number(&self.path.join(self.names[0]))
    }

    fn left(&self) -> Option<u64> {
        let used = number(&self.path.join(self.names[1]))?;
        let cache = of_table(&self.path.join("memory.stat"), self.names[2]).unwrap_or(0);
        Some(self.limit()?.saturating_sub(used.saturating_sub(cache)))
    }
}

/// The control groups that this process is in, of both versions.
fn groups(root: &Path) -> Vec<Group> {
    let table = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mounted = root.join("sys/fs/cgroup");
    let mut groups = Vec::new();
    for line in table.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(own)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (mount, names) = if controllers.is_empty() {
            let names = ["memory.max", "memory.current", "inactive_file"];
            (mounted.clone(), names)
        } else if controllers
            .split(',')
            .any(|controller| controller == "memory")
        {
            let names = [
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
            ];
            (mounted.join("memory"), names)
        } else {
            continue;
        };
        let innermost = mount.join(own.trim_start_matches('/'));
        let paths = innermost.ancestors();
        groups.extend(
            paths
                .take_while(|path| path.starts_with(&mount))
                .map(|path| Group {
                    path: path.to_path_buf(),
                    names,
                }),
        );
    }
    groups
}

/// Reads a line of `/proc/meminfo`, which counts in KiB, and returns bytes.
fn of_machine(root: &Path, name: &str) -> Option<u64> {
    of_table(&root.join("proc/meminfo"), name)?.checked_mul(1024)
}

/// Returns the number after a name at the beginning of a line.
fn of_table(path: &Path, name: &str) -> Option<u64> {
    let table = fs::read_to_string(path).ok()?;
    let mut lines = table.lines().map(str::split_whitespace);
    lines
        .find_map(|mut words| (words.next() == Some(name)).then(|| words.next())?)?
        .parse()
        .ok()
}

/// Returns the only number in a file, or `None` if the file says `max`.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with 16 GiB, half of them available, and a process in groups `a/b`.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "proc/meminfo",
            "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n",
        );
        write("proc/self/cgroup", "0::/a/b\n");
        write("sys/fs/cgroup/a/memory.max", "4294967296\n");
        write("sys/fs/cgroup/a/memory.current", "3221225472\n");
        write(
            "sys/fs/cgroup/a/memory.stat",
            "anon 5\ninactive_file 1073741824\n",
        );
        write("sys/fs/cgroup/a/b/memory.max", "max\n");
        root
    }

    #[test]
    fn the_narrowest_limit_counts() {
        let root = machine();
        assert_eq!(limit(root.path()), Some(4 << 30));
        fs::write(
            root.path().join("sys/fs/cgroup/a/b/memory.max"),
            "1073741824",
        )
        .unwrap();
        assert_eq!(limit(root.path()), Some(1 << 30));
        fs::write(root.path().join("proc/self/cgroup"), "0::/\n").unwrap();
        assert_eq!(limit(root.path()), Some(16 << 30));
    }

    #[test]
    fn what_is_left_leaves_out_pages_of_files() {
        let root = machine();
        assert_eq!(left(root.path()), Some(2 << 30));
        fs::write(root.path().join("proc/self/cgroup"), "0::/\n").unwrap();
        assert_eq!(left(root.path()), Some(8 << 30));
    }

    #[test]
    fn groups_of_the_first_version_count_as_well() {
        let root = machine();
        let group = root.path().join("sys/fs/cgroup/memory/job");
        fs::create_dir_all(&group).unwrap();
        let table = "12:cpuset:/job\n7:cpu,memory:/job\n0::/\n";
        fs::write(root.path().join("proc/self/cgroup"), table).unwrap();
        for (name, text) in [
            ("memory.limit_in_bytes", "2147483648\n"),
            ("memory.usage_in_bytes", "1610612736\n"),
            ("memory.stat", "cache 7\ntotal_inactive_file 536870912\n"),
        ] {
            fs::write(group.join(name), text).unwrap();
        }
        assert_eq!(limit(root.path()), Some(2 << 30));
        assert_eq!(left(root.path()), Some(1 << 30));
    }

    #[test]
    fn a_machine_that_says_nothing_limits_nothing() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!((limit(root.path()), left(root.path())), (None, None));
    }

    #[test]
    fn many_ranks_have_less_each() {
        assert!(budget(u64::MAX, 8) <= budget(u64::MAX, 1) / 8);
        assert_eq!(budget(1, 1), 1);
        check(1).unwrap();
        check(1 << 60).unwrap_err();
    }
}
