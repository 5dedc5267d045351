//! A directory that two hosts mount separately, with caches and faults of their own: [`DoubleMount`].

use std::{
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use fsgather_testkit::process;

use super::{Stage, World};

/// Two mounts of one directory through FUSE, each seen at the same path by the processes of one host.
///
/// The mounts end when this is dropped.
pub(crate) struct DoubleMount {
    place: tempfile::TempDir,
    /// Holds one process for each host, which has mounts of its own.
    hosts: Stage,
}

impl DoubleMount {
    /// Two mounts that trust names, attributes and absences for 30 s, as NFS clients do.
    pub(crate) fn new() -> Self {
        Self::with("", 30)
    }

    /// Mounts with these options of `scripts/beds/cachefs.c`, and caches that are trusted for `cache_seconds`.
    pub(crate) fn with(options: &str, cache_seconds: u32) -> Self {
        let place = super::place();
        std::fs::create_dir(place.path().join("shared")).expect("a directory");
        let bed = Self {
            place,
            hosts: Stage::new(),
        };
        let mut command = script();
        command
            .arg("up")
            .env("FUSE_OPTIONS", options)
            .env("FUSE_CACHE", cache_seconds.to_string());
        bed.run(&mut command);
        bed.with_hosts()
    }

    fn with_hosts(mut self) -> Self {
        for host in ["host1", "host2"] {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c"]).args([
                "mount --bind \"$0\" \"$1\" && echo ready && read line",
                self.state().join(host).to_str().expect("text"),
                self.directory().to_str().expect("text"),
            ]);
            let holder = self.hosts.start(&mut command);
            self.hosts.wait_for(holder, "ready");
        }
        self
    }

    /// The shared directory, as ranks see it.
    pub(crate) fn directory(&self) -> PathBuf {
        self.place.path().join("shared")
    }

    /// The directory behind the mounts, without caches and faults.
    pub(crate) fn behind(&self) -> PathBuf {
        self.state().join("back")
    }

    /// The mount of a host, 1 or 2, from outside.
    pub(crate) fn mount(&self, host: u32) -> PathBuf {
        self.state().join(format!("host{host}"))
    }

    /// A world of two ranks, one on each host, that puts payloads into files.
    pub(crate) fn world(&self) -> World {
        World::new(2, &self.directory()).with("FSGATHER_TRANSPORT", "filesys")
    }

    /// A rank, on the host after its own number.
    pub(crate) fn rank(&self, world: &World, rank: u32, script: &str) -> Command {
        world.rank_behind(&self.prefix(rank), rank, script)
    }

    /// The same, running the command-line tool.
    pub(crate) fn tool(&self, world: &World, rank: u32, arguments: &[&str]) -> Command {
        world.tool_behind(&self.prefix(rank), rank, arguments)
    }

    fn prefix(&self, host: u32) -> [String; 4] {
        let holder = self.hosts.pid(host as usize).to_string();
        ["nsenter", "--mount", "--target", &holder].map(str::to_owned)
    }

    /// Sets the rules for calls of a host, 1 or 2, from now on: one rule per line.
    pub(crate) fn rules(&self, host: u32, rules: &str) {
        self.run(script().args(["rules", &host.to_string(), rules]));
    }

    fn state(&self) -> PathBuf {
        self.place.path().join("bed")
    }

    fn run(&self, command: &mut Command) {
        let done = process::output(command.env("BED_STATE", self.state()));
        let done = done.expect("bash");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{command:?}: {said}");
    }
}

impl Drop for DoubleMount {
    fn drop(&mut self) {
        let done = process::output(script().arg("down").env("BED_STATE", self.state()));
        let is_down = done.is_ok_and(|done| done.status.success());
        assert!(
            is_down || thread::panicking(),
            "the mounts cannot be taken down"
        );
    }
}

fn script() -> Command {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/beds/fuse-double.sh");
    let mut command = Command::new("bash");
    command.arg(path).env_remove("FUSE_SIZE_MB");
    command
}
