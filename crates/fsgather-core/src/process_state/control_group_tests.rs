use std::{process::Command, time::Instant};

use fsgather_testkit::{pace, process::spawn};

use super::{
    super::{Stat, state_below, state_of_process},
    *,
};
use crate::ThreadState;

/// A made-up root directory with the process 7, which waits in a system call.
struct Root(tempfile::TempDir);

impl Root {
    fn new(membership: &str, mount: &str) -> Self {
        let root = Self(tempfile::tempdir().unwrap());
        let fields: Vec<String> = (4..=30).map(|field: u32| field.to_string()).collect();
        root.write(
            "proc/7/stat",
            &format!("7 (rank) D 1 {}", fields[1..].join(" ")),
        );
        root.write("proc/7/cgroup", membership);
        root.write(
            "proc/self/mountinfo",
            &format!("31 23 0:28 / /proc rw - proc proc rw\n{mount}\n"),
        );
        root
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn state(&self) -> ThreadState {
        state_below(self.0.path(), 7, 22).unwrap()
    }
}

#[test]
fn process_is_frozen_if_its_control_group_is() {
    const SECOND: &str = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate";
    const BOTH: &str = "41 31 0:38 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw";
    const FIRST: &str = "37 31 0:34 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer";
    const PART: &str = "37 31 0:34 /docker/4f /sys/fs/cgroup/freezer ro - cgroup cgroup rw,freezer";
    let events = ("populated 1\nfrozen 0\n", "populated 1\nfrozen 1\n");
    let states = ("THAWED\n", "FROZEN\n");
    for (membership, mount, file, (thawed, frozen)) in [
        ("0::/job\n", SECOND, "job/cgroup.events", events),
        (
            "9:cpu:/\n0::/job\n",
            BOTH,
            "unified/job/cgroup.events",
            events,
        ),
        (
            "6:freezer:/job\n0::/\n",
            FIRST,
            "freezer/job/freezer.state",
            states,
        ),
        (
            "6:cpu,freezer:/docker/4f\n",
            PART,
            "freezer/freezer.state",
            states,
        ),
        (
            "6:freezer:/docker/4f/a\n",
            PART,
            "freezer/a/freezer.state",
            states,
        ),
    ] {
        let root = Root::new(membership, mount);
        let unfrozen = ThreadState::Waiting {
            call: None,
            on: None,
            is_deaf: true,
        };
        assert_eq!(root.state(), unfrozen, "{file}");
        root.write(&format!("sys/fs/cgroup/{file}"), thawed);
        assert_eq!(root.state(), unfrozen, "{file}");
        root.write(&format!("sys/fs/cgroup/{file}"), frozen);
        assert_eq!(root.state(), ThreadState::Frozen, "{file}");
        // The number of a process that has ended may belong to a frozen one by now.
        assert_eq!(state_below(root.0.path(), 7, 23), Some(ThreadState::Ended));
    }
}

/// A control group that exists for one test.
struct RealGroup(PathBuf);

impl RealGroup {
    fn make(freezer: Freezer) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mut mounts = mounts.lines().filter_map(GroupMount::parse);
        let mount = mounts.find(|mount| mount.freezer == freezer)?;
        let name = format!("fsgather-test-{}", std::process::id());
        let place = Path::new("/").join(mount.place).join(name);
        fs::create_dir(&place).ok()?;
        let group = Self(place);
        let file = group.0.join(freeze_file(freezer).0);
        file.exists().then_some(group)
    }
}

impl Drop for RealGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// The file that freezes a group, and the texts that freeze and thaw it.
const fn freeze_file(freezer: Freezer) -> (&'static str, [&'static str; 2]) {
    match freezer {
        Freezer::First => ("freezer.state", ["FROZEN", "THAWED"]),
        Freezer::Second => ("cgroup.freeze", ["1", "0"]),
    }
}

#[test]
fn kernel_reports_frozen_processes() {
    let mut is_tried = false;
    for freezer in [Freezer::First, Freezer::Second] {
        let Some(group) = RealGroup::make(freezer) else {
            continue;
        };
        is_tried = true;
        let mut child = spawn(Command::new("sleep").arg("600")).unwrap();
        fs::write(group.0.join("cgroup.procs"), child.id().to_string()).unwrap();
        let stat = Stat::read(&format!("/proc/{}/stat", child.id())).unwrap();
        let is_frozen =
            || state_of_process(child.id(), stat.start_time).unwrap() == ThreadState::Frozen;
        assert!(!is_frozen());
        let (file, [freeze, thaw]) = freeze_file(freezer);
        let begun = Instant::now();
        for (text, expected) in [(freeze, true), (thaw, false)] {
            fs::write(group.0.join(file), text).unwrap();
            while is_frozen() != expected {
                assert!(begun.elapsed() < pace::patience(), "{file} {text}");
                pace::rest();
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    if !is_tried {
        eprintln!("ignored: no control group with a freezer can be made here; that needs root");
    }
}
