//! Lets a member leave, or stay until its payloads have been read; and rank 0 likewise.

use std::time::{Duration, Instant};

use fsgather_core::{ChannelId, Epoch, Error, PeerFailure};

use super::{Farewell, GRACE, Member, MemberAction, staying::Staying};
use crate::message::EndRequest;

/// Maximum time that a rank stays for its readers without progress of theirs, if it is the first to fail or has waited for
/// rank 0 in vain.
const FAILING_TIME_LIMIT: Duration = Duration::from_secs(10);

impl Member {
    /// Reports that this rank leaves. Threads that still wait here for a verdict get the error that the world is closed.
    pub fn leave(&mut self, cause: Option<Error>) {
        let cause = cause.map(Error::cut_to_size);
        self.send(EndRequest::Leave { cause });
        for id in self.channel_ids() {
            self.fail_channel(id, &Error::closed());
        }
    }

    /// Reports that this rank makes no more calls, as [`leave`](Member::leave) does, and stays [as long as it is
    /// needed](Member::is_needed): until the others have read all payloads that only this rank can provide; with
    /// `looks_after_all`, as on rank 0, until all payloads have been read.
    pub fn stay(&mut self, cause: Option<Error>, looks_after_all: bool, now: Instant) {
        self.now = now;
        let cause = cause.map(Error::cut_to_size);
        let is_first_to_fail = cause.is_some() && self.failure(ChannelId::WORLD).is_none();
        // Rank 0 reports the end of the stay; the time limit is for a rank 0 that stays silent.
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

    /// Returns true if this rank, which makes no more calls, has to stay.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        let is_over = self.farewell.is_some() || self.lost.is_some();
        !is_over && self.staying.as_ref().is_some_and(Staying::is_needed)
    }

    /// Ends a stay because the user wants this process to end.
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

    /// Reports that this rank leaves, if it has stayed.
    pub fn end_stay(&mut self) {
        if self.staying.take().is_some() {
            self.send(EndRequest::Leave { cause: None });
        }
    }

    /// For each communicator of this rank, the first call after all decided ones, if that is certain: with
    /// `looks_after_all`, as on rank 0, for all communicators, otherwise for those of which rank 0 has reported that it
    /// decides nothing more.
    #[must_use]
    pub fn undecided(&self, looks_after_all: bool) -> Vec<(ChannelId, Epoch)> {
        let channels = self.channels.values();
        channels
            .filter(|channel| looks_after_all || channel.is_settled())
            .map(|channel| (channel.id(), channel.undecided()))
            .collect()
    }

    /// Removes the payloads that this rank has published for calls that will never be decided.
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
            // A rank receives no decisions for groups that it has left, nor any once it stays.
            if self.staying.is_none() {
                self.forget_undecided(id);
            }
            let departed =
                || self.coordinator_failed(self.first_awaited(id), PeerFailure::DEPARTED);
            let cause = why.clone().unwrap_or_else(departed);
            self.fail_channel(id, &cause);
        }
    }

    /// The failure because of which rank 0 left, as far as is known: groups end by it as well.
    pub(super) fn why_rank_0_left(&self) -> Option<&Error> {
        let left_for_it = matches!(self.farewell, Some(Farewell::Disorderly));
        let failure = self.failure(ChannelId::WORLD).filter(|_| left_for_it);
        failure.map(Error::root_cause)
    }
}
