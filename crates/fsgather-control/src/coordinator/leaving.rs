//! How a world comes apart: closing, leaving, being lost, and the goodbye.

use std::time::Instant;

use fsgather_core::{Activity, Error, PeerFailure, Phase, Rank, Site};

use super::{Coordinator, roster::Standing, round::Clock};
use crate::message::ToMember;

impl Coordinator {
    pub(super) fn close(&mut self, from: Rank, site: Site, now: Instant) {
        self.note_activity(from, Activity::outside(Phase::Closing));
        if let Some(member) = self.roster.get_mut(from) {
            member.standing = Standing::Closed(site);
        }
        self.closing
            .get_or_insert_with(|| Clock::started(now))
            .moved(now);
        self.fail_calls_that_need(from);
    }

    pub(super) fn leave(&mut self, from: Rank, cause: Option<&Error>) {
        let failed = cause.is_some();
        let failure = match cause {
            None => PeerFailure::Departed,
            Some(cause) => PeerFailure::Raised {
                message: cause.to_string(),
            },
        };
        let activity = self
            .roster
            .get(from)
            .map_or(Activity::outside(Phase::Closing), |member| member.activity);
        self.depart(from, failure.clone());
        if failed {
            let peer = self.roster.peer(from);
            let cause = Error::PeerFailed {
                peer,
                activity,
                failure,
            };
            for id in self.channels_of(from) {
                self.fail_channel(id, &cause);
            }
        } else {
            self.fail_calls_that_need(from);
        }
    }

    /// Aborts the undecided calls to which `rank`, which will not contribute any more, has not.
    pub(super) fn fail_calls_that_need(&mut self, rank: Rank) {
        for id in self.channels_of(rank) {
            let needed = self.channels.get(&id).and_then(|channel| {
                let mut steps = channel.undecided.iter();
                steps.find_map(|(step, round)| (!round.has(rank)).then_some(*step))
            });
            if let Some(step) = needed {
                let cause = self.absence(step, rank);
                self.fail_channel(id, &cause);
            }
        }
    }

    /// Takes a rank off all lists of those we wait for.
    pub(super) fn depart(&mut self, rank: Rank, failure: PeerFailure) {
        if let Some(member) = self.roster.get_mut(rank) {
            member.standing = Standing::Gone(failure);
        }
        let mut reading = Vec::new();
        for channel in self.channels.values_mut() {
            channel.untold.remove(&rank);
            reading.extend(channel.reading.keys().map(|epoch| (channel.id, *epoch)));
        }
        for (id, epoch) in reading {
            self.finished_reading(id, epoch, rank);
        }
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
            self.gone = true;
            let orderly = self
                .channels
                .values()
                .all(|channel| channel.failure.is_none());
            let to = self.members_to_tell();
            self.send(to, ToMember::Bye { orderly });
        }
    }
}
