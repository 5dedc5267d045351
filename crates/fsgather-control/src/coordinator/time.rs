//! Acts on time in a world: warnings, notices of timeout, time-outs.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use fsgather_core::{
    CallName, ChannelId, Deadline, Error, Rank, RollCall, Step, WaitEnd, duration_text,
};

use super::{
    Action, Coordinator,
    roster::RosterEntry,
    round::{Clock, Due, NOTICE_EVERY, Round},
    round_text,
};
use crate::message::CallReply;

/// What to do about a time-out.
const MORE_TIME: &str = "set FSGATHER_TIMEOUT to wait longer";

/// The same for a call that was given a time-out.
const OWN_TIME: &str = "give this call a longer time-out to wait longer";

/// How long the last words of a process that has ended may take to arrive.
///
/// Its own connection carries them and usually ends by itself; unless a forked child holds it open.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A step that is not decided.
struct UndecidedStep {
    /// What it is called, with its place in the program of who came first.
    during: String,
    /// For whom it waits.
    missing: Vec<Rank>,
    /// How many have come, unless all have.
    arrived: Option<String>,
}

impl Coordinator {
    /// Lets time pass: warns, and fails what has waited too long.
    pub fn tick(&mut self, now: Instant) {
        if self.gone {
            return;
        }
        // First who is gone: nobody has to wait for them, and no time-out names them.
        self.tick_suspects(now);
        self.tick_hearsay(now);
        self.tell_disagreements(now);
        if self.gone {
            return;
        }
        if !self.open && self.failure().is_none() {
            match self.opens_at {
                None => self.tick_forming(now),
                Some(_) => self.tick_late_claims(now),
            }
        }
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
                    Some(Due::Notice) => {
                        let waiting = round.waiting();
                        notices.push((*step, waiting.collect::<Vec<usize>>()));
                    }
                }
            }
        }
        for (step, idle) in warnings {
            if let Some(waiting) = self.missing_in(step) {
                let what = match waiting.arrived {
                    None => waiting.during,
                    Some(arrived) => format!("{} ({arrived})", waiting.during),
                };
                let is_missing = waiting.missing.contains(&Rank::ZERO);
                let end = self.end_of_step(step, now);
                let text = self.warn_waiting(&what, waiting.missing, (idle, end), now);
                self.notify_waiting(step, is_missing, text);
            }
        }
        for (step, waiting) in notices {
            let channel = self.channels.get(&step.channel);
            let rank_at = |place| channel?.rank_at(place);
            let waiting = waiting.into_iter().filter_map(rank_at).collect();
            let channel = step.channel;
            self.send(waiting, CallReply::KeepWaiting { channel });
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
        self.finish_if_all_left();
    }

    /// Tells those who wait that rank 0, which was stopped, goes on: they have waited longer than it has, and
    /// would give it up before it can tell them whom all wait for.
    pub fn wake(&mut self, now: Instant) {
        if self.gone {
            return;
        }
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
            notices.push((ChannelId::WORLD, self.members_to_inform()));
        }
        for (channel, waiting) in notices {
            self.send(waiting, CallReply::KeepWaiting { channel });
        }
    }

    /// Asks what those are doing whose absence will soon be told.
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

    /// Calls that seem to be stuck are not, as long as a rank that they wait for has moved something, for
    /// whatever other call; or a rank for which such a rank waits in turn, and so on.
    ///
    /// Before one is taken for stuck it is looked at in any case; `everywhere` now and then, so that those
    /// who wait learn in time that they need not give up.
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

    /// When it is time to look for movement everywhere.
    fn look_due(&self) -> Option<Instant> {
        self.has_moved.then(|| self.looked + NOTICE_EVERY)
    }

    /// When one of `ranks`, or somebody for whom one of them waits, has last moved something.
    fn last_movement(&self, ranks: Vec<Rank>) -> Option<Instant> {
        self.latest_among(ranks, |member| Some(member.moved))
    }

    /// The latest of such moments of `ranks` and of those for whom they wait.
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

    /// When [`tick`](Coordinator::tick) has to be called next, if nothing else happens before.
    #[must_use]
    pub fn next_tick(&self) -> Option<Instant> {
        if self.gone {
            return None;
        }
        let forming = (!self.open && self.failure().is_none()).then(|| {
            let timeout = self.world.join_timeout.min(self.next_forming_warning);
            let waits = || Deadline::after(self.started, timeout).at();
            self.opens_at.unwrap_or_else(waits)
        });
        let rounds = self
            .channels
            .values()
            .flat_map(|channel| channel.undecided.values())
            .map(Round::next_due);
        let closing = self.closing.as_ref();
        let closing = closing.map(|clock| clock.next_due(self.world.timeout, false));
        let suspects = self.suspects.values().copied();
        let missed = self.missed.values().map(|(until, _)| *until);
        let hearsay = self.channels.values();
        let hearsay = hearsay.filter_map(|channel| Some(channel.hearsay.as_ref()?.due()));
        let disagreements = self.channels.values();
        let disagreements =
            disagreements.filter_map(|channel| Some(channel.disagreement.as_ref()?.due()));
        let due = forming
            .into_iter()
            .chain(rounds)
            .chain(closing)
            .chain(suspects)
            .chain(missed)
            .chain(hearsay)
            .chain(disagreements)
            .chain(self.staying_due())
            .min();
        // Where nothing is due at any time, nobody waits.
        due.map(|due| self.look_due().map_or(due, |look| due.min(look)))
    }

    /// Notes that a rank's process is reported to have ended.
    ///
    /// Its last words may still be on their way, so it counts as lost only a little later. Of rank 0 such a
    /// report is wrong: it is this process here.
    pub fn suspect(&mut self, rank: Rank, now: Instant) {
        if rank != Rank::ZERO && self.roster.is_connected(rank) {
            self.suspects.entry(rank).or_insert(now + LAST_WORDS);
        }
    }

    /// Whether the last words of somebody who is reported to have ended are waited for.
    #[must_use]
    pub fn has_suspects(&self) -> bool {
        !self.suspects.is_empty()
    }

    fn tick_suspects(&mut self, now: Instant) {
        let suspects = self.suspects.iter();
        let ended: Vec<Rank> = suspects
            .filter(|(_, until)| **until <= now)
            .map(|(rank, _)| *rank)
            .collect();
        for rank in ended {
            self.lost(rank, "its process has ended");
        }
        let missed = self.missed.iter();
        let not_back: Vec<Rank> = missed
            .filter(|(_, (until, _))| *until <= now)
            .map(|(rank, _)| *rank)
            .collect();
        for rank in not_back {
            self.stays_away(rank);
        }
    }

    fn tick_forming(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.started);
        let missing: Vec<_> = self
            .roster
            .absent()
            .map(|rank| self.roster.missing(rank, now))
            .collect();
        if elapsed >= self.world.join_timeout {
            let world_size = self.world.world_size;
            self.give_up(&Error::Timeout {
                during: format!(
                    "meeting of {world_size} ranks ({} joined)",
                    world_size.count() - missing.len()
                ),
                timeout: self.world.join_timeout,
                missing,
                hint: self.missing_hint(),
                stacks: RollCall::default(),
            });
        } else if elapsed >= self.next_forming_warning {
            self.next_forming_warning *= 2;
            self.actions.push(Action::Warn(format!(
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

    fn lateness(&self, step: Step, now: Instant) -> Option<Error> {
        let UndecidedStep {
            during, missing, ..
        } = self.missing_in(step)?;
        let round = self.channels.get(&step.channel)?.undecided.get(&step)?;
        Some(Error::Timeout {
            during,
            timeout: round.timeout(),
            stacks: self.roll_call(&missing, now),
            missing: missing
                .into_iter()
                .map(|rank| self.roster.missing(rank, now))
                .collect(),
            hint: if round.has_own_timeout() {
                OWN_TIME.into()
            } else {
                MORE_TIME.into()
            },
        })
    }

    pub(super) fn warn_waiting(
        &mut self,
        what: &str,
        missing: Vec<Rank>,
        (idle, end): (Duration, Option<WaitEnd>),
        now: Instant,
    ) -> String {
        const IN_FULL: usize = 16;
        let stacks = self.names.of_roll_call(self.roll_call(&missing, now));
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
        self.actions.push(Action::Warn(text.clone()));
        text
    }

    /// Hands a warning to the other ranks that wait in a step, for their logs. Where rank 0 is missing itself, one of them says it:
    /// what rank 0 tells its program stays unheard until that comes back from what it is doing.
    fn notify_waiting(&mut self, step: Step, is_rank_0_missing: bool, text: String) {
        let channel = self.channels.get(&step.channel);
        let ranks = channel.and_then(|channel| {
            let waiting = channel.undecided.get(&step)?.waiting();
            let waiting = waiting.filter_map(|place| channel.rank_at(place));
            Some(waiting.filter(|rank| *rank != Rank::ZERO).collect())
        });
        let mut ranks: Vec<Rank> = ranks.unwrap_or_default();
        if is_rank_0_missing && !ranks.is_empty() {
            let speaker = ranks.remove(0);
            let text = text.clone();
            self.send(vec![speaker], CallReply::Warning { text });
        }
        self.send(ranks, CallReply::Notice { text });
    }

    /// Watches over the end: ranks that have come to it wait for those that have not, or still read.
    fn tick_closing(&mut self, now: Instant) {
        let Some(clock) = &mut self.closing else {
            return;
        };
        match clock.take_due(self.world.timeout, false, now) {
            None => {}
            Some(Due::Notice) => {
                let waiting = self.members_to_inform();
                let channel = ChannelId::WORLD;
                self.send(waiting, CallReply::KeepWaiting { channel });
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
                let stacks = self.roll_call(&missing, now);
                let missing = missing
                    .into_iter()
                    .map(|rank| self.roster.missing(rank, now))
                    .collect();
                self.give_up(&Error::Timeout {
                    during: "close".into(),
                    timeout: self.world.timeout,
                    missing,
                    hint: MORE_TIME.into(),
                    stacks,
                });
            }
        }
    }

    /// For whom the end waits.
    pub(super) fn keep_open(&self) -> Vec<Rank> {
        let ranks = self.world.world_size.ranks();
        ranks
            .filter(|rank| self.roster.is_present(*rank) || self.is_reading(*rank))
            .collect()
    }

    /// Whether the end waits for this rank to say that it has read something.
    fn is_reading(&self, rank: Rank) -> bool {
        self.channels
            .values()
            .any(|channel| channel.is_read_by(rank))
    }

    /// What a step is called, and whom it waits for.
    fn missing_in(&self, step: Step) -> Option<UndecidedStep> {
        let channel = self.channels.get(&step.channel)?;
        let round = channel.undecided.get(&step)?;
        let (_, call) = round.first()?;
        let arrived = (!round.is_complete()).then(|| {
            let (arrived, all) = (round.arrived(), channel.size());
            let are = if arrived == 1 { "is" } else { "are" };
            format!("{arrived} of {all} ranks {are} in")
        });
        let name = CallName::of(call, step.epoch);
        let mut missing = channel.missing(round);
        missing.extend(self.who_is_waited_for_by(step.channel, &missing));
        Some(UndecidedStep {
            during: round_text(&name, step.round, channel),
            missing,
            arrived,
        })
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
