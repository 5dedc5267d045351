//! Acts on time in a world: warnings, notices of timeout, time-outs.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use fsgather_core::{CallName, ChannelId, Error, Rank, Step, WaitEnd, duration_text};

use super::{
    OpenStage,
    disagreement::Disagreement,
    hearsay::Hearsay,
    round::{Clock, Due, NOTICE_EVERY, Round},
};
use crate::coordinator::{action::Action, roster::RosterEntry};
use crate::message::CallReply;

/// Advice about a time-out.
const MORE_TIME: &str = "set FSGATHER_TIMEOUT to wait longer";

/// Advice about a time-out of a call that was given its own.
const OWN_TIME: &str = "give this call a longer time-out to wait longer";

impl OpenStage {
    /// Lets time pass: warns, and fails calls that have waited too long.
    pub(in crate::coordinator) fn tick(&mut self, now: Instant) {
        self.tick_hearsay(now);
        self.tell_disagreements(now);
        let everywhere = self.look_due().is_some_and(|due| due <= now);
        self.look_for_movement(everywhere, now);
        self.look_at_missing(now);
        let mut late = Vec::new();
        let mut warnings = Vec::new();
        let mut notices = Vec::new();
        for channel in self.channels.values_mut() {
            for (step, round) in &mut channel.undecided {
                match round.take_due(now) {
                    None => {}
                    Some(Due::Late) => late.push(*step),
                    Some(Due::Warning(idle)) => warnings.push((*step, idle)),
                    // Members time out by themselves if rank 0 is silent for too long.
                    Some(Due::Notice) => notices.push(*step),
                }
            }
        }
        for (step, idle) in warnings {
            if let Some((mut what, missing)) = self.missing_in(step) {
                what += &self.arrived_in(step);
                let is_missing = missing.contains(&Rank::ZERO);
                let end = self.end_of_step(step, now);
                let text = self.warn_waiting(&what, missing, (idle, end), now);
                self.notify_waiting(step, is_missing, text);
            }
        }
        for step in notices {
            self.keep_waiting(self.waiting_in(step), step.channel);
        }
        self.tick_closing(now);
        self.look_after_staying(now);
        for step in late {
            if self.extend(step, now) {
                continue;
            }
            if let Some(cause) = self.lateness(step, now) {
                self.fail_channel(step.channel, &cause);
            }
        }
    }

    /// Reports to waiting ranks that rank 0, which was stopped, continues: they have waited longer than it has, and would
    /// give it up before it can report which ranks all wait for.
    pub(in crate::coordinator) fn wake(&mut self, now: Instant) {
        self.woke = Some(now);
        let mut notices = Vec::new();
        for channel in self.channels.values_mut() {
            let rounds = channel.undecided.values_mut();
            let waiting: BTreeSet<usize> = rounds
                .flat_map(|round| {
                    round.clock.last_notice = now;
                    round.waiting().collect::<Vec<usize>>()
                })
                .collect();
            let waiting = waiting.into_iter();
            let waiting: Vec<Rank> = waiting.filter_map(|place| channel.rank_at(place)).collect();
            notices.push((channel.id, waiting));
        }
        if let Some(clock) = &mut self.closing {
            clock.last_notice = now;
            notices.push((ChannelId::WORLD, self.roster.connected()));
        }
        for (channel, waiting) in notices {
            self.keep_waiting(waiting, channel);
        }
    }

    /// Asks ranks what they are doing, if their absence will be reported soon.
    fn look_at_missing(&mut self, now: Instant) {
        if self.world.lead.is_none() {
            return;
        }
        let mut missing = BTreeSet::new();
        for channel in self.channels.values_mut() {
            let rounds = channel.undecided.iter_mut();
            let due: Vec<Step> = rounds
                .filter_map(|(step, round)| round.take_look(now).then_some(*step))
                .collect();
            for step in due {
                if let Some(round) = channel.undecided.get(&step) {
                    missing.extend(channel.missing(round));
                }
            }
        }
        let timeout = self.world.timeout;
        let closing = self.closing.as_mut();
        if closing.is_some_and(|closing| closing.take_look(timeout, now)) {
            missing.extend(self.keep_open());
        }
        if !missing.is_empty() {
            self.look_at(&missing.into_iter().collect::<Vec<Rank>>(), now);
        }
    }

    /// Restarts the time-out of calls that seem stuck if a rank that they wait for has moved something in any call, or if a
    /// rank for which that rank waits in turn has, and so on.
    ///
    /// A call is always examined before it counts as stuck. With `everywhere`, now and then, all calls are, so that waiting
    /// ranks learn in time that they need not give up.
    fn look_for_movement(&mut self, everywhere: bool, now: Instant) {
        let is_idle = |clock: &Clock, timeout: Duration| everywhere || clock.is_idle(timeout, now);
        if everywhere {
            self.looked = now;
            self.has_moved = false;
        }
        let rounds = self.channels.values().flat_map(|channel| {
            let undecided = channel.undecided.iter();
            undecided.map(move |(step, round)| (channel, *step, round))
        });
        let idle = rounds.filter(|(_, _, round)| is_idle(&round.clock, round.timeout()));
        let moved: Vec<(Step, Instant)> = idle
            .filter_map(|(channel, step, round)| {
                Some((step, self.last_movement(channel.missing(round))?))
            })
            .collect();
        for (step, at) in moved {
            let channel = self.channels.get_mut(&step.channel);
            let round = channel.and_then(|channel| channel.undecided.get_mut(&step));
            if let Some(round) = round {
                round.clock.moved_at_last(at);
            }
        }
        let closing = self.closing.as_ref();
        if closing.is_some_and(|clock| is_idle(clock, self.world.timeout)) {
            let at = self.last_movement(self.keep_open());
            if let (Some(closing), Some(at)) = (&mut self.closing, at) {
                closing.moved_at_last(at);
            }
        }
    }

    /// Time of the next search for movement in all calls.
    fn look_due(&self) -> Option<Instant> {
        self.has_moved.then(|| self.looked + NOTICE_EVERY)
    }

    /// Latest movement of `ranks` and of the ranks for which they wait.
    fn last_movement(&self, ranks: Vec<Rank>) -> Option<Instant> {
        self.latest_among(ranks, |member| Some(member.moved))
    }

    /// The latest `moment` of `ranks` and of the ranks for which they wait.
    pub(super) fn latest_among(
        &self,
        ranks: Vec<Rank>,
        moment: impl Fn(&RosterEntry) -> Option<Instant>,
    ) -> Option<Instant> {
        let mut latest = None;
        let mut known: BTreeSet<Rank> = ranks.iter().copied().collect();
        let mut steps = BTreeSet::new();
        let mut held_up = ranks;
        while let Some(rank) = held_up.pop() {
            latest = latest.max(self.roster.get(rank).and_then(&moment));
            for channel in self.channels.values() {
                for (step, round) in channel.waited_in(rank) {
                    if steps.insert(step) {
                        let missing = channel.missing(round).into_iter();
                        held_up.extend(missing.filter(|rank| known.insert(*rank)));
                    }
                }
            }
        }
        latest
    }

    /// The time at which something has to happen next, if nothing else happens before; `ends` are the times at which ranks
    /// count as lost.
    pub(in crate::coordinator) fn next_tick(&self, ends: Option<Instant>) -> Option<Instant> {
        let channels = self.channels.values();
        let due = channels.flat_map(|channel| {
            let rounds = channel.undecided.values().map(Round::next_due);
            let hearsay = channel.hearsay.as_ref().map(Hearsay::due);
            let disagreement = channel.disagreement.as_ref().map(Disagreement::due);
            rounds.chain(hearsay).chain(disagreement)
        });
        let closing = self.closing.as_ref();
        let closing = closing.map(|clock| clock.next_due(self.world.timeout, false));
        let due = due
            .chain(closing)
            .chain(self.staying_due())
            .chain(ends)
            .min();
        // If nothing is due at any time, no rank waits.
        due.map(|due| self.look_due().map_or(due, |look| due.min(look)))
    }

    fn lateness(&self, step: Step, now: Instant) -> Option<Error> {
        let (during, missing) = self.missing_in(step)?;
        let (_, round) = self.undecided(step)?;
        let stacks = self.roster.roll_call(&missing, now);
        Some(Error::timed_out(
            during,
            round.timeout(),
            missing
                .into_iter()
                .map(|rank| self.roster.missing(rank, now))
                .collect(),
            stacks,
            if round.has_own_timeout() {
                OWN_TIME
            } else {
                MORE_TIME
            },
        ))
    }

    pub(super) fn warn_waiting(
        &mut self,
        what: &str,
        missing: Vec<Rank>,
        (idle, end): (Duration, Option<WaitEnd>),
        now: Instant,
    ) -> String {
        const IN_FULL: usize = 16;
        let stacks = self
            .names
            .of_roll_call(self.roster.roll_call(&missing, now));
        let more = missing.len().saturating_sub(IN_FULL);
        let named: Vec<String> = missing
            .into_iter()
            .take(IN_FULL)
            .map(|rank| self.names.of_missing(self.roster.missing(rank, now)))
            .map(|missing| missing.to_string())
            .collect();
        let more = match more {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let end = end.map_or_else(String::new, |end| format!("; {end}"));
        let text = format!(
            "{what} is still waiting for {}{more}; no progress for {}{end}{stacks}",
            named.join(", "),
            duration_text(idle)
        );
        self.queue.push(Action::Warn(text.clone()));
        text
    }

    /// Hands a warning to the other ranks that wait in a step, for their logs. If rank 0 itself is missing, one of them
    /// shows it: warnings on rank 0 stay unseen until its program returns to a call.
    fn notify_waiting(&mut self, step: Step, is_rank_0_missing: bool, text: String) {
        let mut ranks = self.waiting_in(step);
        ranks.retain(|rank| *rank != Rank::ZERO);
        if is_rank_0_missing && !ranks.is_empty() {
            let speaker = ranks.remove(0);
            let text = text.clone();
            self.queue.send(vec![speaker], CallReply::Warning { text });
        }
        self.queue.send(ranks, CallReply::Notice { text });
    }

    /// Watches over the end: ranks that have reached it wait for those that have not, or still read.
    fn tick_closing(&mut self, now: Instant) {
        let Some(clock) = &mut self.closing else {
            return;
        };
        match clock.take_due(self.world.timeout, false, now) {
            None => {}
            Some(Due::Notice) => {
                self.keep_waiting(self.roster.connected(), ChannelId::WORLD);
            }
            Some(Due::Warning(idle)) => {
                let end = self.end_of_closing(now);
                self.warn_waiting("close", self.keep_open(), (idle, end), now);
            }
            Some(Due::Late) => {
                if self.extend_closing(now) {
                    return;
                }
                self.closing = None;
                let mut missing = self.keep_open();
                missing.extend(self.who_is_waited_for_by(ChannelId::WORLD, &missing));
                let stacks = self.roster.roll_call(&missing, now);
                let missing = missing
                    .into_iter()
                    .map(|rank| self.roster.missing(rank, now))
                    .collect();
                self.fail_channel(
                    ChannelId::WORLD,
                    &Error::timed_out("close", self.world.timeout, missing, stacks, MORE_TIME),
                );
            }
        }
    }

    /// Ranks for which the end waits.
    pub(super) fn keep_open(&self) -> Vec<Rank> {
        let ranks = self.world.world_size.ranks();
        ranks
            .filter(|rank| self.roster.is_present(*rank) || self.is_reading(*rank))
            .collect()
    }

    /// Returns true if the end waits for this rank to report that it has read a payload.
    fn is_reading(&self, rank: Rank) -> bool {
        self.channels
            .values()
            .any(|channel| channel.is_read_by(rank))
    }

    /// The name of a step, with the place in the program of the first rank that arrived, and the ranks that it waits for.
    fn missing_in(&self, step: Step) -> Option<(String, Vec<Rank>)> {
        let (channel, round) = self.undecided(step)?;
        let (_, call) = round.first()?;
        let name = CallName::of(call, step.epoch);
        let mut missing = channel.missing(round);
        missing.extend(self.who_is_waited_for_by(step.channel, &missing));
        Some((channel.round_text(&name, step.round), missing))
    }

    /// The number of ranks that have arrived in a step, unless all have.
    fn arrived_in(&self, step: Step) -> String {
        match self.undecided(step) {
            Some((channel, round)) if !round.is_complete() => {
                let (arrived, all) = (round.arrived(), channel.size());
                let are = if arrived == 1 { "is" } else { "are" };
                format!(" ({arrived} of {all} ranks {are} in)")
            }
            _ => String::new(),
        }
    }
}
