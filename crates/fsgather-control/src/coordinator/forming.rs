//! Forms a world: joining, and everything that can go wrong with it.

use std::time::{Duration, Instant};

use fsgather_core::{ChannelId, Error, ProcessId, Rank, WorldSize, duration_text};

use super::{
    Action, Coordinator,
    late_claims::{claimed_twice, text_of, way_out_of_starts},
    roster::RosterEntry,
};
use crate::message::{Join, JoinReply, RefusalReason, Welcome};

/// Maximum number of processes with another world size that a message names.
const MAX_NAMED: usize = 4;

/// Maximum time in which a process may ask again after the connection over which it has asked has closed.
///
/// It gives a try up that is not answered within two seconds, and begins another one two seconds later at the
/// latest.
const COMES_AGAIN: Duration = Duration::from_secs(5);

/// The advice for two processes of one rank where something introduces the ranks to each other.
pub(super) const INTRODUCED: &str = "Whoever introduces the ranks has said so of both: give each rank one process, and each run a \
    name of its own (under Ray the name= of be_rank)";

impl Coordinator {
    /// Handles a process that asks to be a rank.
    ///
    /// If it is a member, the connection it asked over is the rank's connection from now on:
    /// the messages in [`take_actions`](Coordinator::take_actions) for that rank go there.
    ///
    /// # Errors
    ///
    /// The reason if it is not.
    pub fn join(&mut self, join: Join, now: Instant) -> Result<(), RefusalReason> {
        let rank = join.rank;
        if join.fingerprint.differs_in_size(&self.world.fingerprint) {
            return Err(self.answer_other_size(&join));
        }
        if join.fingerprint.secret != self.world.fingerprint.secret {
            return Err(self.report_mismatch(&join));
        }
        self.check_key(&join)?;
        match self.roster.stranger_to(&join) {
            None => {}
            Some(Rank::ZERO) => return Err(self.of_another_start(&join)),
            // On a host without rank 0 nothing says which of the two belongs to it.
            Some(other) if !self.open => return Err(self.reject_mixture(&join, other)),
            Some(_) => return Err(self.answer_latecomer(&join)),
        }
        if join.world_size != self.world.world_size {
            return Err(self.reject_size(&join));
        }
        if !join.world_size.contains(rank) {
            return Err(refused(format!(
                "rank {rank} ({}) is none of a world of {} ranks",
                text_of(&join.process),
                join.world_size
            )));
        }
        if let Some(member) = self.roster.get(rank) {
            let same = member.nonce == join.nonce;
            if !same
                && let Some((its, later)) = counts_of(&join, member)
                && its < later
            {
                return Err(self.refuse_outdated(&join, its, later));
            }
            if !same && self.open {
                return Err(self.answer_latecomer(&join));
            }
            return match self.failure() {
                Some(cause) => Err(cause.into()),
                None if same => self.answer_again(rank),
                None => Err(self.reject_double(&join)),
            };
        }
        if let Some(cause) = self.failure() {
            return Err(cause.into());
        }
        if join.timeout != self.world.timeout {
            self.actions.push(Action::Warn(format!(
                "rank {rank} on {} asks for a time-out of {}, rank 0 for {}: rank 0's counts",
                join.process.host,
                duration_text(join.timeout),
                duration_text(self.world.timeout)
            )));
        }
        self.roster.admit(join, now);
        self.say_forming(rank);
        if self.roster.is_full() {
            self.open_when_certain(now);
        }
        Ok(())
    }

    /// Handles a process that cannot be a member because it was given another secret than rank 0: returns what to answer,
    /// and tells the others while the world forms.
    pub fn report_mismatch(&mut self, join: &Join) -> RefusalReason {
        if self.roster.stranger_to(join) == Some(Rank::ZERO) {
            // Another job's, which has its own rank 0.
            return self.of_another_start(join);
        }
        let has = |is_given: bool| if is_given { "one" } else { "none" };
        let [ours, theirs] =
            [self.world.fingerprint, join.fingerprint].map(|its| its.secret.is_some());
        let what = if ours && theirs {
            "another FSGATHER_SECRET than rank 0".to_owned()
        } else {
            format!("{} FSGATHER_SECRET and rank 0 {}", has(theirs), has(ours))
        };
        let cause = Error::rendezvous(format!(
            "rank {} ({}) was given {what} ({}); set FSGATHER_SECRET or FSGATHER_SECRET_FILE alike on all ranks, or \
             FSGATHER_JOB to a different name for each job",
            join.rank,
            text_of(&join.process),
            self.name_of(Rank::ZERO)
        ));
        // A process that shows the same secret has no reason to ask this, and harms only itself.
        let is_so = join.fingerprint.secret != self.world.fingerprint.secret;
        if is_so && !self.open && self.failure().is_none() {
            self.give_up(&cause);
        }
        cause.into()
    }

    /// Handles the end of a member's connection, noticed as `how` says.
    ///
    /// A process that has not been heard since it joined may not know that it is in: if rank 0 was slow to
    /// answer it has given up this connection, and asks again over another one. It is lost if it does not.
    pub fn disconnected(&mut self, rank: Rank, how: &str, now: Instant) {
        let member = self.roster.get(rank);
        let is_well = !self.gone && self.failure().is_none();
        let is_other = rank != Rank::ZERO;
        if is_well && is_other && member.is_some_and(|member| !member.is_settled) {
            let until = (now + COMES_AGAIN, how.into());
            self.missed.entry(rank).or_insert(until);
        } else {
            self.lost(rank, how);
        }
    }

    /// The process of a rank that may still ask again.
    #[must_use]
    pub fn is_missed(&self, rank: Rank) -> Option<ProcessId> {
        let member = self.roster.get(rank)?;
        let is_missed = !self.gone && self.missed.contains_key(&rank);
        is_missed.then(|| member.process.clone())
    }

    /// Handles a rank that will not ask again.
    pub fn stays_away(&mut self, rank: Rank) {
        if let Some((_, how)) = self.missed.remove(&rank) {
            self.lost(rank, &how);
        }
    }

    /// Notes that a process says over another connection which rank it is; whether that is right. It knows then
    /// that it is in.
    pub fn is_watched_by(&mut self, rank: Rank, nonce: u128) -> bool {
        let knows = self.knows(rank, nonce);
        if knows && let Some(member) = self.roster.get_mut(rank) {
            member.is_settled = true;
        }
        knows
    }

    /// Ends a world that is still forming, for a reason that all ranks receive.
    pub fn give_up(&mut self, cause: &Error) {
        self.fail_channel(ChannelId::WORLD, cause);
    }

    /// Ends a world that is still forming, if one of these ranks has not joined: they show no sign of work.
    pub fn give_up_idle(&mut self, idle: &[(Rank, Error)]) {
        let absent = |rank: &Rank| self.roster.get(*rank).is_none();
        let first = idle.iter().find(|(rank, _)| absent(rank));
        if let Some((_, cause)) = first
            && !self.open
            && self.failure().is_none()
        {
            self.give_up(cause);
        }
    }

    /// Why the world's own channel has failed, if it has.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.channels.get(&ChannelId::WORLD)?.failure.clone()
    }

    /// Notes what an earlier meeting of this job has come to, while ranks are waited for: they may have been in it.
    pub fn record_earlier_failure(&mut self, failure: String) {
        if self.open || self.failure().is_some() {
            return;
        }
        self.actions.push(Action::Warn(format!(
            "{failure}; ranks are still waited for"
        )));
        self.earlier_failure = Some(failure);
    }

    /// What may be done about ranks that do not come.
    pub(super) fn missing_hint(&self) -> String {
        let is_absent = |rank| self.roster.get(rank).is_none();
        let others = self.misfits_text(is_absent);
        let others = others.or_else(|| self.strangers_text());
        // Whose number another process has may be the one that is missing: told another size, it has another number.
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

    pub(super) fn rival(&mut self, from: Rank, other: &str) {
        if !self.open {
            let here = self.name_of(Rank::ZERO);
            let told = self.name_of(from);
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
    }

    fn check_key(&self, join: &Join) -> Result<(), Error> {
        if join.fingerprint.key == self.world.fingerprint.key {
            return Ok(());
        }
        Err(Error::rendezvous(format!(
            "rank {} ({}) is of another job than rank 0 ({}), whose record or messages somebody has moved",
            join.rank,
            text_of(&join.process),
            self.name_of(Rank::ZERO),
        )))
    }

    /// Answers a process that was told another number of ranks. This world cannot form without it, so that all are told; unless it may
    /// be of another job, or of another attempt at this one.
    fn reject_size(&mut self, join: &Join) -> RefusalReason {
        if let Some(zero) = self.roster.get(Rank::ZERO)
            && let Some((its, later)) = counts_of(join, zero)
            && its < later
        {
            return refused(format!(
                "rank {} ({}) belongs to an attempt after {its} restarts, rank 0 ({}) to one after {later}; that one goes on",
                join.rank,
                text_of(&join.process),
                self.name_of(Rank::ZERO)
            ));
        }
        let sizes = self.sizes_of(join);
        if self.open {
            // This world ends some time, and another may begin where it was.
            return RefusalReason::OtherSize(sizes);
        }
        let cause = Error::rendezvous(format!(
            "{sizes}; give all ranks the same world size, or FSGATHER_JOB a different name for each job"
        ));
        if self.failure().is_none() {
            if self.roster.is_kin(join) {
                self.give_up(&cause);
            } else {
                self.note_misfit(join, &sizes);
            }
        }
        cause.into()
    }

    /// Answers a process that has found no rank 0 of its size, and looks for this one because the sizes may differ by mistake. One
    /// job may have worlds of several sizes at a time, so that nothing fails by it.
    fn answer_other_size(&mut self, join: &Join) -> RefusalReason {
        if self.roster.stranger_to(join).is_some() {
            // Another start and another size: it is not one that this world waits for, and is blamed for nothing.
            return RefusalReason::OtherStart(self.starts_text(join));
        }
        let sizes = self.sizes_of(join);
        if !self.open && self.failure().is_none() {
            self.note_misfit(join, &sizes);
        }
        RefusalReason::OtherSize(sizes)
    }

    /// The world sizes of this process and of rank 0, for messages.
    fn sizes_of(&self, join: &Join) -> String {
        self.sizes_text(&[(join.rank, text_of(&join.process), join.world_size)])
    }

    /// The world sizes that these processes, of which there is at least one, and rank 0 were given.
    fn sizes_text(&self, misfits: &[(Rank, String, WorldSize)]) -> String {
        let more = misfits.len().saturating_sub(MAX_NAMED);
        let zero = (Rank::ZERO, self.name_of(Rank::ZERO), self.world.world_size);
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

    /// Notes a process that was given another world size, and warns of the first: it may be of another job.
    fn note_misfit(&mut self, join: &Join, sizes: &str) {
        let warning = format!("{sizes}; ranks are still waited for");
        let is_first = self.misfits.is_empty();
        let misfit = (text_of(&join.process), join.world_size);
        if self.misfits.insert(join.rank, misfit).is_none() {
            self.actions.push(if is_first {
                Action::Warn(warning)
            } else {
                Action::Note(warning)
            });
        }
    }

    /// Answers the same process over another of our addresses, or after a reply that was lost.
    fn answer_again(&mut self, rank: Rank) -> Result<(), RefusalReason> {
        if self.gone || !self.roster.is_connected(rank) {
            return Err(refused(format!(
                "rank {rank} ({}) has left this world and cannot come back",
                self.name_of(rank)
            )));
        }
        self.missed.remove(&rank);
        self.say_forming(rank);
        if self.open {
            self.welcome(vec![rank]);
        }
        Ok(())
    }

    fn say_forming(&mut self, rank: Rank) {
        let coordinator = self.name_of(Rank::ZERO);
        self.send(vec![rank], JoinReply::Forming { coordinator });
    }

    pub(super) fn welcome(&mut self, ranks: Vec<Rank>) {
        let welcome = Welcome {
            nonces: self.roster.nonces(),
            communicator: self.world.communicator,
            processes: self.roster.processes(),
            timeout: self.world.timeout,
        };
        self.send(ranks, JoinReply::Welcome(welcome));
    }

    fn answer_latecomer(&mut self, join: &Join) -> RefusalReason {
        let rank = join.rank;
        // It asks again and again until its own deadline.
        if self.latecomers.insert(rank) {
            self.actions.push(Action::Note(format!(
                "{} asked to be rank {rank}, which is taken by {}; this job goes on",
                text_of(&join.process),
                self.name_of(rank)
            )));
        }
        RefusalReason::AlreadyFormed {
            running: format!(
                "{} is running with {} as rank {rank}",
                self.world.job,
                self.name_of(rank)
            ),
            is_live: self.roster.is_present(rank) && self.failure().is_none(),
        }
    }

    /// Answers a process that rank 0's own host shows to be of another start.
    fn of_another_start(&mut self, join: &Join) -> RefusalReason {
        let rank = join.rank;
        let stranger = text_of(&join.process);
        let note = format!(
            "{stranger} asked to be rank {rank}, but was not started by whoever started rank 0"
        );
        if self.strangers.insert(rank, stranger).is_none() {
            self.actions.push(Action::Note(note));
        }
        RefusalReason::OtherStart(self.starts_text(join))
    }

    fn starts_text(&self, join: &Join) -> String {
        format!(
            "rank 0 ({}) was not started by whoever started rank {} ({})",
            self.name_of(Rank::ZERO),
            join.rank,
            text_of(&join.process)
        )
    }

    /// Processes of one host that come from two starts, and rank 0 is on another host.
    fn reject_mixture(&mut self, join: &Join, other: Rank) -> RefusalReason {
        let cause = Error::rendezvous(format!(
            "rank {} ({}) and rank {other} ({}) are on one host, but were not started by the same process: two jobs \
             meet in one place. Set FSGATHER_JOB to a different name for each job",
            join.rank,
            text_of(&join.process),
            self.name_of(other)
        ));
        self.give_up(&cause);
        cause.into()
    }

    /// Which of these ranks were told other numbers of ranks.
    fn misfits_text(&self, is_meant: impl Fn(Rank) -> bool) -> Option<String> {
        let misfits = self.misfits.iter().filter(|(rank, _)| is_meant(**rank));
        let misfits: Vec<_> = misfits
            .map(|(rank, (process, size))| (*rank, process.clone(), *size))
            .collect();
        (!misfits.is_empty()).then(|| {
            let sizes = self.sizes_text(&misfits);
            format!("{sizes}; if they belong together, give all ranks the same world size")
        })
    }

    /// Which ranks are still to come although processes of other starts have asked to be them.
    fn strangers_text(&self) -> Option<String> {
        let mut absent = self.roster.absent();
        let (rank, stranger) = absent.find_map(|rank| Some((rank, self.strangers.get(&rank)?)))?;
        let way_out = way_out_of_starts(self.roster.is_named());
        Some(format!(
            "{stranger} asked to be rank {rank}, but was not started by whoever started rank 0; {way_out}"
        ))
    }

    /// Answers a process of an earlier attempt at this job, which its launcher has not ended yet.
    fn refuse_outdated(&self, join: &Join, its: u32, later: u32) -> RefusalReason {
        let rank = join.rank;
        refused(format!(
            "rank {rank} ({}) belongs to an attempt after {its} restarts, but one after {later} restarts is here \
             already, in which {} is rank {rank}; that one goes on",
            text_of(&join.process),
            self.name_of(rank)
        ))
    }

    fn reject_double(&mut self, join: &Join) -> RefusalReason {
        let member = self.roster.get(join.rank);
        if let Some((its, earlier)) = member.and_then(|member| counts_of(join, member))
            && its > earlier
        {
            let cause = Error::rendezvous(format!(
                "processes of two attempts say that they are rank {}: {} after {earlier} restarts and {} after {its} \
                 restarts; the launcher has not ended the first one in time",
                join.rank,
                self.name_of(join.rank),
                text_of(&join.process)
            ));
            self.give_up(&cause);
            return cause.into();
        }
        let cause = claimed_twice(
            join.rank,
            &self.name_of(join.rank),
            &text_of(&join.process),
            self.way_out_of_doubles,
        );
        self.give_up(&cause);
        cause.into()
    }

    fn name_of(&self, rank: Rank) -> String {
        let peer = self.roster.peer(rank);
        format!("{}, pid {}", peer.host, peer.pid)
    }
}

/// How often a launcher had started the job again before a process and before the one that is this rank, where the
/// same launcher has counted.
fn counts_of(join: &Join, member: &RosterEntry) -> Option<(u32, u32)> {
    let is_there = join.process.sees_pids_of(&member.process);
    join.attempt.zip(member.attempt).filter(|_| is_there)
}

/// A refusal that concerns the asking process alone.
fn refused(why: String) -> RefusalReason {
    Error::rendezvous(why).into()
}

#[cfg(test)]
#[path = "forming_tests.rs"]
mod tests;
