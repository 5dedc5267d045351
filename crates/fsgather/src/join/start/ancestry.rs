//! Finds the process that has started a rank, and processes that claim the same rank: [`starter`], [`twins`]. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use fsgather_core::{Start, Starter};

use super::processes::{ProcessTable, Seen};
use fsgather_config::{
    environment::{self, Variables},
    launcher::{Family, ROWS},
    settings::Settings,
};

/// Launchers that run processes of their own for each job.
const DAEMONS: &[&str] = &[
    "hydra_pmi_proxy",
    "pmi_proxy",
    "mpispawn",
    "mpiexec",
    "mpirun",
];

/// Programs that may still become a rank, or another program.
const WRAPPERS: &[&str] = &[
    "sh", "bash", "dash", "ksh", "zsh", "busybox", "env", "nice", "nohup", "timeout", "setsid",
    "stdbuf", "numactl", "taskset",
];

/// Processes whose many children are unrelated.
const ADOPTERS: &[&str] = &["systemd", "init"];

/// The claim of this rank, and the form of the claims of other ranks of its job.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    family: Family,
    rank: u32,
    /// The number of ranks that are started on this host.
    ranks_here: usize,
    /// The number of ranks.
    ranks: usize,
    /// True if a user has named the job.
    is_named: bool,
    /// The variable that holds the rank, and must exist.
    rank_name: Option<&'static str>,
    /// The variables that all ranks which meet in one place have in common.
    alike: Vec<(&'static str, Option<String>)>,
    /// The place where ranks meet if no other place is set.
    working_directory: Option<PathBuf>,
}

impl Claim {
    pub(super) fn of(settings: &Settings, variables: &Variables) -> Self {
        let detection = &settings.detection;
        let row = ROWS.iter().find(|row| row.family == detection.family);
        let size = detection.local_size.unwrap_or(detection.world_size.get());
        let names = row.map(|row| row.world_size).into_iter();
        let names = names.chain(environment::WHERE_RANKS_MEET);
        let is_by_working_directory = settings.directory.value.is_none()
            && settings.rendezvous.value.is_none()
            && !detection.is_on_one_host();
        Self {
            family: detection.family,
            rank: detection.rank.get(),
            ranks_here: usize::try_from(size).unwrap_or(usize::MAX),
            ranks: detection.world_size.count(),
            is_named: settings.is_named(),
            rank_name: row.map(|row| row.rank),
            alike: names
                .map(|name| (name, variables.get(name).map(str::to_owned)))
                .collect(),
            working_directory: is_by_working_directory
                .then(|| std::env::current_dir().ok())
                .flatten(),
        }
    }

    /// Returns the mark that distinguishes a process from the others of a job like this one: the rank that it claims.
    ///
    /// If the program numbers its ranks, processes of the same program are taken for different ranks.
    fn mark(&self, pid: u32, own: &Seen, look: &impl ProcessTable) -> Option<u32> {
        if self.rank_name.is_some() {
            return self.rank_of(pid, look);
        }
        let is_like_us = look
            .all()
            .get(&pid)
            .is_some_and(|seen| seen.name == own.name);
        is_like_us.then_some(pid)
    }

    /// Returns the rank of a job like this one that a process claims.
    fn rank_of(&self, pid: u32, look: &impl ProcessTable) -> Option<u32> {
        let variables = look.variables(pid);
        let get = |name: &str| {
            let values = variables.iter();
            let mut values = values.filter_map(|text| text.strip_prefix(name)?.strip_prefix('='));
            values.next().filter(|value| !value.is_empty())
        };
        let rank = get(self.rank_name?)?.trim().parse().ok()?;
        let is_alike = |(name, value): &(&str, Option<String>)| get(name) == value.as_deref();
        let works_here = self.working_directory.is_none()
            || look.working_directory(pid) == self.working_directory;
        (self.alike.iter().all(is_alike) && works_here).then_some(rank)
    }
}

/// A rank, and two processes that claim it.
pub(super) type Double = (u32, u32, u32);

/// The process that has started a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FoundStart {
    /// A launcher that shows the id of its job.
    Job(String),
    /// The nearest ancestor of all ranks of this host.
    Starter {
        starter: Starter,
        /// See [`Start::is_whole`].
        is_whole: bool,
    },
    /// No process is an ancestor of all ranks, by now.
    Nobody,
}

/// Walks up from a rank to the process that has started all ranks of its host.
///
/// Other processes may be between them, such as a script for each rank. They have not started all ranks, and belong to
/// the session of the rank; only a launcher makes sessions.
///
/// If a process that has all ranks as descendants has two processes of one rank, it has started two jobs. The nearer
/// process that has started one of the jobs may be about to start the rest, unless this `is_last` of several looks.
pub(super) fn starter(
    claim: &Claim,
    me: u32,
    is_last: bool,
    look: &impl ProcessTable,
) -> FoundStart {
    let all = look.all();
    let Some(own) = all.get(&me) else {
        return FoundStart::Nobody;
    };
    let mut marks = BTreeMap::new();
    let mut is_beyond = false;
    let mut pid = own.parent;
    // Parents are older than their children, but pids may be reused during the search.
    for _ in 0..all.len() {
        let Some(seen) = all.get(&pid) else { break };
        if pid <= 1 || ADOPTERS.contains(&seen.name.as_str()) {
            break;
        }
        let found = |is_whole| FoundStart::Starter {
            starter: Starter {
                pid,
                start_time: seen.start_time,
            },
            is_whole,
        };
        if DAEMONS.iter().any(|name| seen.name.starts_with(name)) {
            let job = job_of(claim.family, &look.arguments(pid));
            // It may contain a part of a job that is not an MPI program.
            return job.map_or_else(|| found(claim.family.is_mpi()), FoundStart::Job);
        }
        if is_beyond {
            break;
        }
        let is_other_session = seen.session != own.session;
        // Above a terminal are unrelated processes; but a process that gives each rank a session is a launcher.
        if is_other_session && own.session != me {
            return found(false);
        }
        let below = all
            .keys()
            .filter(|candidate| is_below(**candidate, pid, all));
        let below: BTreeMap<u32, u32> = below
            .filter_map(|candidate| {
                let mark = marks.entry(*candidate);
                let mark = mark.or_insert_with(|| claim.mark(*candidate, own, look));
                Some((*candidate, (*mark)?))
            })
            .collect();
        let mut ranks: BTreeSet<u32> = if claim.rank_name.is_some() {
            below.values().copied().collect()
        } else {
            // Processes that a rank has started run its program as well.
            let is_root = |pid: &&u32| !below.keys().any(|above| is_below(**pid, *above, all));
            below.keys().filter(is_root).copied().collect()
        };
        ranks.insert(claim.rank_name.map_or(me, |_| claim.rank));
        if ranks.len() >= claim.ranks_here {
            // The number of ranks on this host may be that of a part of it; and another program may have the same name.
            let is_whole = ranks.len() >= claim.ranks && claim.rank_name.is_some();
            if !is_last && double(&below, all).is_some() {
                return FoundStart::Nobody;
            }
            return found(is_whole);
        }
        if is_other_session {
            // It may be about to start the rest, which matters if only that distinguishes jobs of one name.
            let waits = claim.is_named && !is_last;
            return if waits {
                FoundStart::Nobody
            } else {
                found(false)
            };
        }
        // A shell to which a launcher has given a session: any process above that started it starts others as well.
        is_beyond = pid == own.session;
        pid = seen.parent;
    }
    FoundStart::Nobody
}

/// Returns the job that the command line of Hydra's proxy names: the address of its `mpiexec`, and the number of the
/// process group.
fn job_of(family: Family, arguments: &[String]) -> Option<String> {
    if !matches!(family, Family::Pmi | Family::Mvapich2) {
        return None;
    }
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    let listens = value("--control-port")?;
    let group = value("--pgid").map_or("0", String::as_str);
    Some(format!("{listens}.{group}"))
}

/// Returns a rank that two processes of one start claim, and these two.
///
/// A process that a rank has started has its variables too, so processes below one that makes the same claim do not
/// count.
pub(super) fn twins(claim: &Claim, start: Start, look: &impl ProcessTable) -> Option<Double> {
    let all = look.all();
    let is_of_start = |pid: u32, seen: &Seen| match start.starter {
        Some(starter) => is_below(pid, starter.pid, all),
        None => seen.session == start.session,
    };
    let candidates = all.iter().filter(|(pid, seen)| is_of_start(**pid, seen));
    let claims: BTreeMap<u32, u32> = candidates
        .filter_map(|(pid, _)| Some((*pid, claim.rank_of(*pid, look)?)))
        .collect();
    double(&claims, all)
}

/// Returns a rank that two of these processes claim, and these two.
///
/// Both run one program, or one of them may still become a rank. A script that exports the variables of a rank also runs other programs
/// beside it, which are no ranks.
fn double(claims: &BTreeMap<u32, u32>, all: &BTreeMap<u32, Seen>) -> Option<Double> {
    let name = |pid: u32| all.get(&pid).map_or("", |seen| seen.name.as_str());
    let may_be_alike = |one: u32, other: u32| {
        name(one) == name(other)
            || [one, other]
                .iter()
                .any(|pid| WRAPPERS.contains(&name(*pid)))
    };
    let mut seen: Vec<(u32, u32)> = Vec::new();
    for (pid, rank) in claims {
        let is_helper = claims
            .iter()
            .any(|(other, its)| its == rank && is_below(*pid, *other, all));
        if is_helper {
            continue;
        }
        let mut before = seen.iter().filter(|(its, _)| its == rank);
        if let Some((_, other)) = before.find(|(_, other)| may_be_alike(*other, *pid)) {
            return Some((*rank, *other, *pid));
        }
        seen.push((*rank, *pid));
    }
    None
}

/// Returns true if a process is a descendant of another one.
fn is_below(pid: u32, above: u32, all: &BTreeMap<u32, Seen>) -> bool {
    let mut at = pid;
    for _ in 0..all.len() {
        match all.get(&at) {
            Some(seen) if seen.parent == above => return true,
            Some(seen) if seen.parent > 1 => at = seen.parent,
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
#[path = "ancestry_tests.rs"]
mod tests;
