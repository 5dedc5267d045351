//! Decides calls: contributions, releases, aborts.

use std::{collections::BTreeSet, time::Instant};

use bytes::Bytes;
use fsgather_core::{
    Activity, Call, CallName, ChannelId, Contribution, Epoch, Error, Leaves, Operation,
    PeerFailure, Phase, Rank, Recipients, RollCall, Step, Table, Verdict, rank_ranges,
};

use super::{OpenStage, channel::Reading, round::Round, stalls::Stalls};
use crate::coordinator::{action::Action, roster::Standing};
use crate::message::{CallReply, CallRequest};

impl OpenStage {
    pub(super) fn on_call(&mut self, from: Rank, request: CallRequest, now: Instant) {
        match request {
            CallRequest::Contribute {
                step,
                call,
                contribution,
            } => self.contribution(from, step, call, contribution, now),
            CallRequest::Status {
                channel,
                activity,
                bytes,
            } => self.status(from, channel, activity, bytes, now),
            CallRequest::Stalled {
                channel,
                activity,
                wait,
            } => self.stalled(from, channel, activity, wait, now),
            CallRequest::Done { channel, epoch } => {
                self.roster.went_on(from);
                self.finished_reading(channel, epoch, from);
                self.forget_if_over(channel);
            }
            CallRequest::Fail {
                channel,
                cause,
                activity,
            } => {
                self.roster.record_activity(from, activity);
                self.word(from, channel, cause, now);
            }
            CallRequest::AbortSeen { channel } => {
                if let Some(channel) = self.channels.get_mut(&channel) {
                    channel.untold.remove(&from);
                }
            }
        }
    }

    fn status(
        &mut self,
        from: Rank,
        channel: ChannelId,
        activity: Activity,
        bytes: u64,
        now: Instant,
    ) {
        self.roster.record_activity(from, activity);
        let Some(channel) = self.channels.get_mut(&channel) else {
            return;
        };
        // Being alive is not progress: only bytes that moved are.
        if channel.has_moved(from, bytes) {
            channel.moved(now);
            self.record_movement(from, now);
            if let Some(closing) = &mut self.closing {
                closing.moved(now);
            }
        }
    }

    fn contribution(
        &mut self,
        from: Rank,
        step: Step,
        call: Call,
        contribution: Contribution,
        now: Instant,
    ) {
        let activity = Activity::within(Phase::Waiting, CallName::of(&call, step.epoch));
        self.roster.record_activity(from, activity);
        let id = step.channel;
        let channel = self.channels.get_mut(&id);
        let place = channel.as_ref().and_then(|channel| {
            let is_here = channel.is_here(from);
            is_here.then(|| channel.place_of(from)).flatten()
        });
        let (Some(channel), Some(place)) = (channel, place) else {
            let who = self.names.of(from);
            let cause = Error::config(format!("rank {who} made a call in a group it is not in"));
            self.queue
                .send(vec![from], CallReply::Abort { channel: id, cause });
            return;
        };
        if let Some(cause) = channel.failure.clone() {
            // The abort is on its way, or this member was not connected when it was sent.
            self.queue
                .send(vec![from], CallReply::Abort { channel: id, cause });
            return;
        }
        let (size, timeout, lead) = (channel.size(), self.world.timeout, self.world.lead);
        let round = channel
            .undecided
            .entry(step)
            .or_insert_with(|| Round::new(size, timeout, lead, now));
        let fits = round
            .first()
            .is_none_or(|(_, first)| first.difference(&call).is_none());
        let cause = if fits {
            round.arrive(place, call, contribution, now);
            let is_complete = round.is_complete();
            self.record_movement(from, now);
            if is_complete {
                self.decide(step);
                return;
            }
            self.absentee(step).map(|rank| self.absence(step, rank))
        } else {
            // Its arrival counts as progress for other calls that wait for it.
            self.record_movement(from, now);
            let cause = self.difference(step, from, &call);
            if let Some(cause) = cause {
                self.refute(id, cause, now);
            }
            self.join_disagreement(id, from, Some(call), now);
            return;
        };
        self.join_disagreement(id, from, None, now);
        if let Some(cause) = cause {
            self.refute(id, cause, now);
        }
    }

    /// A member that an undecided step waits for and that will not come.
    fn absentee(&self, step: Step) -> Option<Rank> {
        let (channel, round) = self.undecided(step)?;
        if !self.roster.is_broken_up() && !channel.is_broken_up() {
            return None;
        }
        let missing = round.missing();
        let mut missing = missing.filter_map(|place| channel.rank_at(place));
        missing.find(|rank| !self.roster.is_present(*rank) || channel.has_left(*rank))
    }

    /// The error of a rank that makes another call than the first that arrived in a step.
    fn difference(&self, step: Step, from: Rank, call: &Call) -> Option<Error> {
        let (channel, round) = self.undecided(step)?;
        let (place, first) = round.first()?;
        let difference = first.difference(call)?;
        let name = channel.name();
        let said = |rank, one: &Call, other: &Call| {
            let call = format!("{}{name}", channel.told(one).beside(other));
            (self.roster.peer(rank), call)
        };
        let earlier = channel.rank_at(place)?;
        let mut both = [said(earlier, first, call), said(from, call, first)];
        // The text does not depend on which arrived first.
        both.sort_by_key(|(peer, _)| peer.rank);
        let [(one, one_call), (other, other_call)] = both;
        Some(Error::desync(
            call.number,
            difference,
            (one, one_call),
            (other, other_call),
            RollCall::default(),
        ))
    }

    /// Releases a complete step: the only place where a call succeeds.
    pub(super) fn decide(&mut self, step: Step) {
        let Some(channel) = self.channels.get_mut(&step.channel) else {
            return;
        };
        if channel.disagreement.is_some() {
            return;
        }
        // A group ends only when all its payloads have been read.
        let is_early = |round: &Round| round.is_end() && !channel.reading.is_empty();
        if channel.undecided.get(&step).is_none_or(is_early) {
            return;
        }
        let Some(round) = channel.undecided.remove(&step) else {
            return;
        };
        let last = round.last().and_then(|place| channel.rank_at(place));
        let arrivals = round.into_arrivals();
        let refuses = |contribution: &Contribution| contribution.leaves == Leaves::Refusal;
        let is_refused = arrivals
            .iter()
            .any(|(_, contribution)| refuses(contribution));
        let recipients = arrivals
            .first()
            .filter(|_| !is_refused)
            .map_or(Recipients::All, |(call, _)| call.recipients());
        let owners: Vec<(Rank, Leaves)> = channel
            .ranks()
            .zip(&arrivals)
            .map(|(rank, (_, contribution))| (rank, contribution.leaves))
            .filter(|(_, leaves)| leaves.is_acknowledged())
            .collect();
        let acknowledge = !owners.is_empty() && !is_refused;
        let rounds = arrivals.iter().map(|(_, its)| its.further_rounds);
        let further_rounds = rounds.max().filter(|_| !is_refused).unwrap_or(0);
        let bodies = arrivals.into_iter().map(|(_, contribution)| {
            if is_refused && !refuses(&contribution) {
                Bytes::new()
            } else {
                contribution.body
            }
        });
        let bodies: Vec<Bytes> = bodies.collect();
        let receiving: Vec<Rank> = channel.recipients(recipients).collect();
        let members: Vec<Rank> = channel.present().collect();
        let receives: BTreeSet<Rank> = receiving.iter().copied().collect();
        let others = members.iter().copied();
        let only_released: Vec<Rank> = others.filter(|rank| !receives.contains(rank)).collect();
        let mut readers = receives;
        readers.retain(|rank| self.roster.is_connected(*rank));
        let unread = if acknowledge && !readers.is_empty() {
            let reading = Reading { owners, readers };
            channel.reading.insert(step.epoch, reading);
            Vec::new()
        } else {
            // The readers may have left, or get nothing to read.
            owners
        };
        let release = |table| CallReply::Release {
            step,
            verdict: Verdict {
                table,
                further_rounds,
                last,
            },
        };
        let table = Table {
            bodies,
            acknowledge,
        };
        for rank in members {
            self.roster.went_on(rank);
        }
        self.queue.send(receiving, release(Some(table)));
        self.queue.send(only_released, release(None));
        self.reclaim(step.channel, step.epoch, unread);
    }

    /// Aborts everything undecided of a channel: the only place where calls fail.
    pub(in crate::coordinator) fn fail_channel(&mut self, id: ChannelId, cause: &Error) {
        let connected = self.roster.connected();
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        if channel.failure.is_some() {
            return;
        }
        // The disagreement came first.
        let disagreement = channel.disagreement.take();
        let cause = disagreement.map_or_else(|| cause.clone(), |its| self.resolve(id, &its));
        let cause = &cause.cut_to_size();
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        channel.failure = Some(cause.clone());
        channel.hearsay = None;
        channel.stalls = Stalls::default();
        let undecided = std::mem::take(&mut channel.undecided);
        // Members that are here learn from the abort which of their payloads will not be read.
        let unread: Vec<_> = undecided
            .iter()
            .flat_map(|(step, round)| {
                round
                    .left()
                    .map(move |(place, leaves)| (step, place, leaves))
            })
            .filter_map(|(step, place, leaves)| Some((step.epoch, channel.rank_at(place)?, leaves)))
            .filter(|(_, rank, _)| !channel.is_here(*rank))
            .collect();
        // Members that have not come yet get the abort when they do.
        let to: Vec<Rank> = connected
            .into_iter()
            .filter(|rank| channel.is_here(*rank))
            .collect();
        channel.untold = to.iter().copied().collect();
        let cause = cause.clone();
        self.queue.send(to, CallReply::Abort { channel: id, cause });
        for (epoch, owner, leaves) in unread {
            self.reclaim(id, epoch, vec![(owner, leaves)]);
        }
    }

    fn record_movement(&mut self, rank: Rank, now: Instant) {
        if let Some(member) = self.roster.get_mut(rank) {
            member.moved = now;
            self.has_moved = true;
        }
        self.schedule_later_report(now);
    }

    /// Notes that `rank` reads no more of a call, and does what had to wait for that.
    pub(super) fn finished_reading(&mut self, id: ChannelId, epoch: Epoch, rank: Rank) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let owners = channel.finished_reading(epoch, rank);
        let complete = |(_, round): &(&Step, &Round)| round.is_complete();
        let held = channel.undecided.iter().find(complete);
        let held = held.map(|(step, _)| *step);
        self.reclaim(id, epoch, owners);
        if let Some(step) = held {
            self.decide(step);
        }
    }

    /// Removes the payloads of a call that these ranks have published.
    fn reclaim(&mut self, id: ChannelId, epoch: Epoch, owners: Vec<(Rank, Leaves)>) {
        for (owner, leaves) in owners {
            if self.roster.is_connected(owner) {
                self.queue
                    .send(vec![owner], CallReply::Reclaim { channel: id, epoch });
            } else if leaves != Leaves::WithOwner {
                self.queue.push(Action::ReclaimFor {
                    channel: id,
                    epoch,
                    owner,
                });
            }
        }
    }

    /// Names an undecided call and the ranks that are in it.
    fn awaited_call(&self, step: Step) -> Option<String> {
        let (channel, round) = self.undecided(step)?;
        let (_, call) = round.first()?;
        let waiting = self.waiting_in(step).into_iter();
        let mut ranks: Vec<u32> = waiting.map(|rank| self.names.of(rank).get()).collect();
        ranks.sort_unstable();
        let (s, are) = if ranks.len() == 1 {
            ("", "is")
        } else {
            ("s", "are")
        };
        let ranks = rank_ranges(&ranks);
        let call = CallName::of(call, step.epoch);
        Some(format!(
            "{call}{}, in which rank{s} {ranks} {are}",
            channel.name()
        ))
    }

    /// The error of a call that needs a rank that does not take part any more.
    pub(super) fn absence(&self, step: Step, rank: Rank) -> Error {
        let waiting = self.undecided(step).and_then(|(channel, round)| {
            let (other, call) = round.first()?;
            let text = format!("{}{}", channel.told(call), channel.name());
            Some((self.roster.peer(channel.rank_at(other)?), text, call.number))
        });
        let standing = self.roster.get(rank).map(|member| &member.standing);
        match (standing, waiting) {
            (Some(Standing::Closed(site)), Some((other, other_call, number))) => Error::desync(
                number,
                "different operations",
                (
                    self.roster.peer(rank),
                    Call::new(Operation::Close, site.clone()).to_string(),
                ),
                (other, other_call),
                RollCall::default(),
            ),
            (Some(Standing::Staying(failure) | Standing::Gone(failure)), _)
                if !failure.is_departure() =>
            {
                self.roster.failed(rank, failure.clone())
            }
            _ => {
                // A rank leaves a world that has lost another one because of that loss.
                if let Some(lost @ Error::PeerFailed { .. }) = self.failure() {
                    return lost;
                }
                let before = self.awaited_call(step);
                self.roster.failed(rank, PeerFailure::Departed { before })
            }
        }
    }
}
