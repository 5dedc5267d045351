//! Acts on time in a member: it asks a silent rank 0 whether it is there, warns, and gives it up in the end.

use std::time::Instant;

use fsgather_core::{
    Activity, CallName, ChannelId, Deadline, Error, Missing, Phase, Rank, RankNames, WaitEnd,
    duration_text,
};

use super::{
    GRACE, Member, MemberAction, channel::Channel, silence::Due, staying::Staying,
    watching::OWN_LOOK,
};
use crate::message::Probe;

impl Member {
    /// Lets time pass: gives up on a rank 0 whose answer is long overdue.
    pub fn tick(&mut self, now: Instant) {
        self.now = now;
        self.look_at_silence(now);
        let said = self.staying.as_mut().and_then(|staying| staying.tick(now));
        self.actions.extend(said.map(MemberAction::Warn));
        let overdue = self.channels.values().filter_map(|channel| {
            let is_due = self.due(channel).is_some_and(|due| now >= due);
            let owed = channel.first_owed(self.timeout);
            is_due.then(|| (channel.id(), owed, channel.heard()))
        });
        let overdue: Vec<_> = overdue.collect();
        for (id, owed, heard) in overdue {
            let (during, timeout) = match owed {
                Some(owed) => (
                    format!(
                        "{}, of which the outcome is unknown",
                        name_of(id, &owed.call)
                    ),
                    owed.timeout,
                ),
                None => ("close".into(), self.timeout),
            };
            let missing = Missing {
                rank: Rank::ZERO,
                process: Some((self.coordinator.host.clone(), self.coordinator.pid)),
                last_seen: Some((
                    Activity::outside(Phase::Coordinating),
                    now.saturating_duration_since(heard),
                )),
            };
            let cause = Error::timed_out(
                during,
                timeout.saturating_add(GRACE),
                vec![missing],
                self.watching.roll_call(),
                format!(
                    "see whether rank 0 is stopped or its host unreachable; set FSGATHER_TIMEOUT to more than {} to \
                     wait longer (rank 0 has {} on top of it, since only it could say for whom all wait)",
                    duration_text(timeout),
                    duration_text(GRACE)
                ),
            );
            self.fail_channel(id, &cause);
            self.has_given_up = true;
        }
    }

    /// Time of the next call of [`tick`](Member::tick), if nothing else happens before.
    #[must_use]
    pub fn next_tick(&self) -> Option<Instant> {
        let overdue = self.overdue_at();
        let since = self.waiting_since();
        let staying = self.staying.as_ref().filter(|_| self.is_needed());
        let silence = since.map(|since| self.silence.due(since));
        let told = self.silence_told_at(overdue, since);
        let look = told.and_then(|told| self.watching.due(told));
        let due = overdue.into_iter().chain(silence).chain(look);
        due.chain(staying.and_then(Staying::next_tick)).min()
    }

    /// Time at which the first of the communicators gives up on rank 0.
    fn overdue_at(&self) -> Option<Instant> {
        let channels = self.channels.values();
        channels.filter_map(|channel| self.due(channel)).min()
    }

    /// Time of the next report of rank 0's silence, if it stays silent for a rank that waits since `since`.
    fn silence_told_at(&self, overdue: Option<Instant>, since: Option<Instant>) -> Option<Instant> {
        let warning = since.and_then(|since| self.silence.warns(since, self.heard));
        overdue.into_iter().chain(warning).min()
    }

    /// Time since which this rank waits for a message of rank 0, if it does.
    fn waiting_since(&self) -> Option<Instant> {
        let is_over = self.farewell.is_some() || self.lost.is_some();
        let channels = self.channels.values();
        let channels = channels.filter(|channel| channel.failure().is_none());
        let awaited = channels.filter_map(Channel::awaiting_since);
        let staying = self.staying.as_ref().filter(|_| self.is_needed());
        awaited
            .chain(staying.map(Staying::since))
            .chain(
                self.closing
                    .filter(|_| self.failure(ChannelId::WORLD).is_none()),
            )
            .chain(self.stall.as_ref().and_then(|stall| stall.since(self.now)))
            .min()
            .filter(|_| !is_over)
    }

    /// Sets the names of ranks in warnings from now on.
    pub fn name_ranks(&mut self, names: &RankNames) {
        self.watching.name_ranks(names);
    }

    /// Asks a rank 0 that has been silent for long whether it is there, and warns if it does not answer: only rank 0 knows
    /// which ranks all wait for.
    pub(super) fn look_at_silence(&mut self, now: Instant) {
        self.now = now;
        let since = self.waiting_since();
        if self.watching.is_worth_a_look(self.heard, now)
            && let Some(told) = self.silence_told_at(self.overdue_at(), since)
            && let Some(root) = self.watching.take_look(told, now)
        {
            self.actions.push(MemberAction::Look {
                number: OWN_LOOK,
                neighbour: Some(root),
            });
        }
        let Some(since) = since else {
            return;
        };
        match self.silence.look(since, self.heard, now) {
            None => {}
            Some(Due::Ask) => self.send(Probe::Ask),
            Some(Due::Warning(silent)) => {
                let mut channels = self.channel_ids().into_iter();
                let awaited = channels.find_map(|id| Some(name_of(id, &*self.first_awaited(id)?)));
                let stalled = self.stall.as_ref();
                let stalled = stalled.map(|stall| name_of(stall.channel(), stall.call()));
                let during = awaited.or(stalled).unwrap_or_else(|| "close".into());
                let names = self.watching.names();
                let stall = self.stall.as_ref();
                let stall_end = stall.and_then(|stall| stall.times_out_at(now));
                let end = self.overdue_at().into_iter().chain(stall_end).min();
                let end = end.map(|end| WaitEnd::After(end.saturating_duration_since(now)));
                let end = end.map_or_else(String::new, |end| format!("; {end}"));
                self.actions.push(MemberAction::Warn(format!(
                    "{during} is still waiting for {}, which has not said for {} that it is there; see whether it \
                     is stopped or its host unreachable{end}{}",
                    names.of_peer(self.coordinator.clone()),
                    duration_text(silent),
                    names.of_roll_call(self.watching.roll_call())
                )));
            }
        }
    }

    /// Time at which rank 0 is overdue with an answer for a channel.
    fn due(&self, channel: &Channel) -> Option<Instant> {
        // Rank 0 learns of the close only once no abandoned call needs this rank any more.
        let is_closing = self.closing.is_some() && self.close_at.is_none();
        let is_closing = is_closing && self.farewell.is_none() && self.lost.is_none();
        let is_end = is_closing && channel.id() == ChannelId::WORLD && channel.failure().is_none();
        let owed = channel.first_owed(self.timeout);
        let timeout = self.timeout.saturating_add(GRACE);
        let end = is_end.then(|| Deadline::after(channel.heard(), timeout).at());
        owed.map(|owed| owed.due(GRACE))
            .into_iter()
            .chain(end)
            .min()
    }
}

/// Name of a call of a communicator in messages. Rank 0, which knows the ranks of a group, would name them.
fn name_of(id: ChannelId, call: &CallName) -> String {
    match id {
        ChannelId::WORLD => call.to_string(),
        _ if call.site.is_known() => format!("{} in a group at {}", call.short(), call.site),
        _ => format!("{} in a group", call.short()),
    }
}

#[cfg(test)]
mod tests {
    use fsgather_core::{Epoch, Operation, Site};

    use super::*;

    #[test]
    fn a_call_of_a_group_is_named_with_its_place_if_that_is_known() {
        let call = |site| CallName {
            operation: Operation::AllGather,
            number: 3,
            epoch: Epoch::new(3),
            tag: None,
            site,
        };
        let (known, unknown) = (call(Site::named("eval.py:7")), call(Site::default()));
        let group = ChannelId::new(7);
        assert_eq!(
            name_of(group, &known),
            "all_gather #3 in a group at eval.py:7"
        );
        assert_eq!(name_of(group, &unknown), "all_gather #3 in a group");
        assert_eq!(name_of(ChannelId::WORLD, &known), known.to_string());
    }
}
