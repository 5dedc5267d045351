//! Checks aborts: the ranks that they name, and the time of time-outs.

use std::{collections::BTreeSet, time::Duration};

use fsgather_core::{Call, ChannelId, Error, PeerFailure, Rank, Round, Step};

use super::{Broken, Checked, Connected, Exchange, Ledger, promise};
use crate::{rank::raised, script::TIME_LIMIT};

/// The failure of a rank in a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(super) channel: ChannelId,
    pub(super) step: Option<Step>,
    pub(super) error: Error,
}

impl Ledger {
    pub(super) fn aborts(
        &mut self,
        to: &[Rank],
        channel: ChannelId,
        cause: &Error,
        now: Duration,
        connected: Connected<'_>,
    ) -> Checked {
        if let Some(first) = self.abort_of(channel) {
            promise!(
                first == cause,
                "P3: first {channel:?} fails with \"{first}\", then with \"{cause}\""
            );
            return Ok(());
        }
        if let Error::Timeout {
            during, missing, ..
        } = cause
        {
            let missing = missing.iter().map(|missing| missing.rank).collect();
            self.check_timeout(channel, during, &missing, now, connected)?;
        } else {
            self.check_names(channel, cause)?;
        }
        if let Error::PeerFailed {
            peer,
            failure: PeerFailure::Lost { .. },
            ..
        } = cause
        {
            let mut undecided = self
                .exchanges
                .iter()
                .filter(|(step, exchange)| step.channel == channel && !exchange.released);
            promise!(
                !self.came_to_close.contains(&peer.rank)
                    || undecided.any(|(_, exchange)| !exchange.arrived.contains(&peer.rank)),
                "P3: nobody needs rank {} any more, and its loss makes the world fail",
                peer.rank
            );
        }
        // If several ranks are lost at the same time, later ones may still be notified.
        let Some(lane) = self.lanes.get_mut(&channel) else {
            return Err(Broken(format!("P3: {channel:?} fails, which nobody made")));
        };
        let mut listeners = lane.listeners(connected).into_iter();
        promise!(
            listeners.all(|rank| to.contains(&rank)),
            "P3: only {to:?} are told of the failure"
        );
        lane.untold.extend(to);
        lane.abort = Some(cause.clone());
        lane.aborted_at = Some(now);
        Ok(())
    }

    /// Checks that the error names a rank that something was done to.
    fn check_names(&self, channel: ChannelId, cause: &Error) -> Checked {
        let named: BTreeSet<Rank> = match cause {
            Error::PeerFailed { peer, .. } => [peer.rank].into(),
            Error::Desync { one, other, .. } => [one.rank, other.rank].into(),
            other => self.all().filter(|rank| *other == raised(*rank)).collect(),
        };
        // If the world has failed, ranks leave when they have nothing more to do in their groups.
        let has_to_leave = |rank: &Rank| {
            let mut failures = self.failures.iter();
            channel != ChannelId::WORLD
                && failures.any(|((failed, _), failure)| {
                    failed == rank && failure.channel == ChannelId::WORLD
                })
        };
        let has_left = |rank: &Rank| {
            let lane = self.lanes.get(&channel);
            lane.is_some_and(|lane| lane.left.contains(rank)) && !self.culprits.is_empty()
        };
        let is_guilty =
            |rank: &Rank| self.culprits.contains(rank) || has_to_leave(rank) || has_left(rank);
        let guilty = named.iter().any(is_guilty);
        promise!(
            guilty || self.rank_0_was_disturbed,
            "P3: \"{cause}\" names {named:?}, but things were done to {:?}",
            self.culprits
        );
        Ok(())
    }

    /// Rank 0's name of a channel.
    fn name_of(&self, channel: ChannelId) -> String {
        if channel == ChannelId::WORLD {
            return String::new();
        }
        let members = self.members(channel).iter();
        let members: Vec<String> = members.map(ToString::to_string).collect();
        format!(" in the group of ranks {}", members.join(" "))
    }

    /// Latest movement of these ranks, or of a rank for which one of them waits, and so on.
    fn last_movement(
        &self,
        ranks: &BTreeSet<Rank>,
        now: Duration,
        connected: Connected<'_>,
    ) -> Option<Duration> {
        // An exchange that fails at the same moment was waited for until now.
        let is_waited_for = |channel| {
            let lane = self.lanes.get(&channel);
            lane.is_some_and(|lane| lane.aborted_at.is_none_or(|at| at == now))
        };
        let mut held_up = ranks.clone();
        loop {
            let mut more = held_up.clone();
            for (step, exchange) in self.exchanges.iter().filter(|(_, e)| !e.released) {
                if is_waited_for(step.channel) && !exchange.arrived.is_disjoint(&more) {
                    more.extend(self.missing(*step, exchange, connected));
                }
            }
            if more == held_up {
                break;
            }
            held_up = more;
        }
        held_up
            .iter()
            .filter_map(|rank| self.moved.get(rank).copied())
            .max()
    }

    /// Ranks that an exchange waits for.
    fn missing(&self, step: Step, exchange: &Exchange, connected: Connected<'_>) -> BTreeSet<Rank> {
        let members = self.members(step.channel).iter().copied();
        let missing: BTreeSet<Rank> = members
            .filter(|rank| !exchange.arrived.contains(rank))
            .collect();
        if missing.is_empty() {
            // The end of a group waits for its readers.
            return self.readers_of(step.channel, connected);
        }
        missing
    }

    /// Checks that a time-out happens exactly when nothing has moved for as long as the time-out lasts, and names exactly
    /// the ranks that are missing.
    fn check_timeout(
        &self,
        channel: ChannelId,
        during: &str,
        named: &BTreeSet<Rank>,
        now: Duration,
        connected: Connected<'_>,
    ) -> Checked {
        if self.rank_0_was_disturbed {
            return Ok(());
        }
        let mut arrived = BTreeSet::new();
        let (missing, since) = if during == "close" {
            let is_in = |rank: &Rank| connected(*rank) && !self.stayed.contains_key(rank);
            let all = self.all().filter(is_in);
            let missing = all
                .filter(|rank| !self.came_to_close.contains(rank) || self.reads(*rank, connected))
                .collect();
            (missing, self.closing)
        } else {
            let name = self.name_of(channel);
            // The first rank that arrived determines the place in the program.
            let is_it = |step: Step, call: &Call| {
                let text = text_of(step, call) + &name;
                during == format!("{text} at {}", call.site)
            };
            let exchange = self.exchanges.iter().find(|(step, exchange)| {
                let mut calls = exchange.handed_in.values();
                !exchange.released
                    && step.channel == channel
                    && calls.any(|(call, _)| is_it(**step, call))
            });
            let Some((step, exchange)) = exchange else {
                return Err(Broken(format!("P7: nobody waits for {during}")));
            };
            let missing = self.missing(*step, exchange, connected);
            arrived.clone_from(&exchange.arrived);
            (missing, Some(exchange.last_progress))
        };
        promise!(
            *named == missing,
            "P7: {during} timed out for {named:?}, missing are {missing:?}"
        );
        let after = |since: Duration| since + Duration::from_secs(TIME_LIMIT);
        // A failure that is reported late has happened before, and later movement made no difference to it.
        let is_late_news = since.map(after) < Some(now)
            && self.lanes.get(&channel).is_some_and(|lane| lane.is_unheard);
        // A rank that waits for one with progress elsewhere is not stuck.
        let since = since.max(self.last_movement(&missing, now, connected));
        let due = since.map(after);
        // In between it may have waited for others in turn, and their movement counted as well. That takes something else
        // that ranks wait in: another group, a call that was started before, the end.
        let mut undecided = self.exchanges.values();
        let is_one_of_several = self.lanes.len() > 1
            || during == "close"
            || undecided.any(|other| {
                !other.released && !other.arrived.is_empty() && other.arrived != arrived
            });
        let counted = || {
            let moment = now.checked_sub(Duration::from_secs(TIME_LIMIT));
            is_one_of_several
                && due.is_none_or(|due| due < now)
                && moment.is_some_and(|moment| self.movements.contains(&moment))
        };
        promise!(
            due == Some(now) || counted() || is_late_news,
            "P7: {during} timed out at {now:?} instead of {due:?}"
        );
        Ok(())
    }
}

/// Rank 0's name of a step in a time-out, except for its group.
fn text_of(step: Step, call: &Call) -> String {
    if step.round == Round::VERDICT {
        call.operation.numbered(call.number)
    } else {
        format!(
            "{} (part {})",
            call.operation.numbered(call.number),
            step.round.get()
        )
    }
}
