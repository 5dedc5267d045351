//! Judges processes that ask to join: [`objection`]. Pure.

use std::collections::BTreeMap;

use fsgather_core::{Error, ProcessId, Rank, WorldSize};

use super::{
    action::{Action, ActionQueue},
    roster::{Roster, RosterEntry},
    world::World,
};
use crate::message::{Join, RefusalReason};

/// Maximum number of processes with another world size that a message names.
const MAX_NAMED: usize = 4;

/// The advice for two processes of one rank of a job by whose name its ranks find each other.
const FOUND_BY_JOB: &str = "Either two jobs meet in one place (set FSGATHER_JOB to a different name for each), or the \
    launcher's ranks were not recognised (set FSGATHER_RANK and FSGATHER_WORLD_SIZE)";

/// The same if a program introduces the ranks to each other.
const INTRODUCED: &str = "Whoever introduces the ranks has said so of both: give each rank one process, and each run a \
    name of its own (under Ray the name= of be_rank)";

/// The advice for a process whose start differs from that of the ranks it asks to join.
pub(crate) const fn way_out_of_starts(is_named: bool) -> &'static str {
    if is_named {
        "set FSGATHER_JOB to a different name for each job"
    } else {
        "if they belong together, set FSGATHER_JOB to the same name on all ranks"
    }
}

/// The reason for which a process cannot be a rank. The world's stage decides on the answer, and on whether other ranks learn of it.
pub(super) enum Objection {
    /// It has found no rank 0 of its size, and looks for this one because the sizes may differ by mistake.
    JobSize,
    /// It was given another secret than rank 0.
    Secret,
    /// It comes from another start than rank 0, on rank 0's host.
    Start,
    /// It comes from another start than this rank, on a host without rank 0: nothing shows which of the two belongs to rank 0.
    Mixture(Rank),
    /// It was given another world size.
    WorldSize,
    /// Another process is this rank.
    Double,
    /// Something that concerns this process alone.
    Other(RefusalReason),
}

/// Returns the reason for which a process cannot be a rank of a world; none if it can, or is one already.
pub(super) fn objection(join: &Join, world: &World, roster: &Roster) -> Option<Objection> {
    let fingerprint = &world.fingerprint;
    let (rank, process) = (join.rank, text_of(&join.process));
    let zero = || roster.name_of(Rank::ZERO);
    let other = |text| Some(Objection::Other(Error::rendezvous(text).into()));
    if join.fingerprint.differs_in_size(fingerprint) {
        return Some(Objection::JobSize);
    }
    if join.fingerprint.secret != fingerprint.secret {
        return Some(Objection::Secret);
    }
    if join.fingerprint.key != fingerprint.key {
        return other(format!(
            "rank {rank} ({process}) is of another job than rank 0 ({}), whose record or messages somebody has moved",
            zero()
        ));
    }
    match roster.stranger_to(join) {
        None => {}
        Some(Rank::ZERO) => return Some(Objection::Start),
        Some(other) => return Some(Objection::Mixture(other)),
    }
    let counts = |rank| counts_of(join, roster.get(rank)?);
    let outdated = |rank| counts(rank).filter(|(its, later)| its < later);
    if join.world_size != world.world_size {
        return match outdated(Rank::ZERO) {
            Some((its, later)) => other(format!(
                "rank {rank} ({process}) belongs to an attempt after {its} restarts, rank 0 ({}) to one after {later}; that one goes on",
                zero()
            )),
            None => Some(Objection::WorldSize),
        };
    }
    if !join.world_size.contains(rank) {
        return other(format!(
            "rank {rank} ({process}) is none of a world of {} ranks",
            join.world_size
        ));
    }
    if roster.get(rank)?.nonce == join.nonce {
        return None;
    }
    // An earlier attempt at this job, which its launcher has not ended yet.
    match outdated(rank) {
        Some((its, later)) => other(format!(
            "rank {rank} ({process}) belongs to an attempt after {its} restarts, but one after {later} restarts is here \
             already, in which {} is rank {rank}; that one goes on",
            roster.name_of(rank)
        )),
        None => Some(Objection::Double),
    }
}

/// Returns the error of a process that was given another secret than rank 0.
pub(super) fn other_secret(join: &Join, world: &World, roster: &Roster) -> Error {
    let has = |is_given: bool| if is_given { "one" } else { "none" };
    let [ours, theirs] = [world.fingerprint, join.fingerprint].map(|its| its.secret.is_some());
    let what = if ours && theirs {
        "another FSGATHER_SECRET than rank 0".to_owned()
    } else {
        format!("{} FSGATHER_SECRET and rank 0 {}", has(theirs), has(ours))
    };
    Error::rendezvous(format!(
        "rank {} ({}) was given {what} ({}); set FSGATHER_SECRET or FSGATHER_SECRET_FILE alike on all ranks, or \
         FSGATHER_JOB to a different name for each job",
        join.rank,
        text_of(&join.process),
        roster.name_of(Rank::ZERO)
    ))
}

/// Refuses a process of another start than rank 0. The first one for each rank is logged.
pub(super) fn refuse_stranger(
    join: &Join,
    roster: &Roster,
    strangers: &mut BTreeMap<Rank, String>,
    queue: &mut ActionQueue,
) -> RefusalReason {
    let (rank, stranger) = (join.rank, text_of(&join.process));
    let note = format!(
        "{stranger} asked to be rank {rank}, but was not started by whoever started rank 0"
    );
    if strangers.insert(rank, stranger).is_none() {
        queue.push(Action::Note(note));
    }
    RefusalReason::OtherStart(other_start(join, roster))
}

/// Returns the error of two processes that ask to be the same rank.
pub(super) fn double(join: &Join, world: &World, roster: &Roster) -> Error {
    let (rank, process) = (join.rank, text_of(&join.process));
    let first = roster.name_of(rank);
    let counts = roster.get(rank).and_then(|member| counts_of(join, member));
    match counts {
        Some((its, earlier)) if its > earlier => Error::rendezvous(format!(
            "processes of two attempts say that they are rank {rank}: {first} after {earlier} restarts and {process} after {its} \
             restarts; the launcher has not ended the first one in time"
        )),
        _ if world.is_introduced => claimed_twice(rank, &first, &process, INTRODUCED),
        _ => claimed_twice(rank, &first, &process, FOUND_BY_JOB),
    }
}

/// Returns the error of two processes that ask to be the same rank, if ranks find each other by the name of the job.
pub(crate) fn claimed_twice_by_name(rank: Rank, one: &ProcessId, other: &ProcessId) -> Error {
    claimed_twice(rank, &text_of(one), &text_of(other), FOUND_BY_JOB)
}

fn claimed_twice(rank: Rank, one: &str, other: &str, way_out: &str) -> Error {
    Error::rendezvous(format!(
        "two processes say that they are rank {rank}: {one} and {other}. {way_out}"
    ))
}

/// Returns the difference between a process of another start and rank 0.
fn other_start(join: &Join, roster: &Roster) -> String {
    format!(
        "rank 0 ({}) was not started by whoever started rank {} ({})",
        roster.name_of(Rank::ZERO),
        join.rank,
        text_of(&join.process)
    )
}

/// Refuses a process that looks for this world because the sizes may differ by mistake.
pub(super) fn other_size(join: &Join, world: &World, roster: &Roster) -> RefusalReason {
    if roster.stranger_to(join).is_some() {
        // Another start and another size: this world does not wait for it, and it is blamed for nothing.
        return RefusalReason::OtherStart(other_start(join, roster));
    }
    RefusalReason::OtherSize(sizes_of(join, world, roster))
}

/// Checks that a process which asks again is still a member; `is_gone` if the world has ended.
pub(super) fn check_return(
    rank: Rank,
    is_gone: bool,
    roster: &Roster,
) -> Result<(), RefusalReason> {
    if is_gone || !roster.is_connected(rank) {
        let text = format!(
            "rank {rank} ({}) has left this world and cannot come back",
            roster.name_of(rank)
        );
        return Err(Error::rendezvous(text).into());
    }
    Ok(())
}

/// Returns the world sizes of this process and of rank 0.
pub(super) fn sizes_of(join: &Join, world: &World, roster: &Roster) -> String {
    let process = text_of(&join.process);
    sizes_text(&[(join.rank, process, join.world_size)], world, roster)
}

/// Returns the world sizes of these processes, of which there is at least one, and of rank 0.
pub(super) fn sizes_text(
    misfits: &[(Rank, String, WorldSize)],
    world: &World,
    roster: &Roster,
) -> String {
    let more = misfits.len().saturating_sub(MAX_NAMED);
    let zero = (Rank::ZERO, roster.name_of(Rank::ZERO), world.world_size);
    let mut texts = Vec::new();
    for (rank, process, size) in misfits.iter().take(MAX_NAMED).chain([&zero]) {
        texts.push(if texts.is_empty() {
            format!("rank {rank} ({process}) was told that there are {size} ranks")
        } else {
            format!("rank {rank} ({process}) that there are {size}")
        });
    }
    if more > 0 {
        texts.insert(MAX_NAMED, format!("{more} more other numbers"));
    }
    texts.join(", ")
}

/// Returns host and pid of a process.
pub(super) fn text_of(process: &ProcessId) -> String {
    format!("{}, pid {}", process.host, process.pid)
}

/// Returns how often a launcher had restarted the job before a process and before the one that is this rank, if the
/// same launcher has counted.
fn counts_of(join: &Join, member: &RosterEntry) -> Option<(u32, u32)> {
    let is_there = join.process.sees_pids_of(&member.process);
    join.attempt.zip(member.attempt).filter(|_| is_there)
}
