//! The facts of a diagnosis: [`RankFacts`], [`WorldFacts`]. They are sent to rank 0, and written as JSON.
//!
//! Times are in seconds, sizes in bytes.

use fsgather_store::Capacity;
use serde::{Deserialize, Serialize};

/// Mount options that messages show; the rest is in the facts.
const MOUNT_OPTIONS: [&str; 15] = [
    "ro",
    "vers=",
    "hard",
    "soft",
    "softerr",
    "noac",
    "actimeo=",
    "acdirmin=",
    "acdirmax=",
    "lookupcache=",
    "nocto",
    "sync",
    "cache=",
    "nolease",
    "proto=",
];

/// The facts that one rank has collected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RankFacts {
    /// Its rank.
    pub(crate) rank: u32,
    /// Number of ranks of the world.
    pub(crate) world_size: u32,
    /// The name of its host.
    pub(crate) host: String,
    /// Its process id on that host.
    pub(crate) pid: u32,
    /// The kernel release: `6.1.0-18-amd64`.
    pub(crate) kernel: String,
    /// The identity of the rank, and its source.
    pub(crate) launcher: LauncherFacts,
    /// Every setting, in the order of the reference page.
    pub(crate) settings: Vec<SettingFact>,
    /// Unknown variables with names like ours, each with the nearest known name.
    pub(crate) unknown_variables: Vec<String>,
    /// Settings that cannot be used, alone or together.
    pub(crate) wrong_settings: Vec<String>,
    /// Resource limits of this process.
    pub(crate) limits: LimitFacts,
    /// Addresses of this rank.
    pub(crate) network: NetworkFacts,
    /// The directory; none if these settings use none.
    pub(crate) directory: Option<DirectoryFacts>,
}

/// The identity of a rank, and the launcher that set it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LauncherFacts {
    /// The launcher that was believed, as one word: `slurm`, `torchrun`, `fsgather`, `none`.
    pub(crate) family: String,
    /// The chosen rank and its source.
    pub(crate) chosen: String,
    /// Sources that were passed over, or were there too.
    pub(crate) notes: Vec<String>,
    /// Number of ranks on this host, if the launcher says so.
    pub(crate) local_size: Option<u32>,
    /// Number of hosts that the launcher names; 0 if it names none.
    pub(crate) hosts: u32,
}

impl LauncherFacts {
    /// Returns true if the launcher says that ranks run on several hosts.
    pub(crate) fn spans_hosts(&self, world_size: u32) -> bool {
        self.hosts > 1 || self.local_size.is_some_and(|size| size < world_size)
    }
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SettingFact {
    /// The variable that sets it.
    pub(crate) name: String,
    /// The value in effect.
    pub(crate) value: String,
    /// The source of the value: `argument`, a variable, a launcher or `default`.
    pub(crate) origin: String,
}

/// Limits of the process; none where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LimitFacts {
    /// Maximum number of open files (`ulimit -Hn`).
    pub(crate) open_files: Option<u64>,
    /// Number of open files that rank 0 of this world needs.
    pub(crate) open_files_needed: u64,
    /// Maximum length of a file (`ulimit -f`).
    pub(crate) file_bytes: Option<u64>,
    /// Maximum size of the address space (`ulimit -v`).
    pub(crate) address_bytes: Option<u64>,
}

/// The addresses of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NetworkFacts {
    /// Addresses that it would publish, loopback addresses last.
    pub(crate) addresses: Vec<String>,
    /// The reason why it cannot publish an address or listen.
    pub(crate) problem: Option<String>,
}

/// A directory, as one rank sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DirectoryFacts {
    /// The directory, as it was named.
    pub(crate) path: String,
    /// The source of the path: `argument`, a variable or `default`.
    pub(crate) origin: String,
    /// The reason why it cannot be used.
    pub(crate) problem: Option<String>,
    /// The file-system operation that did not return in reasonable time.
    pub(crate) stuck_at: Option<String>,
    /// The type of file system, by its magic number: `nfs`.
    pub(crate) file_system: Option<String>,
    /// The location of its data: `local` (this host alone), `network` or `unknown`.
    pub(crate) class: Option<String>,
    /// The mount that it is on.
    pub(crate) mount: Option<MountFacts>,
    /// Its owner and permissions.
    pub(crate) access: Option<AccessFacts>,
    /// The uid of this process.
    pub(crate) effective_uid: u32,
    /// The uid that the file server shows for files of this process.
    pub(crate) own_uid: Option<u32>,
    /// Seconds to write, sync, close and remove a small file.
    pub(crate) write_seconds: Option<f64>,
    /// Free space and inodes.
    pub(crate) capacity: Option<Capacity>,
    /// The results of a trial payload, if this rank has published one.
    pub(crate) payload: Option<PayloadFacts>,
}

impl DirectoryFacts {
    /// Describes the mount of the directory, with the options that matter.
    pub(super) fn mounted(&self, file_system: &str) -> String {
        let Some(mount) = &self.mount else {
            return format!("on {file_system}");
        };
        let is_shown = |option: &&str| {
            MOUNT_OPTIONS
                .iter()
                .any(|shown| option == shown || shown.ends_with('=') && option.starts_with(shown))
        };
        let options = mount.options.iter().map(String::as_str);
        let options: Vec<&str> = options.filter(is_shown).collect();
        let options = match options.as_slice() {
            [] => String::new(),
            options => format!(" ({})", options.join(",")),
        };
        let MountFacts {
            kind,
            source,
            point,
            ..
        } = mount;
        format!("on {kind} from {source}, mounted at {point}{options}")
    }
}

/// The mount that a directory is on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MountFacts {
    /// The mount point.
    pub(crate) point: String,
    /// The mounted source: `server:/export`.
    pub(crate) source: String,
    /// The type: `nfs4`, `fuse.glusterfs`.
    pub(crate) kind: String,
    /// All options.
    pub(crate) options: Vec<String>,
}

impl MountFacts {
    /// Returns true if it has an option without a value.
    pub(super) fn has(&self, option: &str) -> bool {
        self.options.iter().any(|known| known == option)
    }
}

/// The owner and the permissions of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccessFacts {
    /// The owner.
    pub(crate) uid: u32,
    /// The group.
    pub(crate) gid: u32,
    /// The permission bits: `2775`.
    pub(crate) mode: String,
    /// True if any user may remove files of other users in it.
    pub(crate) is_open_to_all: bool,
}

/// The results of publishing and reading a trial payload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PayloadFacts {
    /// The method that gives files their final names: `rename`, `link` or `direct`.
    pub(crate) publish: String,
    /// True if hard links can be made. They are not needed if renaming works.
    pub(crate) has_links: bool,
    /// The length of the payload.
    pub(crate) bytes: u64,
    /// Seconds to write and publish it.
    pub(crate) write_seconds: f64,
    /// The results of reading it.
    pub(crate) read: Option<ReadFacts>,
    /// The reason why it could not be published or read.
    pub(crate) problem: Option<String>,
}

/// The results of reading a payload.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReadFacts {
    /// Seconds to open, read and verify it.
    pub(crate) seconds: f64,
    /// True if it was mapped instead of being read into memory.
    pub(crate) mapped: bool,
}

/// The facts that all ranks together have collected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WorldFacts {
    /// Seconds that rank 0 took to meet the others.
    pub(crate) met_seconds: f64,
    /// The results of the calls of `--conformance`; none without it, or if the directory cannot be used.
    pub(crate) conformance: Option<ConformanceFacts>,
}

/// The results of the calls of `--conformance`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ConformanceFacts {
    /// The payload sizes in bytes, which alternate from call to call.
    pub(crate) payload_bytes: [u32; 2],
    /// The results for each carrier of messages.
    pub(crate) ways: Vec<WayFacts>,
    /// Files that the calls have left in the directory.
    pub(crate) left: Vec<String>,
    /// The reason why the leftovers are unknown.
    pub(crate) left_problem: Option<String>,
}

/// The results of the calls over one carrier of messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WayFacts {
    /// The carrier: `tcp` or `markers`.
    pub(crate) carrier: String,
    /// Seconds that the last rank took to meet the others; none if some ranks have not.
    pub(crate) meeting_seconds: Option<f64>,
    /// Number of calls that were planned.
    pub(crate) calls: u32,
    /// Number of calls that ended on all ranks with exactly the data that was sent.
    pub(crate) right: u32,
    /// Median duration of the calls that ended, each as long as its slowest rank.
    pub(crate) median_seconds: Option<f64>,
    /// Duration of the slowest of these calls.
    pub(crate) slowest_seconds: Option<f64>,
    /// The reason why a rank could not continue.
    pub(crate) problem: Option<String>,
    /// The first such rank.
    pub(crate) problem_rank: Option<u32>,
    /// True if the settings exclude this carrier, so that nothing is known of the file system.
    pub(crate) is_refused: bool,
}

/// The hosts of ranks, each once, in the order of ranks.
pub(super) fn hosts(ranks: &[RankFacts]) -> Vec<&str> {
    let mut hosts: Vec<&str> = Vec::new();
    for facts in ranks {
        if !hosts.contains(&facts.host.as_str()) {
            hosts.push(&facts.host);
        }
    }
    hosts
}

/// The numbers of these ranks.
pub(super) fn numbers(ranks: &[RankFacts]) -> Vec<u32> {
    ranks.iter().map(|facts| facts.rank).collect()
}

/// Returns true if the directory is on a file system of one host, but ranks run on several.
pub(super) fn is_on_one_host_only(ranks: &[RankFacts]) -> bool {
    let first = ranks.first().and_then(|facts| facts.directory.as_ref());
    let is_local = first.is_some_and(|directory| directory.class.as_deref() == Some("local"));
    is_local && hosts(ranks).len() > 1
}
