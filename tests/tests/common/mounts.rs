//! File systems that only some processes see, where the tests may make such: [`Mounted`].

use std::path::{Path, PathBuf};

use super::{Stage, World};

/// A process with mounts of its own, that others can be started beside.
pub(crate) struct Mounted {
    holder: u32,
    directory: PathBuf,
}

impl Mounted {
    /// Mounts a tmpfs with these options over a directory, and runs the commands of `then` in it; says so
    /// and is none where that is not allowed.
    pub(crate) fn over(
        stage: &mut Stage,
        directory: &Path,
        options: &str,
        then: &str,
    ) -> Option<Self> {
        let script = format!(
            "mount -t tmpfs -o {options} none \"$0\" && cd \"$0\" && {then} && echo ready && read line"
        );
        let mut command = std::process::Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", &script])
            .arg(directory);
        if !rustix::process::geteuid().is_root() {
            say("skipped: only root can mount");
            return None;
        }
        let holder = stage.start(&mut command);
        let line = stage.wait_for_where(holder, "ready", |_| true);
        if line != "ready" {
            say(&format!("skipped: cannot mount here: {line}"));
            return None;
        }
        Some(Self {
            holder: stage.pid(holder),
            directory: directory.to_owned(),
        })
    }

    /// A rank that sees these mounts.
    pub(crate) fn rank(&self, world: &World, rank: u32, script: &str) -> std::process::Command {
        let prefix = ["nsenter", "--mount", "--target", &self.holder.to_string()];
        world.rank_behind(&prefix.map(str::to_owned), rank, script)
    }

    /// The directory as these processes see it.
    pub(crate) fn directory(&self) -> PathBuf {
        let holder = self.holder;
        let path = self.directory.strip_prefix("/").expect("absolute");
        Path::new(&format!("/proc/{holder}/root")).join(path)
    }
}

fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}
