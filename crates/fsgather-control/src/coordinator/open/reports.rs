//! Weighs what members report of others: links that they have lost, ranks that they wait for in vain.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use fsgather_core::{
    Activity, ChannelId, Epoch, Error, Missing, Rank, Round as RoundNumber, WaitEnd,
};

use super::{
    OpenStage,
    hearsay::{Hearsay, is_timeout},
};
use crate::message::{Probe, StallReport};

/// Time after a stop of rank 0 itself for which stall reports of members are out of date: they waited for rank 0. If still
/// nothing moves, they report it again.
const STALE: Duration = Duration::from_secs(2);

impl OpenStage {
    /// Handles a member's report that it cannot continue.
    pub(super) fn word(&mut self, from: Rank, id: ChannelId, cause: Error, now: Instant) {
        let mut about = cause.blamed_by(from);
        about.retain(|rank| self.roster.get(*rank).is_some());
        let gone = about
            .iter()
            .find(|rank| !self.roster.is_connected(**rank))
            .and_then(|rank| self.roster.departure(*rank));
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        if channel.failure.is_some() {
            return;
        }
        if about.is_empty() || gone.is_some() {
            self.fail_after_answers(id, &gone.unwrap_or(cause));
            return;
        }
        let is_first_late = is_timeout(&cause) && channel.hearsay.is_none();
        channel
            .hearsay
            .get_or_insert_with(|| Hearsay::new(&cause, now))
            .add(from, about, cause);
        if is_first_late {
            self.ask_all(id);
        }
    }

    /// Believes the reports about a rank that is gone now.
    pub(super) fn confirm_hearsay(&mut self, rank: Rank, id: ChannelId) {
        let hearsay = self
            .channels
            .get(&id)
            .and_then(|channel| channel.hearsay.as_ref());
        if hearsay.is_some_and(|hearsay| hearsay.is_about(rank))
            && let Some(cause) = self.roster.departure(rank)
        {
            self.fail_after_answers(id, &cause);
        }
    }

    /// Believes reports that have not been contradicted for long enough.
    pub(super) fn tick_hearsay(&mut self, now: Instant) {
        let due = self.channels.values_mut().filter_map(|channel| {
            let is_over = channel.hearsay.as_mut()?.is_over(now);
            is_over.then_some(channel.id)
        });
        let due: Vec<ChannelId> = due.collect();
        for id in due {
            let channel = self.channels.get_mut(&id);
            let hearsay = channel.and_then(|channel| channel.hearsay.take());
            if let Some(cause) = hearsay.and_then(|hearsay| self.belief(id, &hearsay, now)) {
                self.fail_after_answers(id, &cause);
            }
        }
    }

    /// The error that the reports lead to.
    fn belief(&self, id: ChannelId, hearsay: &Hearsay, now: Instant) -> Option<Error> {
        let mut cause = hearsay.best_cause()?.clone();
        if let Error::Timeout { missing, .. } = &mut cause {
            // Each has waited for its neighbours, which may well have waited in turn.
            let mut named = hearsay.culprits();
            named.extend(self.silent_since(id, Some(hearsay.since())));
            if named.is_empty() {
                named = hearsay.concerned();
            }
            let named = named.into_iter().map(|rank| self.roster.missing(rank, now));
            *missing = named.collect::<Vec<Missing>>();
        }
        Some(cause)
    }

    /// Handles a member's report that nothing moves between it and others.
    pub(super) fn stalled(
        &mut self,
        from: Rank,
        id: ChannelId,
        activity: Activity,
        wait: StallReport,
        now: Instant,
    ) {
        let (idle, timeout) = (wait.idle, wait.timeout);
        self.roster.record_activity(from, activity.clone());
        // Rank 0 was stopped itself, and now reads the reports about that.
        if self.woke.is_some_and(|woke| now < woke + STALE) {
            return;
        }
        let channel = self.channels.get_mut(&id);
        let channel = channel.filter(|channel| channel.failure.is_none());
        let (Some(channel), Some(call)) = (channel, activity.call) else {
            return;
        };
        let stall = channel.stalls.record(from, call.epoch, wait, now);
        let asked = stall.asked;
        let is_to_warn = stall.is_to_warn(idle);
        let is_to_ask = stall.is_to_ask(idle, now);
        let blamed: Vec<Rank> = stall.blamed().into_iter().collect();
        if is_to_warn {
            let mut missing = stall.blamed();
            let waiting: Vec<Rank> = stall.waits.keys().copied().collect();
            missing.extend(self.silent_since(id, asked));
            if missing.is_empty() {
                missing.extend(waiting);
            }
            let channel = self.channels.get(&id);
            let text = channel.map(|channel| channel.round_text(&call, RoundNumber::VERDICT));
            let text = text.unwrap_or_default();
            let end = WaitEnd::UnlessMoved(timeout.saturating_sub(idle));
            self.warn_waiting(&text, missing.into_iter().collect(), (idle, Some(end)), now);
        }
        if is_to_ask {
            self.look_at(&blamed, now);
            self.ask_all(id);
        }
    }

    /// Asks all members of a communicator whether they are there.
    pub(super) fn ask_all(&mut self, id: ChannelId) {
        let members = self.channels.get(&id);
        let members = members.map(|channel| channel.present().collect());
        self.queue.send(members.unwrap_or_default(), Probe::Ask);
    }

    /// Members of a communicator that have sent nothing since they were asked.
    pub(super) fn silent_since(&self, id: ChannelId, asked: Option<Instant>) -> Vec<Rank> {
        let (Some(channel), Some(asked)) = (self.channels.get(&id), asked) else {
            return Vec::new();
        };
        let is_silent = |rank: &Rank| {
            let member = self.roster.get(*rank);
            member.is_some_and(|member| member.heard < asked)
        };
        channel.present().filter(is_silent).collect()
    }

    /// Ranks that `waiting` wait for in turn, according to their reports, without those in `waiting`: a rank that is
    /// missing in a call may still read payloads of an earlier one.
    pub(super) fn who_is_waited_for_by(&self, id: ChannelId, waiting: &[Rank]) -> Vec<Rank> {
        let Some(channel) = self.channels.get(&id) else {
            return Vec::new();
        };
        // A report from before the rank's last progress is out of date.
        let is_current = |epoch: Epoch, rank: Rank, heard: Instant| {
            let member = self.roster.get(rank);
            member.is_some_and(|member| member.moved <= heard) && channel.is_read_by_in(rank, epoch)
        };
        let of_call = |epoch: Epoch, rank: Rank| {
            let (wait, heard) = channel.stalls.calls.get(&epoch)?.waits.get(&rank)?;
            is_current(epoch, rank, *heard).then_some(&wait.waits_for)
        };
        let (mut asked, mut named): (BTreeSet<Rank>, BTreeSet<Rank>) = Default::default();
        let mut to_ask = waiting.to_vec();
        while let Some(rank) = to_ask.pop() {
            if !asked.insert(rank) {
                continue;
            }
            let stalls = channel.stalls.calls.keys();
            let said = stalls.filter_map(|epoch| of_call(*epoch, rank));
            let mut behind: Vec<Rank> = said.flatten().copied().collect();
            behind.extend(channel.hearsay.iter().flat_map(|hearsay| hearsay.of(rank)));
            if behind.is_empty() {
                named.insert(rank);
            }
            to_ask.extend(behind);
        }
        named.retain(|rank| !waiting.contains(rank));
        named.into_iter().collect()
    }
}
