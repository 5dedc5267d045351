//! Takes a world apart: closing, leaving, being lost, and the goodbye.

use std::time::Instant;

use fsgather_core::{Activity, ChannelId, Error, PeerFailure, Phase, Rank, Site};

use super::{Coordinator, roster::Standing, round::Clock};
use crate::message::{EndReply, EndRequest};

impl Coordinator {
    pub(super) fn on_end(&mut self, from: Rank, request: EndRequest, now: Instant) {
        match request {
            EndRequest::Close { site } => self.close(from, site, now),
            EndRequest::Stay { cause } => self.stay(from, cause.as_ref(), now),
            EndRequest::Leave { cause } => self.leave(from, cause.as_ref()),
            EndRequest::SiblingExited { rank } => self.suspect(rank, now),
        }
    }

    fn close(&mut self, from: Rank, site: Site, now: Instant) {
        self.record_activity(from, Activity::outside(Phase::Closing));
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
        // It says what keeps all from meeting, and whose failure it is.
        match cause {
            Some(cause @ Error::Rendezvous { .. }) => self.give_up(cause),
            Some(cause @ Error::PeerFailed { .. }) if !self.open => self.give_up(cause),
            _ => {}
        }
        self.part_with(from, cause, Standing::Gone);
    }

    /// Notes that a rank makes no more calls, and how it stands from now on.
    pub(super) fn part_with(
        &mut self,
        from: Rank,
        cause: Option<&Error>,
        standing: fn(PeerFailure) -> Standing,
    ) {
        let failure = match cause {
            None => PeerFailure::DEPARTED,
            Some(cause) => PeerFailure::Raised {
                message: cause.to_string(),
            },
        };
        let activity = self
            .roster
            .get(from)
            .map_or(Activity::outside(Phase::Closing), |member| {
                member.activity.clone()
            });
        let channels = self.depart(from, standing(failure.clone()));
        let peer = self.roster.peer(from);
        let cause = cause.map(|_| Error::peer_failed(peer, activity, failure));
        for id in channels {
            match &cause {
                Some(cause) => self.fail_after_answers(id, cause),
                None => self.fail_call_that_needs(from, id),
            }
            self.confirm_hearsay(from, id);
            self.forget_if_over(id);
        }
    }

    /// Aborts the calls of a communicator if `rank`, which will not contribute any more, is missing in one.
    pub(super) fn fail_call_that_needs(&mut self, rank: Rank, id: ChannelId) {
        if let Some(cause) = self.absence_from(id, rank) {
            self.fail_after_answers(id, &cause);
        }
    }

    /// What to say of a rank that will not contribute any more, if a call of a communicator waits for it.
    fn absence_from(&self, id: ChannelId, rank: Rank) -> Option<Error> {
        let channel = self.channels.get(&id)?;
        let place = channel.place_of(rank)?;
        let mut steps = channel.undecided.iter();
        let step = steps.find_map(|(step, round)| (!round.has(place)).then_some(*step))?;
        Some(self.absence(step, rank))
    }

    /// Takes a rank off all lists of those we wait for; the communicators that it was in.
    pub(super) fn depart(&mut self, rank: Rank, standing: Standing) -> Vec<ChannelId> {
        self.roster.part_with(rank, standing);
        let ids: Vec<ChannelId> = self.channels.keys().copied().collect();
        ids.into_iter()
            .filter(|id| self.dismiss(rank, *id))
            .collect()
    }

    /// Says goodbye once nobody is in a call any more and all payloads have been read.
    pub(super) fn finish_if_all_left(&mut self) {
        let all_left = self.open
            && !self.gone
            && self
                .world
                .world_size
                .ranks()
                .all(|rank| !self.roster.is_present(rank));
        let all_read = self
            .channels
            .values()
            .all(|channel| channel.reading.is_empty());
        if all_left && all_read {
            self.settle_disagreements();
            self.gone = true;
            // What has failed in a group is the business of that group.
            let orderly = self.failure().is_none();
            let to = self.members_to_inform();
            self.send(to, EndReply::Bye { orderly });
        }
    }
}
