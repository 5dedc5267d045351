//! The names of ranks and their processes in messages: [`Peer`], [`ProcessId`], [`Missing`].

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    Activity, Rank, duration_text,
    text::{self, plain_line},
};

/// A process of the world: its rank and where it runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Peer {
    /// Its rank.
    pub rank: Rank,
    /// The name of its host.
    #[serde(deserialize_with = "text::name")]
    pub host: String,
    /// Its process id, as seen on its host and in its own pid namespace.
    pub pid: u32,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} on {} (pid {})", self.rank, self.host, self.pid)
    }
}

/// The identity of a process, unique among all hosts and over time.
///
/// A pid alone is reused; together with the start time, the boot and the pid namespace it is not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// The name of the host.
    #[serde(deserialize_with = "text::name")]
    pub host: String,
    /// The kernel's boot id: differs between hosts and between boots of one host.
    pub boot_id: String,
    /// The machine id: stays over a boot.
    pub machine_id: String,
    /// The inode number of the pid namespace; 0 when unknown.
    pub pid_namespace: u64,
    /// The inode number of the mount namespace; 0 when unknown.
    pub mount_namespace: u64,
    /// The process id in that namespace.
    pub pid: u32,
    /// The start time of the process, in clock ticks since boot as its time namespace counts them.
    pub start_time: u64,
    /// The inode number of the time namespace; 0 when unknown, [`Self::NO_TIME_NAMESPACES`] if the
    /// kernel has none.
    pub time_namespace: u64,
}

impl ProcessId {
    /// The time namespace of a process whose kernel has no time namespaces.
    pub const NO_TIME_NAMESPACES: u64 = 1;

    /// Returns true if both processes see the same pids, so that one can watch the other.
    #[must_use]
    pub fn sees_pids_of(&self, other: &Self) -> bool {
        self.boot_id == other.boot_id
            && self.pid_namespace == other.pid_namespace
            && self.pid_namespace != 0
    }

    /// Returns true if both are known to run under one kernel.
    #[must_use]
    pub fn shares_kernel_with(&self, other: &Self) -> bool {
        !self.boot_id.is_empty() && self.boot_id == other.boot_id
    }

    /// Returns true if one clock counts the start times of both, so that they can be compared. Kernels show start times
    /// shifted by the offset of the *reader's* time namespace.
    #[must_use]
    pub fn shares_clock_with(&self, other: &Self) -> bool {
        let (own, theirs) = (self.time_namespace, other.time_namespace);
        // It is enough that one of them knows that the kernel has no such namespaces: it is the same kernel.
        let has_none = [own, theirs].contains(&Self::NO_TIME_NAMESPACES);
        self.boot_id == other.boot_id && (has_none || own == theirs && own != 0)
    }

    /// A name for all processes that see the same pids: one host, or one container on it.
    ///
    /// A process that does not know its pid namespace is on its own.
    #[must_use]
    pub fn host_label(&self) -> u64 {
        let mut hasher = Sha256::new();
        hasher.update(b"fsgather host 1");
        hasher.update(self.boot_id.as_bytes());
        hasher.update(self.pid_namespace.to_le_bytes());
        if self.pid_namespace == 0 {
            hasher.update(self.host.as_bytes());
            hasher.update(self.pid.to_le_bytes());
            hasher.update(self.start_time.to_le_bytes());
        }
        let digest = hasher.finalize();
        u64::from_be_bytes(digest.first_chunk().copied().unwrap_or_default())
    }

    /// Returns true if both processes see the same mounts.
    #[must_use]
    pub fn sees_mounts_of(&self, other: &Self) -> bool {
        self.boot_id == other.boot_id
            && self.mount_namespace == other.mount_namespace
            && self.mount_namespace != 0
    }
}

/// A rank that others wait for, with all that is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The rank.
    pub rank: Rank,
    /// The host and pid of its process; unknown if it never joined.
    pub process: Option<(String, u32)>,
    /// Its last known activity, and the age of that report.
    pub last_seen: Option<(Activity, Duration)>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)?;
        match &self.process {
            None => return f.write_str(" (never joined)"),
            Some((host, pid)) => write!(f, " on {} (pid {pid}", plain_line(host))?,
        }
        if let Some((activity, ago)) = &self.last_seen {
            write!(f, ", last known {activity}, {} ago", duration_text(*ago))?;
        }
        f.write_str(")")
    }
}

/// Lists missing ranks, the first few in full and the rest as a number.
pub(crate) fn list_missing(missing: &[Missing]) -> String {
    const IN_FULL: usize = 16;
    let (in_full, rest) = missing.split_at(missing.len().min(IN_FULL));
    let in_full: Vec<String> = in_full.iter().map(ToString::to_string).collect();
    let in_full = in_full.join(", ");
    if rest.is_empty() {
        return in_full;
    }
    let rest: Vec<String> = rest
        .iter()
        .map(|missing| missing.rank.to_string())
        .collect();
    format!("{in_full} and ranks {}", rest.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Phase;

    #[test]
    fn missing_ranks_are_named_with_what_is_known() {
        let never = Missing {
            rank: Rank::new(5),
            process: None,
            last_seen: None,
        };
        assert_eq!(never.to_string(), "rank 5 (never joined)");
        let silent = Missing {
            rank: Rank::new(3),
            process: Some(("n7".into(), 42)),
            last_seen: Some((Activity::outside(Phase::Computing), Duration::from_secs(12))),
        };
        assert_eq!(
            silent.to_string(),
            "rank 3 on n7 (pid 42, last known computing, 12 s ago)"
        );
    }

    #[test]
    fn processes_that_see_each_other_share_a_label_and_no_others_do() {
        let here = ProcessId {
            boot_id: "boot".into(),
            pid_namespace: 4,
            pid: 1,
            ..ProcessId::default()
        };
        let sibling = ProcessId {
            pid: 2,
            ..here.clone()
        };
        let contained = ProcessId {
            pid_namespace: 5,
            ..here.clone()
        };
        assert_eq!(here.host_label(), sibling.host_label());
        assert_ne!(here.host_label(), contained.host_label());
        let unknown = |pid| ProcessId {
            pid_namespace: 0,
            pid,
            ..here.clone()
        };
        assert_ne!(unknown(1).host_label(), unknown(2).host_label());
    }

    #[test]
    fn a_kernel_is_shared_where_both_are_known_to_have_booted_once() {
        let of = |boot: &str| ProcessId {
            boot_id: boot.into(),
            ..ProcessId::default()
        };
        assert!(of("boot").shares_kernel_with(&of("boot")));
        assert!(!of("boot").shares_kernel_with(&of("other")));
        assert!(!of("").shares_kernel_with(&of("")));
    }

    #[test]
    fn start_times_are_compared_only_where_one_clock_counts_them() {
        let of = |boot: &str, time_namespace| ProcessId {
            boot_id: boot.into(),
            time_namespace,
            ..ProcessId::default()
        };
        let here = of("boot", 7);
        assert!(here.shares_clock_with(&of("boot", 7)));
        assert!(!here.shares_clock_with(&of("boot", 8)));
        assert!(!here.shares_clock_with(&of("boot", 0)), "an old record");
        assert!(!of("boot", 0).shares_clock_with(&of("boot", 0)));
        assert!(!here.shares_clock_with(&of("other", 7)));
        let none = of("boot", ProcessId::NO_TIME_NAMESPACES);
        assert!(none.shares_clock_with(&none) && none.shares_clock_with(&of("boot", 0)));
    }

    #[test]
    fn every_missing_rank_is_listed() {
        let missing: Vec<Missing> = (0..20)
            .map(|rank| Missing {
                rank: Rank::new(rank),
                process: None,
                last_seen: None,
            })
            .collect();
        let text = list_missing(&missing);
        assert!(text.contains("rank 15 (never joined)"), "{text}");
        assert!(text.ends_with("and ranks 16 17 18 19"), "{text}");
    }

    #[test]
    fn mounts_are_shared_on_one_boot_in_one_namespace_that_is_known() {
        let process = |boot: &str, mount_namespace| ProcessId {
            boot_id: boot.into(),
            mount_namespace,
            ..ProcessId::default()
        };
        let here = process("boot", 4);
        assert!(here.sees_mounts_of(&process("boot", 4)));
        assert!(!here.sees_mounts_of(&process("boot", 5)));
        assert!(!here.sees_mounts_of(&process("other", 4)));
        assert!(!process("boot", 0).sees_mounts_of(&process("boot", 0)));
    }
}
