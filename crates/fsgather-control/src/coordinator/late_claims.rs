//! Waits for late claims of its ranks, where nothing proves that all who have joined are of one job.
//!
//! Two jobs may have one name, or none, and no id. If their ranks come in turn, a world can fill up with ranks of both. The others then
//! claim ranks that are taken, and a claim that comes before the world has opened fails it. So a world whose ranks do not come from one
//! start opens a moment after the last of them has joined.

use std::time::{Duration, Instant};

use fsgather_core::{Error, ProcessId, Rank};

use super::{Action, Coordinator};

/// The time that a full world waits if its ranks may be of two jobs.
pub(super) const LATE_CLAIMS: Duration = Duration::from_secs(2);

/// The advice for a process whose start differs from that of the ranks it asks to join.
pub(crate) const fn way_out_of_starts(is_named: bool) -> &'static str {
    if is_named {
        "set FSGATHER_JOB to a different name for each job"
    } else {
        "if they belong together, set FSGATHER_JOB to the same name on all ranks"
    }
}

/// The advice for two processes of one rank of a job by whose name its ranks find each other.
pub(super) const FOUND_BY_JOB: &str = "Either two jobs meet in one place (set FSGATHER_JOB to a different name for each), or the \
    launcher's ranks were not recognised (set FSGATHER_RANK and FSGATHER_WORLD_SIZE)";

/// The failure of a job of which two processes claim one rank.
pub(super) fn claimed_twice(rank: Rank, one: &str, other: &str, way_out: &str) -> Error {
    Error::rendezvous(format!(
        "two processes say that they are rank {rank}: {one} and {other}. {way_out}"
    ))
}

/// The same where their ranks find each other by the name of the job.
pub(crate) fn claimed_twice_by_name(rank: Rank, one: &ProcessId, other: &ProcessId) -> Error {
    claimed_twice(rank, &text_of(one), &text_of(other), FOUND_BY_JOB)
}

/// How errors of joining name a process.
pub(super) fn text_of(process: &ProcessId) -> String {
    format!("{}, pid {}", process.host, process.pid)
}

impl Coordinator {
    /// Opens the world, which is full, at once or after a moment.
    pub(super) fn open_when_certain(&mut self, now: Instant) {
        if self.roster.is_of_one_start() {
            return self.open_world();
        }
        self.opens_at = Some(now + LATE_CLAIMS);
        let waits = format!(
            "waiting {} s for others that say the same. A different FSGATHER_JOB for each job keeps jobs apart",
            LATE_CLAIMS.as_secs()
        );
        // A name is what its user was asked for: that is no reason for a warning with each command.
        self.actions.push(if self.roster.is_named() {
            Action::Note(format!(
                "only the name of this job says that its ranks belong together; {waits}"
            ))
        } else {
            Action::Warn(format!(
                "this job has neither an id nor a name, and ranks of several hosts or starts; {waits}"
            ))
        });
    }

    /// Opens the world once nobody else has claimed one of its ranks for long enough.
    pub(super) fn tick_late_claims(&mut self, now: Instant) {
        if self.opens_at.is_some_and(|at| at <= now) {
            self.open_world();
        }
    }

    fn open_world(&mut self) {
        self.opens_at = None;
        self.open = true;
        self.welcome(self.world.world_size.ranks().collect());
    }
}
