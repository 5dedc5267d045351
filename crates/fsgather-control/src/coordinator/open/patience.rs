//! Gives ranks that work all the time that they need.
//!
//! Ranks reach a call at times that differ by more than any default can foresee, for example if one has the longest part of
//! a data set. So, if no user has set a time-out, time counts only against a rank that shows no sign of work. The signs
//! come with its answers to questions about its activity: its process has used the processor since the last one, or its
//! thread is somewhere else. A rank that waits for others in another call works if one of those does.

use std::time::{Duration, Instant};

use fsgather_core::{ChannelId, Rank, Step, WaitEnd};

use super::{OpenStage, round::Clock};

impl OpenStage {
    /// Gives a step more time, if no user has set a time-out and every rank that is missing in it has worked or moved something for less
    /// long than its time-out lasts.
    pub(super) fn extend(&mut self, step: Step, now: Instant) -> bool {
        let Some(sign) = self.oldest_sign(step, now) else {
            return false;
        };
        let channel = self.channels.get_mut(&step.channel);
        let Some(round) = channel.and_then(|channel| channel.undecided.get_mut(&step)) else {
            return false;
        };
        round.clock.extend(sign);
        self.keep_waiting(self.waiting_in(step), step.channel);
        true
    }

    /// The last sign of the missing rank that has shown none for longest, unless that is too long ago.
    fn oldest_sign(&self, step: Step, now: Instant) -> Option<Instant> {
        if !self.world.is_patient {
            return None;
        }
        let (channel, round) = self.undecided(step)?;
        let missing = channel.missing(round).into_iter();
        let oldest = missing.map(|rank| self.last_sign(rank)).min()??;
        let is_recent = now.saturating_duration_since(oldest) < round.timeout();
        (is_recent && !round.has_own_timeout()).then_some(oldest)
    }

    /// The same for the end of the world.
    pub(super) fn extend_closing(&mut self, now: Instant) -> bool {
        let missing = self.keep_open().into_iter();
        let oldest = missing.map(|rank| self.last_sign(rank)).min().flatten();
        let is_recent = |sign: &Instant| now.saturating_duration_since(*sign) < self.world.timeout;
        let Some(sign) = oldest.filter(|sign| self.world.is_patient && is_recent(sign)) else {
            return false;
        };
        if let Some(clock) = &mut self.closing {
            clock.extend(sign);
        }
        self.keep_waiting(self.roster.connected(), ChannelId::WORLD);
        true
    }

    /// Returns the end of the wait for ranks that are missing in a step, as a warning names it.
    pub(super) fn end_of_step(&self, step: Step, now: Instant) -> Option<WaitEnd> {
        let (channel, round) = self.undecided(step)?;
        let is_patient = !round.has_own_timeout();
        let end = self.end_of_wait(
            &channel.missing(round),
            &round.clock,
            (round.timeout(), is_patient),
            now,
        );
        Some(end)
    }

    /// Returns the end of the wait for ranks that have not closed the world.
    pub(super) fn end_of_closing(&self, now: Instant) -> Option<WaitEnd> {
        let clock = self.closing.as_ref()?;
        Some(self.end_of_wait(&self.keep_open(), clock, (self.world.timeout, true), now))
    }

    /// `is_patient` is true if the time-out is the default one.
    fn end_of_wait(
        &self,
        missing: &[Rank],
        clock: &Clock,
        (timeout, is_patient): (Duration, bool),
        now: Instant,
    ) -> WaitEnd {
        // Without the right to ask, no signs are seen.
        let sees_work = self.world.is_patient && self.world.lead.is_some();
        if !(sees_work && is_patient) {
            return WaitEnd::UnlessMoved(clock.left(timeout, None, now));
        }
        let works = |rank: &Rank| {
            let seen = self.latest_among(vec![*rank], |member| member.work.last_sign());
            seen.is_some_and(|seen| seen > clock.last_progress)
        };
        let oldest = missing.iter().map(|rank| self.last_sign(*rank)).min();
        let left = clock.left(timeout, oldest.flatten(), now);
        if !missing.is_empty() && missing.iter().all(works) && !left.is_zero() {
            WaitEnd::Working
        } else {
            WaitEnd::UnlessWork(left)
        }
    }

    /// The last sign of work of a rank, or of one that it waits for.
    fn last_sign(&self, rank: Rank) -> Option<Instant> {
        self.latest_among(vec![rank], |member| {
            member.work.last_sign().max(Some(member.moved))
        })
    }
}
