//! The facts of a diagnosis, as plain data that travels to rank 0 and into JSON: [`RankFacts`], [`WorldFacts`].
//!
//! Nothing is judged here. Times are in seconds, sizes in bytes.

use fsgather_store::Capacity;
use serde::{Deserialize, Serialize};

/// What a survey of a directory that is slow to list is stuck at: then it can be used all the same.
pub(crate) const SURVEYING: &str = "looking for what earlier runs have left";

/// What one rank has found out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RankFacts {
    /// Which rank.
    pub rank: u32,
    /// How many there are.
    pub world_size: u32,
    /// Its host.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// Who it is and how it knows.
    pub launcher: LauncherFacts,
    /// Every setting, in the order of the reference page.
    pub settings: Vec<SettingFact>,
    /// Variables with names like ours that are not known, each with the nearest known name.
    pub unknown_variables: Vec<String>,
    /// Settings that cannot be used, or not together.
    pub wrong_settings: Vec<String>,
    /// What this process may use of its host.
    pub limits: LimitFacts,
    /// How it can be reached.
    pub network: NetworkFacts,
    /// The directory; none when these settings use none.
    pub directory: Option<DirectoryFacts>,
    /// What came of trying together; none when ranks have not met.
    pub trial: Option<TrialFacts>,
}

/// Who a rank is, by which launcher.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherFacts {
    /// The launcher that was believed, as one word: `slurm`, `torchrun`, `fsgather`, `none`.
    pub family: String,
    /// The rank and how it is known.
    pub chosen: String,
    /// What was passed over, or was there too.
    pub notes: Vec<String>,
    /// How many ranks are on this host, if the launcher says so.
    pub local_size: Option<u32>,
    /// How many hosts the launcher names; 0 when it names none.
    pub hosts: u32,
}

impl LauncherFacts {
    /// Whether the launcher says that ranks run on several hosts.
    pub(super) fn spans_hosts(&self, world_size: u32) -> bool {
        self.hosts > 1 || self.local_size.is_some_and(|size| size < world_size)
    }
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingFact {
    /// The variable that sets it.
    pub name: String,
    /// What holds.
    pub value: String,
    /// Who said so: `argument`, a variable, a launcher or `default`.
    pub origin: String,
}

/// Limits of the process; none where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitFacts {
    /// How many files it may have open (`ulimit -n`).
    pub open_files: Option<u64>,
    /// How many rank 0 of this world needs.
    pub open_files_needed: u64,
    /// How long a file may become (`ulimit -f`).
    pub file_bytes: Option<u64>,
    /// How much address space it may use (`ulimit -v`).
    pub address_bytes: Option<u64>,
}

/// How a rank can be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkFacts {
    /// Addresses that it would publish, loopback ones last.
    pub addresses: Vec<String>,
    /// Why it cannot publish or listen.
    pub problem: Option<String>,
    /// Why none of the ports asked for can be listened on.
    pub ports_taken: Option<String>,
}

/// A directory, as one rank sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DirectoryFacts {
    /// The directory, as it was named.
    pub path: String,
    /// Who named it: `argument`, a variable or `default`.
    pub origin: String,
    /// Why it cannot be used.
    pub problem: Option<String>,
    /// What did not come back from the file system in reasonable time.
    pub stuck_at: Option<String>,
    /// The type of file system, by its magic number: `nfs`.
    pub file_system: Option<String>,
    /// Whether its data is on this host alone: `local`, `network` or `unknown`.
    pub class: Option<String>,
    /// Where it is mounted from.
    pub mount: Option<MountFacts>,
    /// Whose it is.
    pub access: Option<AccessFacts>,
    /// The uid of this process.
    pub effective_uid: u32,
    /// The uid that the file server shows for its files.
    pub own_uid: Option<u32>,
    /// How long it took to write, sync, close and remove a small file.
    pub write_seconds: Option<f64>,
    /// How far the file server's clock is ahead of this host's.
    pub server_clock: Option<ClockFact>,
    /// Room.
    pub capacity: Option<Capacity>,
    /// What a payload met with, where this rank has tried one.
    pub payload: Option<PayloadFacts>,
    /// What earlier runs have left, where this rank has looked.
    pub leftovers: Option<LeftoverFacts>,
}

impl DirectoryFacts {
    /// Whether the file system does not answer where a job could not do without an answer.
    pub(super) fn is_stuck(&self) -> bool {
        let step = self.stuck_at.as_deref();
        step.is_some_and(|step| step != SURVEYING)
    }
}

/// Where a directory is mounted from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountFacts {
    /// Where it is mounted.
    pub point: String,
    /// What is mounted there: `server:/export`.
    pub source: String,
    /// The type: `nfs4`, `fuse.glusterfs`.
    pub kind: String,
    /// All options.
    pub options: Vec<String>,
}

/// Whose a directory is and who may do what in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessFacts {
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The permission bits: `2775`.
    pub mode: String,
    /// Whether anybody may remove what others have in it.
    pub is_open_to_all: bool,
}

/// A difference between two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockFact {
    /// How far the other one is ahead.
    pub ahead_seconds: f64,
    /// By how much that may be wrong, either way.
    pub uncertainty_seconds: f64,
}

/// What a payload met with that was published for trial, and read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PayloadFacts {
    /// How files get their final names: `rename`, `link` or `direct`.
    pub publish: String,
    /// Whether hard links can be made; they are not needed where renaming works.
    pub has_links: bool,
    /// Its length.
    pub bytes: u64,
    /// How long it took to write and publish it.
    pub write_seconds: f64,
    /// How it was read.
    pub read: Option<ReadFacts>,
    /// Why it could not be published or read.
    pub problem: Option<String>,
}

/// How a payload was read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadFacts {
    /// How long it took to open, read and verify it.
    pub seconds: f64,
    /// Whether it was mapped rather than read into memory.
    pub mapped: bool,
}

/// What lies in a directory that was gathered through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftoverFacts {
    /// Gather directories that are in use.
    pub live: u64,
    /// Those of which nothing is proved.
    pub unknown: u64,
    /// What `fsgather clean` would remove: gather directories and files.
    pub removable: u64,
    /// How many bytes that would free.
    pub removable_bytes: u64,
}

/// What came of trying the directory and the network together, on one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TrialFacts {
    /// Whether this rank stands for all that see the same mounts.
    pub is_prober: bool,
    /// Why it cannot use what rank 0 has made in the directory.
    pub problem: Option<String>,
    /// How long after it was told it has seen a new file of rank 0; none if it was not seen.
    pub saw_rank_0_seconds: Option<f64>,
    /// How long after it was told rank 0 has seen a new file of this rank.
    pub seen_by_rank_0_seconds: Option<f64>,
    /// How it has read a payload of rank 0.
    pub read: Option<ReadFacts>,
    /// Why it could not.
    pub read_problem: Option<String>,
    /// What came of trying rank 0's addresses; none where that was not tried from here.
    pub reach: Option<Vec<ReachFact>>,
    /// How far this host's clock is ahead of that of rank 0's host.
    pub clock: Option<ClockFact>,
}

/// What came of trying one address of rank 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReachFact {
    /// The address.
    pub address: String,
    /// How long it took to be let in.
    pub seconds: Option<f64>,
    /// Why that did not come about.
    pub problem: Option<String>,
}

/// What all ranks together have found out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorldFacts {
    /// How long rank 0 took to meet the others.
    pub met_seconds: f64,
    /// What carries messages: `tcp` or `markers`.
    pub carrier: String,
    /// The directory that was tried: rank 0's.
    pub directory: Option<String>,
    /// Why rank 0 could not make a gather directory in it.
    pub problem: Option<String>,
    /// Whether all ranks see the same mounts, and so the same directory.
    pub sees_same_mounts: bool,
    /// Ranks that do not see what rank 0 writes, or are not seen by it, each for all that see the same mounts.
    pub blind: Vec<u32>,
    /// How that shows.
    pub blind_reason: Option<String>,
    /// Whether addresses were tried at another port than a world's, since all of those were taken.
    pub tried_other_port: bool,
    /// What calls in earnest have come to; none where that was not asked for, or the directory cannot be used.
    pub conformance: Option<ConformanceFacts>,
}

/// What calls in earnest in the directory have come to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConformanceFacts {
    /// About how many bytes each rank handed over, in turn.
    pub payload_bytes: [u32; 2],
    /// By each way that messages can go.
    pub ways: Vec<WayFacts>,
    /// What they have left in the directory.
    pub left: Vec<String>,
    /// Why it is not known whether they have.
    pub left_problem: Option<String>,
}

/// What calls in earnest have come to by one way that messages can go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WayFacts {
    /// The way: `tcp` or `markers`.
    pub carrier: String,
    /// How long the last rank took to meet the others; none where some have not.
    pub meeting_seconds: Option<f64>,
    /// How many calls were to be made.
    pub calls: u32,
    /// How many ended on all ranks, with exactly what was handed over.
    pub right: u32,
    /// The median of the calls that ended, each taking as long as its slowest rank.
    pub median_seconds: Option<f64>,
    /// The slowest of them.
    pub slowest_seconds: Option<f64>,
    /// Why a rank could not go on.
    pub problem: Option<String>,
    /// The first such rank.
    pub problem_rank: Option<u32>,
    /// Whether it is settings that keep ranks from this way: then nothing is known of the file system.
    pub is_refused: bool,
}
