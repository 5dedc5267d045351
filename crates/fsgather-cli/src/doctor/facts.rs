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

/// What one rank has found out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RankFacts {
    /// Which rank.
    pub(crate) rank: u32,
    /// How many there are.
    pub(crate) world_size: u32,
    /// Its host.
    pub(crate) host: String,
    /// Its process id there.
    pub(crate) pid: u32,
    /// The release of the kernel: `6.1.0-18-amd64`.
    pub(crate) kernel: String,
    /// Who it is and how it knows.
    pub(crate) launcher: LauncherFacts,
    /// Every setting, in the order of the reference page.
    pub(crate) settings: Vec<SettingFact>,
    /// Variables with names like ours that are not known, each with the nearest known name.
    pub(crate) unknown_variables: Vec<String>,
    /// Settings that cannot be used, or not together.
    pub(crate) wrong_settings: Vec<String>,
    /// What this process may use of its host.
    pub(crate) limits: LimitFacts,
    /// How it can be reached.
    pub(crate) network: NetworkFacts,
    /// The directory; none when these settings use none.
    pub(crate) directory: Option<DirectoryFacts>,
}

/// Who a rank is, by which launcher.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LauncherFacts {
    /// The launcher that was believed, as one word: `slurm`, `torchrun`, `fsgather`, `none`.
    pub(crate) family: String,
    /// The rank and how it is known.
    pub(crate) chosen: String,
    /// What was passed over, or was there too.
    pub(crate) notes: Vec<String>,
    /// How many ranks are on this host, if the launcher says so.
    pub(crate) local_size: Option<u32>,
    /// Number of hosts that the launcher names; 0 when it names none.
    pub(crate) hosts: u32,
}

impl LauncherFacts {
    /// Whether the launcher says that ranks run on several hosts.
    pub(crate) fn spans_hosts(&self, world_size: u32) -> bool {
        self.hosts > 1 || self.local_size.is_some_and(|size| size < world_size)
    }
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SettingFact {
    /// The variable that sets it.
    pub(crate) name: String,
    /// What holds.
    pub(crate) value: String,
    /// Who said so: `argument`, a variable, a launcher or `default`.
    pub(crate) origin: String,
}

/// Limits of the process; none where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LimitFacts {
    /// Number of files that it may have open (`ulimit -Hn`).
    pub(crate) open_files: Option<u64>,
    /// How many rank 0 of this world needs.
    pub(crate) open_files_needed: u64,
    /// How long a file may become (`ulimit -f`).
    pub(crate) file_bytes: Option<u64>,
    /// Address space that it may use (`ulimit -v`).
    pub(crate) address_bytes: Option<u64>,
}

/// How a rank can be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NetworkFacts {
    /// Addresses that it would publish, loopback ones last.
    pub(crate) addresses: Vec<String>,
    /// The reason why it cannot publish or listen.
    pub(crate) problem: Option<String>,
}

/// A directory, as one rank sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DirectoryFacts {
    /// The directory, as it was named.
    pub(crate) path: String,
    /// Who named it: `argument`, a variable or `default`.
    pub(crate) origin: String,
    /// The reason why it cannot be used.
    pub(crate) problem: Option<String>,
    /// What did not come back from the file system in reasonable time.
    pub(crate) stuck_at: Option<String>,
    /// The type of file system, by its magic number: `nfs`.
    pub(crate) file_system: Option<String>,
    /// Whether its data is on this host alone: `local`, `network` or `unknown`.
    pub(crate) class: Option<String>,
    /// Where it is mounted from.
    pub(crate) mount: Option<MountFacts>,
    /// Whose it is.
    pub(crate) access: Option<AccessFacts>,
    /// The uid of this process.
    pub(crate) effective_uid: u32,
    /// The uid that the file server shows for its files.
    pub(crate) own_uid: Option<u32>,
    /// Time that it took to write, sync, close and remove a small file.
    pub(crate) write_seconds: Option<f64>,
    /// Room.
    pub(crate) capacity: Option<Capacity>,
    /// What a payload met with, where this rank has tried one.
    pub(crate) payload: Option<PayloadFacts>,
}

impl DirectoryFacts {
    /// Describes where the directory is mounted from, with the options that matter.
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

/// Where a directory is mounted from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MountFacts {
    /// Where it is mounted.
    pub(crate) point: String,
    /// What is mounted there: `server:/export`.
    pub(crate) source: String,
    /// The type: `nfs4`, `fuse.glusterfs`.
    pub(crate) kind: String,
    /// All options.
    pub(crate) options: Vec<String>,
}

impl MountFacts {
    /// Whether it has an option without a value.
    pub(super) fn has(&self, option: &str) -> bool {
        self.options.iter().any(|known| known == option)
    }
}

/// Whose a directory is and who may do what in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccessFacts {
    /// The owner.
    pub(crate) uid: u32,
    /// The group.
    pub(crate) gid: u32,
    /// The permission bits: `2775`.
    pub(crate) mode: String,
    /// Whether anybody may remove what others have in it.
    pub(crate) is_open_to_all: bool,
}

/// What a payload met with that was published for trial, and read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PayloadFacts {
    /// How files get their final names: `rename`, `link` or `direct`.
    pub(crate) publish: String,
    /// Whether hard links can be made; they are not needed where renaming works.
    pub(crate) has_links: bool,
    /// Its length.
    pub(crate) bytes: u64,
    /// Time that it took to write and publish it.
    pub(crate) write_seconds: f64,
    /// How it was read.
    pub(crate) read: Option<ReadFacts>,
    /// The reason why it could not be published or read.
    pub(crate) problem: Option<String>,
}

/// How a payload was read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReadFacts {
    /// Time that it took to open, read and verify it.
    pub(crate) seconds: f64,
    /// Whether it was mapped rather than read into memory.
    pub(crate) mapped: bool,
}

/// What all ranks together have found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WorldFacts {
    /// Time that rank 0 took to meet the others.
    pub(crate) met_seconds: f64,
    /// The results of the calls of `--conformance`; none without it, or if the directory cannot be used.
    pub(crate) conformance: Option<ConformanceFacts>,
}

/// The results of the calls of `--conformance`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ConformanceFacts {
    /// About how many bytes each rank handed over, in turn.
    pub(crate) payload_bytes: [u32; 2],
    /// By each way that messages can go.
    pub(crate) ways: Vec<WayFacts>,
    /// What they have left in the directory.
    pub(crate) left: Vec<String>,
    /// The reason why that is not known.
    pub(crate) left_problem: Option<String>,
}

/// The results of the calls by one way that messages can go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WayFacts {
    /// The way: `tcp` or `markers`.
    pub(crate) carrier: String,
    /// Time that the last rank took to meet the others; none where some have not.
    pub(crate) meeting_seconds: Option<f64>,
    /// Number of calls that were to be made.
    pub(crate) calls: u32,
    /// How many ended on all ranks, with exactly what was handed over.
    pub(crate) right: u32,
    /// The median of the calls that ended, each taking as long as its slowest rank.
    pub(crate) median_seconds: Option<f64>,
    /// The slowest of them.
    pub(crate) slowest_seconds: Option<f64>,
    /// The reason why a rank could not go on.
    pub(crate) problem: Option<String>,
    /// The first such rank.
    pub(crate) problem_rank: Option<u32>,
    /// Whether the settings do not allow this way: then nothing is known of the file system.
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

/// Whether the directory is on a file system of one host, but ranks run on several.
pub(super) fn is_on_one_host_only(ranks: &[RankFacts]) -> bool {
    let first = ranks.first().and_then(|facts| facts.directory.as_ref());
    let is_local = first.is_some_and(|directory| directory.class.as_deref() == Some("local"));
    is_local && hosts(ranks).len() > 1
}
