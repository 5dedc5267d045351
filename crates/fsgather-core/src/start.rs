//! The process that started a rank, which distinguishes jobs that nothing else does: [`Start`].

use serde::{Deserialize, Serialize};

use crate::ProcessId;

/// The process that started the ranks: a launcher's daemon, a script, a shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Starter {
    /// Its pid, in the pid namespace of the ranks.
    pub pid: u32,
    /// Its start time, in clock ticks since boot.
    pub start_time: u64,
}

/// The process that started a rank, and the session of the rank.
///
/// It is the only difference between two jobs without an id. It distinguishes only ranks of one host: it means nothing
/// to processes that see other pids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Start {
    /// The nearest process above the rank that does not have its rank number; none once that process has ended.
    pub starter: Option<Starter>,
    /// The session that the rank's process belongs to, by the pid of its leader, or of the topmost process of
    /// it in this pid namespace; 0 when unknown.
    pub session: u32,
    /// True if all ranks of the job that run on this host come from `starter`: a launcher's own process, or an ancestor
    /// of all of them. Processes of another such start on this host then belong to another job, even if it has the same
    /// name.
    pub is_whole: bool,
}

/// The relation between the starts of two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinship {
    /// They come from one start.
    Same,
    /// They come from different ones, such as two terminals.
    Foreign,
    /// They come from different ones, each of which has started all ranks of its job on this host: they are two jobs.
    Apart,
    /// The relation is unknown: they do not see the same pids, or a starter and a session are unknown.
    Unknown,
}

impl Kinship {
    /// Returns true for two processes of two jobs that have found each other. If the job `is_named`, processes of
    /// several starts belong to one job, unless each of the starts has all ranks of its job.
    #[must_use]
    pub const fn is_of_another_job(self, is_named: bool) -> bool {
        match self {
            Self::Same | Self::Unknown => false,
            Self::Foreign => !is_named,
            Self::Apart => true,
        }
    }
}

impl Start {
    /// Returns true if two processes have one starter that existed when both looked. A common session may have had several
    /// starters.
    #[must_use]
    pub fn is_surely_that_of(&self, own: &ProcessId, other: &Self, its: &ProcessId) -> bool {
        let are_known = self.starter.is_some() && other.starter.is_some();
        are_known && self.kinship(own, other, its) == Kinship::Same
    }

    /// Compares the origins of two processes.
    ///
    /// ```
    /// use fsgather_core::{Kinship, ProcessId, Start, Starter};
    ///
    /// let process = ProcessId { boot_id: "b".into(), pid_namespace: 1, ..Default::default() };
    /// let by = |pid| Start { starter: Some(Starter { pid, start_time: 7 }), session: 3, is_whole: false };
    /// let compare = |one: Start, other: Start| one.kinship(&process, &other, &process);
    /// assert_eq!(compare(by(10), by(10)), Kinship::Same);
    /// assert_eq!(compare(by(10), by(11)), Kinship::Foreign);
    /// let whole = |pid| Start { is_whole: true, ..by(pid) };
    /// assert_eq!(compare(whole(10), whole(11)), Kinship::Apart);
    /// let elsewhere = ProcessId { boot_id: "c".into(), ..process.clone() };
    /// assert_eq!(by(10).kinship(&process, &by(10), &elsewhere), Kinship::Unknown);
    /// ```
    #[must_use]
    pub fn kinship(&self, own: &ProcessId, other: &Self, its: &ProcessId) -> Kinship {
        if !own.sees_pids_of(its) {
            return Kinship::Unknown;
        }
        // Start times are comparable only if both count from the same moment.
        let is_one_clock = own.shares_clock_with(its);
        let is_one = |one: Starter, other: Starter| {
            one.pid == other.pid && (!is_one_clock || one.start_time == other.start_time)
        };
        let started = |starter: Starter, process: &ProcessId| {
            let process = Starter {
                pid: process.pid,
                start_time: process.start_time,
            };
            is_one(starter, process)
        };
        let is_same = match (self.starter, other.starter) {
            // One rank may have started the others.
            (Some(mine), Some(theirs)) => {
                is_one(mine, theirs) || started(mine, its) || started(theirs, own)
            }
            _ if self.session == 0 || other.session == 0 => return Kinship::Unknown,
            // The starter of one of them has ended, but a session outlives its leader.
            _ => self.session == other.session,
        };
        if is_same {
            Kinship::Same
        } else if self.is_whole && other.is_whole {
            Kinship::Apart
        } else {
            Kinship::Foreign
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32) -> ProcessId {
        ProcessId {
            boot_id: "boot".into(),
            pid_namespace: 4,
            time_namespace: 6,
            pid,
            start_time: 100,
            ..ProcessId::default()
        }
    }

    fn start(starter: Option<u32>, session: u32) -> Start {
        Start {
            starter: starter.map(|pid| Starter {
                pid,
                start_time: 100,
            }),
            session,
            is_whole: false,
        }
    }

    #[test]
    fn ranks_of_one_starter_are_of_one_start_and_others_are_not() {
        let compare = |one: Start, other: Start| {
            let there = one.kinship(&process(1000), &other, &process(1001));
            let back = other.kinship(&process(1001), &one, &process(1000));
            assert_eq!(there, back, "{one:?} {other:?}");
            there
        };
        for (one, other, expected) in [
            ((Some(10), 10), (Some(10), 10), Kinship::Same),
            ((Some(10), 10), (Some(10), 11), Kinship::Same),
            ((Some(10), 10), (Some(11), 10), Kinship::Foreign),
            // Rank 0 is process 1000 and has started the other one.
            ((Some(10), 10), (Some(1000), 10), Kinship::Same),
            ((Some(1001), 10), (Some(10), 10), Kinship::Same),
            // The script has ended before one of them, or both, looked.
            ((None, 10), (Some(10), 10), Kinship::Same),
            ((None, 10), (None, 10), Kinship::Same),
            ((None, 10), (None, 11), Kinship::Foreign),
            ((None, 10), (Some(11), 11), Kinship::Foreign),
            ((None, 0), (None, 0), Kinship::Unknown),
            ((None, 0), (Some(11), 11), Kinship::Unknown),
        ] {
            let found = compare(start(one.0, one.1), start(other.0, other.1));
            assert_eq!(found, expected, "{one:?} {other:?}");
        }
    }

    #[test]
    fn two_whole_starts_are_two_jobs() {
        let whole = |pid| Start {
            is_whole: true,
            ..start(Some(pid), 10)
        };
        for (other, expected) in [
            (whole(10), Kinship::Same),
            (whole(11), Kinship::Apart),
            // A wrapper of one rank may hide that.
            (start(Some(11), 11), Kinship::Foreign),
        ] {
            let there = whole(10).kinship(&process(1000), &other, &process(1001));
            let back = other.kinship(&process(1001), &whole(10), &process(1000));
            assert_eq!((there, back), (expected, expected), "{other:?}");
        }
    }

    #[test]
    fn a_reused_pid_is_another_starter() {
        let mut later = start(Some(10), 10);
        if let Some(starter) = &mut later.starter {
            starter.start_time += 1;
        }
        let found = start(Some(10), 10).kinship(&process(1000), &later, &process(1001));
        assert_eq!(found, Kinship::Foreign);
    }

    #[test]
    fn other_hosts_and_containers_prove_nothing() {
        let contained = ProcessId {
            pid_namespace: 5,
            ..process(1001)
        };
        let one = start(Some(10), 10);
        let found = one.kinship(&process(1000), &start(Some(11), 11), &contained);
        assert_eq!(found, Kinship::Unknown);
    }
}
