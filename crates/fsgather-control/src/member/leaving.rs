//! Lets a member leave, or stay for those who read; and rank 0 likewise.

use std::time::{Duration, Instant};

use fsgather_core::{ChannelId, Epoch, Error, PeerFailure};

use super::{Farewell, GRACE, Member, MemberAction, staying::Staying};
use crate::message::EndRequest;

/// Time for which a rank that is the first to fail, or has waited for rank 0 in vain, stays for those who read what it
/// keeps, while they do not get on.
const FAILING_TIME_LIMIT: Duration = Duration::from_secs(10);

impl Member {
    /// Says that this rank goes. Whoever still waits here for a verdict is told that this is the end.
    pub fn leave(&mut self, cause: Option<Error>) {
        let cause = cause.map(Error::cut_to_size);
        self.send(EndRequest::Leave { cause });
        for id in self.channel_ids() {
            self.fail_channel(id, &Error::closed());
        }
    }

    /// Says that this rank makes no more calls, as [`leave`](Member::leave) does, and stays
    /// [as long as it is needed](Member::is_needed): until all has been read that others can get from it
    /// alone; where it `looks_after_all`, as on rank 0, until all has been read.
    pub fn stay(&mut self, cause: Option<Error>, looks_after_all: bool, now: Instant) {
        self.now = now;
        let cause = cause.map(Error::cut_to_size);
        let is_first_to_fail = cause.is_some() && self.failure(ChannelId::WORLD).is_none();
        // Rank 0 says when the time is over; only where that says nothing at all it is over by itself.
        let timeout = if is_first_to_fail || self.has_given_up {
            FAILING_TIME_LIMIT.min(self.timeout)
        } else {
            self.timeout.saturating_add(GRACE)
        };
        if looks_after_all || self.keeping.is_alone() {
            self.staying = Some(Staying::new(timeout, now));
            self.send(EndRequest::Stay { cause });
        } else {
            self.send(EndRequest::Leave { cause });
        }
        for id in self.channel_ids() {
            self.fail_channel(id, &Error::closed());
        }
    }

    /// Whether this rank, which makes no more calls, has to stay.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        let is_over = self.farewell.is_some() || self.lost.is_some();
        !is_over && self.staying.as_ref().is_some_and(Staying::is_needed)
    }

    /// Ends a stay because somebody wants this process to end.
    pub(super) fn interrupt_stay(&mut self, cause: &Error) {
        let why = match cause {
            Error::PeerFailed {
                failure: PeerFailure::Raised { message },
                ..
            } => message.clone(),
            other => other.to_string(),
        };
        let staying = self.staying.as_mut();
        let said = staying.and_then(|staying| staying.interrupt(&why));
        self.actions.extend(said.map(MemberAction::Warn));
    }

    /// Says that this rank goes, if it has stayed.
    pub fn end_stay(&mut self) {
        if self.staying.take().is_some() {
            self.send(EndRequest::Leave { cause: None });
        }
    }

    /// Of each communicator that this rank is in, the first call after all that were decided, where that is
    /// certain: for who `looks_after_all`, as rank 0 does, everywhere, for others where rank 0 has said that it
    /// decides nothing more.
    #[must_use]
    pub fn undecided(&self, looks_after_all: bool) -> Vec<(ChannelId, Epoch)> {
        let channels = self.channels.values();
        channels
            .filter(|channel| looks_after_all || channel.is_settled())
            .map(|channel| (channel.id(), channel.undecided()))
            .collect()
    }

    /// Has the payloads removed that this rank has published for calls that will never be decided.
    pub(super) fn forget_undecided(&mut self, channel: ChannelId) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.settle();
        }
        for epoch in self.keeping.forget_undecided(channel) {
            self.actions.push(MemberAction::Reclaim { channel, epoch });
        }
    }

    /// Handles rank 0's goodbye.
    pub(super) fn bye(&mut self, orderly: bool) {
        self.farewell = Some(if orderly {
            Farewell::Orderly
        } else {
            Farewell::Disorderly
        });
        let why = self.why_rank_0_left().cloned();
        for id in self.channel_ids() {
            // Of groups that this rank has left it does not know what was decided, nor of any since it stays.
            if self.staying.is_none() {
                self.forget_undecided(id);
            }
            let departed =
                || self.coordinator_failed(self.first_awaited(id), PeerFailure::DEPARTED);
            let cause = why.clone().unwrap_or_else(departed);
            self.fail_channel(id, &cause);
        }
    }

    /// What rank 0 has failed with before it left, as far as is known: of a group it is the end as well.
    pub(super) fn why_rank_0_left(&self) -> Option<&Error> {
        let left_for_it = matches!(self.farewell, Some(Farewell::Disorderly));
        let failure = self.failure(ChannelId::WORLD).filter(|_| left_for_it);
        failure.map(Error::root_cause)
    }
}
