//! A world whose ranks are still joining: [`FormingStage`].

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    time::{Duration, Instant},
};

use fsgather_core::{
    ChannelId, Deadline, Error, FIRST_WARNING, Rank, RollCall, WaitEnd, WorldSize, duration_text,
};

use super::{
    action::{Action, ActionQueue},
    admission::{self, Objection, text_of},
    open::OpenStage,
    roster::{Roster, Standing},
    world::World,
};
use crate::message::{
    CallReply, CallRequest, EndRequest, Join, JoinReply, JoinRequest, RefusalReason, ToCoordinator,
};

/// Time that a full world waits if its ranks may be of two jobs.
///
/// Two jobs may have one name, or none, and no id. If their ranks come in turn, a world can fill up with ranks of both. The others then
/// claim ranks that are taken, and a claim that comes before the world has opened fails it.
const LATE_CLAIMS: Duration = Duration::from_secs(2);

/// A world whose ranks are still joining, or that has failed meanwhile.
#[derive(Clone, Debug)]
pub(super) struct FormingStage {
    world: World,
    pub(super) roster: Roster,
    pub(super) queue: ActionQueue,
    started: Instant,
    /// The time at which the world opens, once all ranks have joined.
    opens_at: Option<Instant>,
    next_warning: Duration,
    /// Processes of other starts than rank 0, by the ranks that they asked to be.
    strangers: BTreeMap<Rank, String>,
    /// Processes that were given another world size, by the ranks that they asked to be: host and pid, and that size.
    misfits: BTreeMap<Rank, (String, WorldSize)>,
    /// The failure of an earlier meeting of this job.
    earlier_failure: Option<String>,
    /// The reason for which the world never opens.
    pub(super) failure: Option<Error>,
    /// Members that have not confirmed that they know it.
    untold: BTreeSet<Rank>,
}

impl FormingStage {
    /// A world that begins to form `now`.
    pub(super) fn new(world: World, now: Instant) -> Self {
        Self {
            roster: Roster::new(world.world_size, world.is_named),
            world,
            queue: ActionQueue::default(),
            started: now,
            opens_at: None,
            next_warning: FIRST_WARNING,
            strangers: BTreeMap::new(),
            misfits: BTreeMap::new(),
            earlier_failure: None,
            failure: None,
            untold: BTreeSet::new(),
        }
    }

    /// Returns true if all ranks have joined, and no process has claimed one of them for long enough.
    pub(super) fn is_complete(&self, now: Instant) -> bool {
        self.failure.is_none() && self.opens_at.is_some_and(|at| at <= now)
    }

    /// The world that the members have formed. It takes them along, with the strangers that were refused.
    pub(super) fn open(&mut self, now: Instant) -> OpenStage {
        OpenStage::new(
            self.world.clone(),
            mem::take(&mut self.roster),
            mem::take(&mut self.queue),
            mem::take(&mut self.strangers),
            now,
        )
    }

    /// Returns true if all members except rank 0 know the failure, if there is one.
    pub(super) fn all_told(&self) -> bool {
        self.untold.iter().all(|rank| *rank == Rank::ZERO)
    }

    /// Ends the world, for a reason that all ranks receive.
    pub(super) fn give_up(&mut self, cause: &Error) {
        if self.failure.is_some() {
            return;
        }
        let (channel, cause) = (ChannelId::WORLD, cause.clone().cut_to_size());
        self.failure = Some(cause.clone());
        let to = self.roster.connected();
        self.untold = to.iter().copied().collect();
        self.queue.send(to, CallReply::Abort { channel, cause });
    }

    /// Handles a process that asks to be a rank; `is_gone` if this world has ended.
    pub(super) fn join(
        &mut self,
        join: Join,
        is_gone: bool,
        now: Instant,
    ) -> Result<(), RefusalReason> {
        match admission::objection(&join, &self.world, &self.roster) {
            None => {}
            Some(Objection::JobSize) => return Err(self.answer_other_size(&join)),
            Some(Objection::Secret) => return Err(self.report_mismatch(&join)),
            Some(Objection::Start) => return Err(self.refuse_stranger(&join)),
            Some(Objection::Mixture(other)) => {
                let cause = self.mixture(&join, other);
                self.give_up(&cause);
                return Err(cause.into());
            }
            Some(Objection::WorldSize) => return Err(self.reject_size(&join)),
            Some(Objection::Double) => {
                let cause = admission::double(&join, &self.world, &self.roster);
                self.give_up(&cause);
                return Err(self.failure.clone().unwrap_or(cause).into());
            }
            Some(Objection::Other(reason)) => return Err(reason),
        }
        if let Some(cause) = &self.failure {
            return Err(cause.clone().into());
        }
        let rank = join.rank;
        if self.roster.get(rank).is_some() {
            admission::check_return(rank, is_gone, &self.roster)?;
            self.say_forming(rank);
            return Ok(());
        }
        if join.timeout != self.world.timeout {
            self.queue.push(Action::Warn(format!(
                "rank {rank} on {} asks for a time-out of {}, rank 0 for {}: rank 0's counts",
                join.process.host,
                duration_text(join.timeout),
                duration_text(self.world.timeout)
            )));
        }
        self.roster.admit(join, now);
        self.say_forming(rank);
        if self.roster.is_full() {
            self.set_opening(now);
        }
        Ok(())
    }

    /// Answers a process that was given another secret than rank 0, and fails.
    pub(super) fn report_mismatch(&mut self, join: &Join) -> RefusalReason {
        if self.roster.stranger_to(join) == Some(Rank::ZERO) {
            // It belongs to another job, which has its own rank 0.
            return self.refuse_stranger(join);
        }
        let cause = admission::other_secret(join, &self.world, &self.roster);
        // A process that shows the same secret has no reason to ask this, and harms only itself.
        if join.fingerprint.secret != self.world.fingerprint.secret {
            self.give_up(&cause);
        }
        cause.into()
    }

    /// Fails if one of these ranks has not joined: they show no sign of work.
    pub(super) fn give_up_idle(&mut self, idle: &[(Rank, Error)]) {
        let absent = |rank: &Rank| self.roster.get(*rank).is_none();
        let first = idle.iter().find(|(rank, _)| absent(rank));
        if let Some((_, cause)) = first {
            self.give_up(cause);
        }
    }

    /// Notes the failure of an earlier meeting of this job: the missing ranks may have been in it.
    pub(super) fn record_earlier_failure(&mut self, failure: String) {
        if self.failure.is_none() {
            self.queue.push(Action::Warn(format!(
                "{failure}; ranks are still waited for"
            )));
            self.earlier_failure = Some(failure);
        }
    }

    /// Handles a message of a member.
    pub(super) fn on_message(&mut self, from: Rank, message: ToCoordinator) {
        match message {
            ToCoordinator::Join(JoinRequest::Rival { other }) => self.rival(from, &other),
            ToCoordinator::Call(CallRequest::AbortSeen { .. }) => {
                self.untold.remove(&from);
            }
            ToCoordinator::End(EndRequest::Leave { cause }) => self.leave(from, cause.as_ref()),
            // Calls come later.
            _ => {}
        }
    }

    /// Handles the loss of a member.
    pub(super) fn lost(&mut self, rank: Rank, how: &str) {
        let cause = self.roster.lose(rank, how);
        self.untold.remove(&rank);
        if let Some(cause) = cause {
            self.give_up(&cause);
        }
    }

    fn leave(&mut self, from: Rank, cause: Option<&Error>) {
        // Its reason may concern all ranks, and name the rank that has failed.
        if let Some(cause @ (Error::Rendezvous { .. } | Error::PeerFailed { .. })) = cause {
            self.give_up(cause);
        }
        let failed = self.roster.leave(from, cause, Standing::Gone);
        self.untold.remove(&from);
        if let Some(failed) = failed {
            self.give_up(&failed);
        }
    }

    fn rival(&mut self, from: Rank, other: &str) {
        let here = self.roster.name_of(Rank::ZERO);
        let told = self.roster.name_of(from);
        // Process ids are those of the pid namespace of each.
        let namespace = if here == other {
            " of another pid namespace"
        } else {
            ""
        };
        self.give_up(&Error::rendezvous(format!(
            "two worlds of the same job meet in one place: rank 0 is {here}, and also {other}{namespace}; \
             rank {from} ({told}) could belong to either. Set FSGATHER_JOB to a different name for each job"
        )));
    }

    /// Answers a process that was given another world size. This world cannot form without it and fails, unless the process may
    /// be of another job.
    fn reject_size(&mut self, join: &Join) -> RefusalReason {
        let sizes = admission::sizes_of(join, &self.world, &self.roster);
        let cause = Error::rendezvous(format!(
            "{sizes}; give all ranks the same world size, or FSGATHER_JOB a different name for each job"
        ));
        if self.roster.is_kin(join) {
            self.give_up(&cause);
        } else {
            self.note_misfit(join, &sizes);
        }
        cause.into()
    }

    /// Answers a process that looks for this world because the sizes may differ by mistake. One job may have worlds of several sizes
    /// at a time, so nothing fails by it.
    fn answer_other_size(&mut self, join: &Join) -> RefusalReason {
        let reason = admission::other_size(join, &self.world, &self.roster);
        if let RefusalReason::OtherSize(sizes) = &reason {
            self.note_misfit(join, sizes);
        }
        reason
    }

    /// Notes a process that was given another world size, and warns of the first: it may be of another job.
    fn note_misfit(&mut self, join: &Join, sizes: &str) {
        if self.failure.is_some() {
            return;
        }
        let warning = format!("{sizes}; ranks are still waited for");
        let is_first = self.misfits.is_empty();
        let misfit = (text_of(&join.process), join.world_size);
        if self.misfits.insert(join.rank, misfit).is_none() {
            self.queue.push(if is_first {
                Action::Warn(warning)
            } else {
                Action::Note(warning)
            });
        }
    }

    fn refuse_stranger(&mut self, join: &Join) -> RefusalReason {
        let (strangers, queue) = (&mut self.strangers, &mut self.queue);
        admission::refuse_stranger(join, &self.roster, strangers, queue)
    }

    /// The error of processes of one host that come from two starts, if rank 0 is on another host.
    fn mixture(&self, join: &Join, other: Rank) -> Error {
        Error::rendezvous(format!(
            "rank {} ({}) and rank {other} ({}) are on one host, but were not started by the same process: two jobs \
             meet in one place. Set FSGATHER_JOB to a different name for each job",
            join.rank,
            text_of(&join.process),
            self.roster.name_of(other)
        ))
    }

    fn say_forming(&mut self, rank: Rank) {
        let coordinator = self.roster.name_of(Rank::ZERO);
        self.queue
            .send(vec![rank], JoinReply::Forming { coordinator });
    }

    /// Opens the world, which is full, at once or after a moment.
    fn set_opening(&mut self, now: Instant) {
        if self.roster.is_of_one_start() {
            self.opens_at = Some(now);
            return;
        }
        self.opens_at = Some(now + LATE_CLAIMS);
        let waits = format!(
            "waiting {} s for others that say the same. A different FSGATHER_JOB for each job keeps jobs apart",
            LATE_CLAIMS.as_secs()
        );
        // A name is what its user was asked for: that is no reason for a warning with each command.
        self.queue.push(if self.world.is_named {
            Action::Note(format!(
                "only the name of this job says that its ranks belong together; {waits}"
            ))
        } else {
            Action::Warn(format!(
                "this job has neither an id nor a name, and ranks of several hosts or starts; {waits}"
            ))
        });
    }

    /// The time at which something has to happen next.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        let timeout = self.world.join_timeout.min(self.next_warning);
        let waits = || Deadline::after(self.started, timeout).at();
        let is_open_ended = self.failure.is_none();
        is_open_ended.then(|| self.opens_at.unwrap_or_else(waits))
    }

    /// Warns of missing ranks, and fails after too long.
    pub(super) fn tick(&mut self, now: Instant) {
        if self.failure.is_some() || self.opens_at.is_some() {
            return;
        }
        let elapsed = now.saturating_duration_since(self.started);
        let absent = self.roster.absent();
        let missing: Vec<_> = absent.map(|rank| self.roster.missing(rank, now)).collect();
        if elapsed >= self.world.join_timeout {
            let world_size = self.world.world_size;
            self.give_up(&Error::timed_out(
                format!(
                    "meeting of {world_size} ranks ({} joined)",
                    world_size.count() - missing.len()
                ),
                self.world.join_timeout,
                missing,
                RollCall::default(),
                self.missing_hint(),
            ));
        } else if elapsed >= self.next_warning {
            self.next_warning *= 2;
            self.queue.push(Action::Warn(format!(
                "still waiting for {} to join, for {} now; {}",
                ranks_text(missing.iter().map(|missing| missing.rank)),
                duration_text(elapsed),
                WaitEnd::of_meeting(
                    self.world.join_timeout.saturating_sub(elapsed),
                    self.world.idle_limit
                )
            )));
        }
    }

    /// The advice if ranks are missing.
    fn missing_hint(&self) -> String {
        let is_absent = |rank| self.roster.get(rank).is_none();
        let others = self.misfits_text(is_absent);
        let others = others.or_else(|| self.strangers_text());
        // A rank whose number another process has may be the missing one: given another size, it has another number.
        let others = others.or_else(|| self.misfits_text(|_| true));
        others.unwrap_or_else(|| {
            let earlier = self.earlier_failure.as_ref();
            let earlier = earlier.map_or_else(String::new, |earlier| format!("; {earlier}"));
            format!(
                "see whether these processes were started and look in the same place, or set FSGATHER_JOIN_TIMEOUT to \
                 wait longer{earlier}"
            )
        })
    }

    /// These ranks that were given other world sizes.
    fn misfits_text(&self, is_meant: impl Fn(Rank) -> bool) -> Option<String> {
        let misfits = self.misfits.iter().filter(|(rank, _)| is_meant(**rank));
        let misfits: Vec<_> = misfits
            .map(|(rank, (process, size))| (*rank, process.clone(), *size))
            .collect();
        (!misfits.is_empty()).then(|| {
            let sizes = admission::sizes_text(&misfits, &self.world, &self.roster);
            format!("{sizes}; if they belong together, give all ranks the same world size")
        })
    }

    /// The first missing rank that a process of another start has asked to be.
    fn strangers_text(&self) -> Option<String> {
        let mut absent = self.roster.absent();
        let (rank, stranger) = absent.find_map(|rank| Some((rank, self.strangers.get(&rank)?)))?;
        let way_out = admission::way_out_of_starts(self.world.is_named);
        Some(format!(
            "{stranger} asked to be rank {rank}, but was not started by whoever started rank 0; {way_out}"
        ))
    }
}

fn ranks_text(ranks: impl Iterator<Item = Rank>) -> String {
    let ranks: Vec<String> = ranks.map(|rank| rank.to_string()).collect();
    format!(
        "rank{} {}",
        if ranks.len() == 1 { "" } else { "s" },
        ranks.join(" ")
    )
}

#[cfg(test)]
#[path = "forming_tests.rs"]
mod tests;
