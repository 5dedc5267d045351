//! Processes with a memory limit: [`MemoryLimit`].

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
};

/// A control group, which is removed on drop; it must have no process by then.
pub(crate) struct MemoryLimit {
    group: PathBuf,
    peak: &'static str,
}

impl MemoryLimit {
    /// Makes a group of this name with a limit in bytes.
    pub(crate) fn new(name: &str, bytes: u64) -> Self {
        let name = format!("fsgather-test-{}-{name}", std::process::id());
        let kinds = [
            ("/sys/fs/cgroup", "memory.max", "memory.peak"),
            (
                "/sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.max_usage_in_bytes",
            ),
        ];
        for (root, limit, peak) in kinds {
            let group = Path::new(root).join(&name);
            // A directory that is not a control group gets no files on its own.
            if !Path::new(root).join("cgroup.procs").exists() || fs::create_dir(&group).is_err() {
                continue;
            }
            let made = Self { group, peak };
            let limit = made.group.join(limit);
            if limit.exists() && fs::write(limit, bytes.to_string()).is_ok() {
                return made;
            }
        }
        panic!("needs control groups that limit memory");
    }

    /// The words before a command that put it into the group; the command replaces them.
    pub(crate) fn enter(&self) -> Vec<String> {
        let group = self.group.join("cgroup.procs");
        let enter = format!("echo $$ >{} && exec \"$0\" \"$@\"", group.display());
        vec!["sh".into(), "-c".into(), enter]
    }

    /// Maximum number of bytes that were used, if known.
    pub(crate) fn peak(&self) -> u64 {
        let peak = fs::read_to_string(self.group.join(self.peak)).unwrap_or_default();
        peak.trim().parse().unwrap_or_default()
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let removed = fs::remove_dir(&self.group);
        assert!(
            removed.is_ok() || thread::panicking(),
            "{} stays: {removed:?}",
            self.group.display()
        );
    }
}
