//! Ranks that have left and stay because other ranks have still to read their payloads.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use fsgather_core::{Error, Peer, Rank, duration_text};

use super::{OpenStage, channel::Channel};
use crate::coordinator::{action::Action, roster::Standing};
use crate::message::EndReply;

/// Minimum interval between reports to a rank that stays that its readers make progress.
const TELL_EVERY: Duration = Duration::from_secs(2);

impl OpenStage {
    /// Notes that a rank makes no more calls, and reports to it for which readers it has to stay.
    pub(super) fn stay(&mut self, from: Rank, cause: Option<&Error>, now: Instant) {
        let failed = self.roster.leave(from, cause, Standing::Staying);
        self.dismiss_everywhere(from, failed.as_ref());
        let by = self.needed_by(from, now);
        self.report_needed(from, &by);
        if !by.is_empty() {
            self.staying.insert(from, (by, now));
        }
    }

    /// Ranks that have still to read a payload that goes with this rank; for rank 0, which removes everything, any payload.
    /// Readers without progress for the time-out do not count.
    fn needed_by(&self, rank: Rank, now: Instant) -> BTreeSet<Rank> {
        let mut readers = self.readers_of(rank);
        readers.retain(|reader| self.timeout_ends(*reader).is_none_or(|end| now < end));
        readers
    }

    fn readers_of(&self, rank: Rank) -> BTreeSet<Rank> {
        let channels = self.channels.values();
        let mut readers: BTreeSet<Rank> = channels
            .clone()
            .flat_map(|channel| channel.readers_of(rank))
            .collect();
        if rank == Rank::ZERO {
            readers.extend(channels.flat_map(Channel::readers));
        }
        readers.remove(&rank);
        readers
    }

    /// Time from which this reader is no longer waited for; `None` if that is out of range.
    fn timeout_ends(&self, reader: Rank) -> Option<Instant> {
        let member = self.roster.get(reader)?;
        member.moved.checked_add(self.world.timeout)
    }

    fn report_needed(&mut self, rank: Rank, by: &BTreeSet<Rank>) {
        let by: Vec<Peer> = by.iter().map(|rank| self.roster.peer(*rank)).collect();
        self.queue.send(vec![rank], EndReply::Needed { by });
    }

    /// Notes that a reader has made progress, or is gone: ranks that stay get a report at `soon`, or earlier if one is due before.
    pub(super) fn schedule_report(&mut self, soon: Instant) {
        if !self.staying.is_empty() {
            let due = self.tell_staying.get_or_insert(soon);
            *due = soon.min(*due);
        }
    }

    /// Schedules it after a reader's progress, which ranks that stay need not learn more often.
    pub(super) fn schedule_later_report(&mut self, now: Instant) {
        self.schedule_report(now + TELL_EVERY);
    }

    /// Time of the next check of ranks that stay.
    pub(super) fn staying_due(&self) -> Option<Instant> {
        let readers = self.staying.keys().flat_map(|rank| self.readers_of(*rank));
        let ends = readers.filter_map(|reader| self.timeout_ends(reader));
        let ends = ends.filter(|end| *end > self.looked_after_staying);
        ends.chain(self.tell_staying).min()
    }

    /// Releases ranks that no reader needs any more, and reports to the others that their readers make progress.
    pub(in crate::coordinator) fn look_after_staying(&mut self, now: Instant) {
        self.looked_after_staying = now;
        let is_due = self.tell_staying.is_some_and(|due| now >= due);
        if is_due {
            self.tell_staying = None;
        }
        let staying: Vec<Rank> = self.staying.keys().copied().collect();
        for rank in staying {
            let by = self.needed_by(rank, now);
            if by.is_empty() {
                self.warn_of_unread(rank);
                self.staying.remove(&rank);
                self.report_needed(rank, &by);
                continue;
            }
            let moved_since = |then| {
                let mut by = by.iter().filter_map(|rank| self.roster.get(*rank));
                by.any(|member| member.moved > then)
            };
            let is_news = |(told, at): &(BTreeSet<Rank>, Instant)| *told != by || moved_since(*at);
            if !self.staying.get(&rank).is_some_and(is_news) {
                continue;
            }
            if is_due {
                self.report_needed(rank, &by);
                self.staying.insert(rank, (by, now));
            } else {
                self.schedule_later_report(now);
            }
        }
    }

    fn warn_of_unread(&mut self, rank: Rank) {
        let unread = self.readers_of(rank);
        if let Some(reader) = unread.iter().next() {
            let called = |rank| self.names.of_peer(self.roster.peer(rank));
            let (reader, owner) = (called(*reader), called(rank));
            let more = match unread.len() - 1 {
                0 => " has".to_owned(),
                more => format!(" and {more} more have"),
            };
            self.queue.push(Action::Warn(format!(
                "{owner} ends although {reader}{more} not read what was handed over; no progress for {}",
                duration_text(self.world.timeout)
            )));
        }
    }
}
