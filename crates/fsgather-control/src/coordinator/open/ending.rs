//! Handles the end of ranks, and of the world: closing, leaving, being lost, and the goodbye.

use std::time::Instant;

use fsgather_core::{Activity, ChannelId, Error, Phase, Rank, Site};

use super::{OpenStage, round::Clock};
use crate::coordinator::roster::Standing;
use crate::message::{EndReply, EndRequest};

impl OpenStage {
    pub(super) fn on_end(&mut self, from: Rank, request: EndRequest, now: Instant) {
        match request {
            EndRequest::Close { site } => self.close(from, site, now),
            EndRequest::Stay { cause } => self.stay(from, cause.as_ref(), now),
            EndRequest::Leave { cause } => self.leave(from, cause.as_ref()),
            // Its messages may still arrive.
            EndRequest::SiblingExited { .. } => {}
        }
    }

    fn close(&mut self, from: Rank, site: Site, now: Instant) {
        let activity = Activity::outside(Phase::Closing);
        self.roster.record_activity(from, activity);
        self.roster.part_with(from, Standing::Closed(site));
        let lead = self.world.lead;
        self.closing
            .get_or_insert_with(|| Clock::started(now, lead))
            .moved(now);
        for id in self.channels_of(from) {
            if let Some(cause) = self.absence_from(id, from) {
                self.refute(id, cause, now);
            }
        }
    }

    fn leave(&mut self, from: Rank, cause: Option<&Error>) {
        self.staying.remove(&from);
        // It is the reason for which ranks cannot meet.
        if let Some(cause @ Error::Rendezvous { .. }) = cause {
            self.fail_channel(ChannelId::WORLD, cause);
        }
        let failed = self.roster.leave(from, cause, Standing::Gone);
        self.dismiss_everywhere(from, failed.as_ref());
    }

    /// Handles the loss of a member's process or host, noticed as `how` says.
    pub(in crate::coordinator) fn lost(&mut self, rank: Rank, how: &str) {
        self.staying.remove(&rank);
        // A rank that stays for it alone has to go at once.
        self.schedule_report(self.looked_after_staying);
        // The loss of a member that had reached the end, and had reported that, is not a failure.
        let failed = self.roster.lose(rank, how);
        for id in self.dismiss_from_all(rank) {
            if let Some(failed) = &failed {
                self.fail_after_answers(id, failed);
            }
        }
        // Also if it has left before, and others could not read what it stayed for.
        let all: Vec<ChannelId> = self.channels.keys().copied().collect();
        for id in all {
            self.confirm_hearsay(rank, id);
            self.forget_if_over(id);
        }
    }

    /// Removes a rank, which has left or stays, from all communicators. Calls that wait for it fail.
    pub(super) fn dismiss_everywhere(&mut self, rank: Rank, failed: Option<&Error>) {
        for id in self.dismiss_from_all(rank) {
            match failed {
                Some(failed) => self.fail_after_answers(id, failed),
                None => self.fail_call_that_needs(rank, id),
            }
            self.confirm_hearsay(rank, id);
            self.forget_if_over(id);
        }
    }

    /// Removes a rank from all communicators, and returns those that it was in.
    fn dismiss_from_all(&mut self, rank: Rank) -> Vec<ChannelId> {
        let ids: Vec<ChannelId> = self.channels.keys().copied().collect();
        ids.into_iter()
            .filter(|id| self.dismiss(rank, *id))
            .collect()
    }

    /// Aborts the calls of a communicator if `rank`, which will not contribute any more, is missing in one.
    pub(super) fn fail_call_that_needs(&mut self, rank: Rank, id: ChannelId) {
        if let Some(cause) = self.absence_from(id, rank) {
            self.fail_after_answers(id, &cause);
        }
    }

    /// The error of a rank that will not contribute any more, if a call of a communicator waits for it.
    fn absence_from(&self, id: ChannelId, rank: Rank) -> Option<Error> {
        let channel = self.channels.get(&id)?;
        let place = channel.place_of(rank)?;
        let mut steps = channel.undecided.iter();
        let step = steps.find_map(|(step, round)| (!round.has(place)).then_some(*step))?;
        Some(self.absence(step, rank))
    }

    /// Returns true if no rank takes part any more and all payloads have been read.
    pub(in crate::coordinator) fn is_over(&self) -> bool {
        let mut ranks = self.roster.ranks();
        let mut channels = self.channels.values();
        ranks.all(|rank| !self.roster.is_present(rank))
            && channels.all(|channel| channel.reading.is_empty())
    }

    /// Says goodbye to all; in good order if the world is over and has not failed. The failure of a group concerns only that group.
    pub(in crate::coordinator) fn say_goodbye(&mut self, is_over: bool) {
        self.settle_disagreements();
        let orderly = is_over && self.failure().is_none();
        let to = self.roster.connected();
        self.queue.send(to, EndReply::Bye { orderly });
    }
}
