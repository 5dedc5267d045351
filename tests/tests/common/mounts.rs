//! File systems that only some processes see: [`Mounted`]. Only root can mount them.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::{Stage, World};

/// A process with mounts of its own; other processes can be started with the same mounts.
pub(crate) struct Mounted {
    /// Holds the process.
    stage: Stage,
    directory: PathBuf,
}

impl Mounted {
    /// Mounts a tmpfs with these options over a directory, and runs the commands of `then` in it.
    pub(crate) fn over(directory: &Path, options: &str, then: &str) -> Self {
        need_root();
        let script = format!(
            "mount -t tmpfs -o {options} none \"$0\" && cd \"$0\" && {then} && echo ready && read line"
        );
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", &script])
            .arg(directory);
        let mut stage = Stage::new();
        let holder = stage.start(&mut command);
        stage.wait_for(holder, "ready");
        let directory = directory.to_owned();
        Self { stage, directory }
    }

    /// A rank that sees these mounts.
    pub(crate) fn rank(&self, world: &World, rank: u32, script: &str) -> Command {
        world.rank_behind(&self.prefix(), rank, script)
    }

    /// The same with a working directory.
    pub(crate) fn rank_at(&self, at: &Path, world: &World, rank: u32, script: &str) -> Command {
        let mut prefix = self.prefix().to_vec();
        prefix.extend(["env", "-C"].map(str::to_owned));
        prefix.push(at.to_str().expect("text").to_owned());
        world.rank_behind(&prefix, rank, script)
    }

    /// A rank that sees these mounts and runs the command-line tool.
    pub(crate) fn tool(&self, world: &World, rank: u32, arguments: &[&str]) -> Command {
        world.tool_behind(&self.prefix(), rank, arguments)
    }

    fn prefix(&self) -> [String; 4] {
        let holder = self.stage.pid(0).to_string();
        ["nsenter", "--mount", "--target", &holder].map(str::to_owned)
    }

    /// The directory as these processes see it.
    pub(crate) fn directory(&self) -> PathBuf {
        let holder = self.stage.pid(0);
        let path = self.directory.strip_prefix("/").expect("absolute");
        Path::new(&format!("/proc/{holder}/root")).join(path)
    }
}

/// Panics unless root runs this; `scripts/prove` checks what a bed needs before it starts it.
#[track_caller]
pub(crate) fn need_root() {
    let is_root = rustix::process::geteuid().is_root();
    assert!(
        is_root,
        "needs root: `scripts/prove` lists what each bed needs"
    );
}
