//! Payloads that go from rank to rank and do not get on: [`Stalls`].
//!
//! Such a call is decided already, so that rank 0 waits for nothing itself. It knows what its members say: between
//! whom nothing moves. A rank that waits is not the one that is waited for in the end: who keeps all from getting
//! on is blamed by others and does not wait, or is not there at all. So rank 0 asks the others whether they are.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use fsgather_core::{
    Activity, CallName, ChannelId, Epoch, FIRST_WARNING, Rank, Round as RoundNumber, WaitEnd,
    warning_after,
};

use super::{Coordinator, round_text};
use crate::message::Probe;

/// Who does not answer within so long is not there.
const ANSWER: Duration = Duration::from_secs(9);

/// When nothing has moved for so long the others are asked, so that they have answered when it is time to warn.
const ASK_AT: Duration = Duration::from_secs(20);

/// For so long after rank 0 was stopped itself, what members say of a rest is old: they waited for rank 0. Where nothing
/// moves still, it comes again.
const STALE: Duration = Duration::from_secs(2);

/// For so long a member's word holds; it comes again before.
const FRESH: Duration = Duration::from_secs(45);

/// A member's report that nothing moves between it and others in a call.
#[derive(Clone, Debug)]
pub(super) struct StallReport {
    pub(super) waits_for: Vec<Rank>,
    pub(super) idle: Duration,
    /// The time-out of the call.
    pub(super) timeout: Duration,
    pub(super) heard: Instant,
}

/// What is known of one call.
#[derive(Clone, Debug)]
struct Stall {
    waits: BTreeMap<Rank, StallReport>,
    next_warning: Duration,
    /// When the others were last asked whether they are there.
    asked: Option<Instant>,
}

/// What is known of the calls of one communicator.
#[derive(Clone, Debug, Default)]
pub(super) struct Stalls {
    calls: BTreeMap<Epoch, Stall>,
}

impl Stalls {
    /// Takes a member's word about a call.
    fn record(&mut self, from: Rank, epoch: Epoch, wait: StallReport) -> &mut Stall {
        let now = wait.heard;
        let is_fresh = |wait: &StallReport| now.saturating_duration_since(wait.heard) < FRESH;
        self.calls.retain(|_, stall| {
            stall.waits.retain(|_, wait| is_fresh(wait));
            !stall.waits.is_empty()
        });
        let stall = self.calls.entry(epoch).or_insert_with(|| Stall {
            waits: BTreeMap::new(),
            next_warning: FIRST_WARNING,
            asked: None,
        });
        let idle = wait.idle;
        let before = stall.waits.insert(from, wait);
        if before.is_some_and(|before| before.idle > idle) {
            // It has moved on since.
            stall.next_warning = FIRST_WARNING;
        }
        stall
    }
}

impl Stall {
    /// Whether it is time to warn, which it is once.
    fn is_to_warn(&mut self, idle: Duration) -> bool {
        let is_due = idle >= self.next_warning;
        while self.next_warning <= idle {
            self.next_warning = warning_after(self.next_warning);
        }
        is_due
    }

    /// Whether it is time to ask the others, which it is once.
    fn is_to_ask(&mut self, idle: Duration, now: Instant) -> bool {
        let is_old = |asked: Instant| now.saturating_duration_since(asked) >= ANSWER;
        let is_due = idle >= ASK_AT && self.asked.is_none_or(is_old);
        if is_due {
            self.asked = Some(now);
        }
        is_due
    }

    /// Those that are waited for and do not wait.
    fn blamed(&self) -> BTreeSet<Rank> {
        let waited_for = self.waits.values().flat_map(|wait| &wait.waits_for);
        waited_for
            .filter(|rank| !self.waits.contains_key(rank))
            .copied()
            .collect()
    }
}

impl Coordinator {
    /// Handles a member's word that nothing moves between it and others.
    pub(super) fn stalled(
        &mut self,
        from: Rank,
        id: ChannelId,
        activity: Activity,
        wait: StallReport,
    ) {
        let StallReport {
            idle,
            timeout,
            heard: now,
            ..
        } = wait;
        self.record_activity(from, activity.clone());
        // Who was stopped itself hears now what was said of that.
        if self.woke.is_some_and(|woke| now < woke + STALE) {
            return;
        }
        let channel = self.channels.get_mut(&id);
        let channel = channel.filter(|channel| channel.failure.is_none());
        let (Some(channel), Some(call)) = (channel, activity.call) else {
            return;
        };
        let stall = channel.stalls.record(from, call.epoch, wait);
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
            let text = self.call_text(&call, id);
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
        self.send(members.unwrap_or_default(), Probe::Ask);
    }

    /// The members of a communicator that have said nothing since they were asked.
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

    /// For whom these ranks wait in turn, as they have said, and nobody of them: who does not come to a call may read
    /// what belongs to one before.
    pub(super) fn who_is_waited_for_by(&self, id: ChannelId, waiting: &[Rank]) -> Vec<Rank> {
        let Some(channel) = self.channels.get(&id) else {
            return Vec::new();
        };
        // What was said before it got on is old.
        let is_current = |epoch: Epoch, rank: Rank, wait: &StallReport| {
            let member = self.roster.get(rank);
            member.is_some_and(|member| member.moved <= wait.heard)
                && channel.is_read_by_in(rank, epoch)
        };
        let of_call = |epoch: Epoch, rank: Rank| {
            let wait = channel.stalls.calls.get(&epoch)?.waits.get(&rank)?;
            is_current(epoch, rank, wait).then_some(&wait.waits_for)
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

    fn call_text(&self, call: &CallName, channel: ChannelId) -> String {
        let round = RoundNumber::VERDICT;
        let channel = self.channels.get(&channel);
        channel.map_or_else(String::new, |channel| round_text(call, round, channel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stall() -> Stall {
        Stall {
            waits: BTreeMap::new(),
            next_warning: FIRST_WARNING,
            asked: None,
        }
    }

    fn just_before(time: Duration) -> Duration {
        time.saturating_sub(Duration::from_millis(1))
    }

    #[test]
    fn others_are_asked_once_it_has_taken_long_and_again_once_an_answer_is_overdue() {
        let (mut stall, start) = (stall(), Instant::now());
        assert!(!stall.is_to_ask(just_before(ASK_AT), start));
        assert!(stall.is_to_ask(ASK_AT, start));
        assert!(!stall.is_to_ask(ASK_AT * 2, start + just_before(ANSWER)));
        assert!(!stall.is_to_ask(just_before(ASK_AT), start + ANSWER));
        assert!(stall.is_to_ask(ASK_AT * 2, start + ANSWER));
    }

    #[test]
    fn each_warning_comes_once_also_where_several_are_due() {
        let mut stall = stall();
        assert!(!stall.is_to_warn(just_before(FIRST_WARNING)));
        let third = warning_after(warning_after(FIRST_WARNING));
        assert!(stall.is_to_warn(third) && !stall.is_to_warn(third));
        assert!(stall.is_to_warn(warning_after(third)));
    }
}
