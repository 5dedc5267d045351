//! The one primitive of the control plane: [`Exchange`].

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    Activity, Call, CallId, CallName, ChannelId, Epoch, Error, Operation, Peer, Phase, Rank,
    RankNames, RollCall, Round, Site, Step, WorldSize,
    received_bytes::{in_place, in_place_each},
};

/// The data that a rank has published for others to read, and the rank that removes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Leaves {
    /// Nothing.
    #[default]
    Nothing,
    /// A payload that its single reader removes.
    ForReader,
    /// A payload that its owner removes after all recipients have reported [`done`](Exchange::done), and that remains
    /// when the owner exits.
    ForOwner,
    /// The same in the memory of its owner, which disappears with the owner.
    WithOwner,
    /// Nothing. The body is the reason why there is no payload, and every member gets it: the call is over.
    Refusal,
}

impl Leaves {
    /// Returns true if there is data that must be reclaimed.
    #[must_use]
    pub const fn is_published(self) -> bool {
        !matches!(self, Self::Nothing | Self::Refusal)
    }

    /// Returns true if recipients must report when they are [`done`](Exchange::done).
    #[must_use]
    pub const fn is_acknowledged(self) -> bool {
        matches!(self, Self::ForOwner | Self::WithOwner)
    }
}

/// The input of one rank to one exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contribution {
    /// A small payload, or a locator of a large one; at most [`Exchange::body_limit`] bytes.
    #[serde(deserialize_with = "in_place")]
    pub body: Bytes,
    /// The data that this rank has published for others to read.
    pub leaves: Leaves,
    /// The number of further rounds that this rank needs for data that does not fit into one body.
    pub further_rounds: u32,
}

impl Contribution {
    /// A contribution that leaves nothing to be reclaimed.
    #[must_use]
    pub fn inline(body: impl Into<Bytes>) -> Self {
        Self {
            body: body.into(),
            ..Self::default()
        }
    }
}

/// The contributions that recipients of an exchange get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// One body for each rank, in rank order.
    #[serde(deserialize_with = "in_place_each")]
    pub bodies: Vec<Bytes>,
    /// True if [`Exchange::done`] must be called once everything announced here has been read.
    pub acknowledge: bool,
}

/// The result that every rank gets when an exchange succeeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The contributions, on recipients.
    pub table: Option<Table>,
    /// The number of further rounds of the call: the largest number that any rank needs.
    pub further_rounds: u32,
    /// The last rank that handed in, by its number in the world.
    pub last: Option<Rank>,
}

/// The undecided calls of a rank that has left, and the fate of its leftovers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Departure {
    /// True if rank 0 will remove the leftovers: on rank 0, if all other ranks have left as well; elsewhere, if
    /// rank 0 was still there; for a group, always.
    pub in_good_hands: bool,
    /// For each communicator of this rank, the first call after all decided ones, if it is certain that neither that
    /// call nor a later one has succeeded.
    pub undecided: Vec<(ChannelId, Epoch)>,
}

impl Departure {
    /// Returns true if it is certain that this call has not succeeded. Calls of communicators that this rank was not
    /// in, or has left, are unknown.
    #[must_use]
    pub fn is_undecided(&self, channel: ChannelId, epoch: Epoch) -> bool {
        let mut undecided = self.undecided.iter();
        undecided.any(|(of, first)| *of == channel && epoch >= *first)
    }
}

/// Proof that a call was started: it carries the number of the call.
#[derive(Clone, Debug)]
pub struct Ticket {
    /// The communicator.
    pub channel: ChannelId,
    /// The number of the call.
    pub epoch: Epoch,
    /// The call that was made.
    pub call: Arc<Call>,
}

impl Ticket {
    /// Returns the number of the call in its world.
    #[must_use]
    pub const fn id(&self) -> CallId {
        CallId {
            channel: self.channel,
            epoch: self.epoch,
        }
    }

    /// The address of one exchange of this call.
    #[must_use]
    pub const fn step(&self, round: Round) -> Step {
        Step {
            channel: self.channel,
            epoch: self.epoch,
            round,
        }
    }

    /// A phase of this call.
    #[must_use]
    pub fn activity(&self, phase: Phase) -> Activity {
        Activity::within(phase, CallName::of(&self.call, self.epoch))
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.call.operation.numbered(self.call.number))
    }
}

/// Called when a payload that a rank published may be removed, with the rank's number in the world; must not block.
pub type ReclaimSink = Arc<dyn Fn(ChannelId, Epoch, Rank) + Send + Sync>;

/// Called during long work, at least every 100 ms, with the number of bytes moved since the last time. An error from it
/// ends the work and is returned as it is.
pub type Progress<'a> = dyn FnMut(u64) -> Result<(), Error> + 'a;

/// Asks the ranks of a world for their activities. It may outlive its world.
pub trait Onlooker: Send + Sync {
    /// Asks these ranks, and asks other processes of their hosts about them. Never blocks, and asks no rank twice
    /// within a second.
    fn look_at(&self, ranks: &[Rank]);

    /// Returns the known activities of these ranks. A rank that was asked and has not answered counts as silent.
    fn roll_call(&self, ranks: &[Rank]) -> RollCall;
}

/// Every rank hands in a small contribution; when all have, the recipients get all contributions in
/// rank order.
///
/// A barrier is an exchange of nothing, a broadcast one in which only the root contributes. All three
/// implementations (threads, TCP, marker files) pass the same conformance suite.
///
/// # Guarantees
///
/// - Each exchange has at most one verdict, and no two ranks learn different ones.
/// - It succeeds only when every rank has handed in a contribution to the *same* call: operation,
///   root, bound and type are compared, and a difference is [`Error::Desync`] on all ranks.
/// - A rank that fails, is lost or is late before the verdict makes the call fail on every rank with
///   the same error. After a failure the channel is poisoned: later calls return
///   [`Error::Poisoned`].
/// - If ranks hand in a [refusal](Leaves::Refusal), the verdict brings every rank the refusals, and empty bodies for
///   the others. Payloads that others have published are reclaimed, and the channel stays usable.
/// - Waiting is bounded by the time-out, which counts from the last progress.
///
/// Methods may be called from several threads. Calls are numbered in the order of [`begin`], which must be the same on
/// all ranks. Several calls may be under way at a time, and the program may wait for their verdicts in any order.
///
/// # Groups
///
/// An exchange of some of the ranks ([`group`]) is a channel of its own: its calls are numbered separately,
/// fail separately, and may be made at the same time as those of other channels. Within it ranks have the
/// numbers 0 to n - 1, in the order in which they were listed; errors name them by their numbers in the
/// world.
///
/// [`begin`]: Exchange::begin
/// [`group`]: Exchange::group
pub trait Exchange: Send + Sync {
    /// The lane of this exchange.
    fn channel(&self) -> ChannelId;

    /// The rank of this process in the exchange.
    fn rank(&self) -> Rank;

    /// The number of ranks that take part.
    fn world_size(&self) -> WorldSize;

    /// Host and process of every rank, in rank order, each with its number in the world.
    fn peers(&self) -> &[Peer];

    /// The largest body a contribution may have, in bytes.
    fn body_limit(&self) -> usize;

    /// Returns true if this rank knows of a failure: no call succeeds any more.
    fn has_failed(&self) -> bool;

    /// Numbers a call. The next step must be [`contribute`](Exchange::contribute) or [`fail`](Exchange::fail).
    ///
    /// # Errors
    ///
    /// [`Error::Poisoned`] after a failure.
    fn begin(&self, call: Call) -> Result<Ticket, Error>;

    /// Hands in this rank's contribution to one round, without waiting.
    ///
    /// # Errors
    ///
    /// The agreed error if the call has failed already.
    fn contribute(
        &self,
        ticket: &Ticket,
        round: Round,
        contribution: Contribution,
    ) -> Result<(), Error>;

    /// Waits for the verdict on one round, for `limit` at most. Returns `None` after that time, which has no effect on
    /// any rank. With a limit of zero it does not block. A verdict is returned once.
    ///
    /// # Errors
    ///
    /// The agreed error if the call failed.
    fn wait_for(
        &self,
        ticket: &Ticket,
        round: Round,
        limit: Option<Duration>,
    ) -> Result<Option<Verdict>, Error>;

    /// Gives up the verdict of a call to which this rank has contributed. Never blocks. The other ranks are not
    /// affected: data that this rank would have received counts as read.
    ///
    /// If this rank still has to send its payload of the call in further rounds, the call fails on all ranks.
    fn abandon(&self, ticket: &Ticket);

    /// Reports that this rank cannot continue a call, in the given phase, before or after its verdict. Returns the
    /// error that all ranks agree on, which is usually `cause`.
    fn fail(&self, ticket: &Ticket, phase: Phase, cause: Error) -> Error;

    /// Records that this rank is at work, so that no rank times out meanwhile. Cheap; call it often.
    ///
    /// # Errors
    ///
    /// The agreed error if the call has failed elsewhere: stop working on it.
    fn progress(&self, ticket: &Ticket, phase: Phase, bytes: u64) -> Result<(), Error>;

    /// Sends the queued messages of this rank at once, although it does not wait for an answer next.
    fn send_on(&self) {}

    /// Reports that payloads of a call go from rank to rank, and that nothing has moved for `idle` between this rank
    /// and the ranks that it waits for, given by their numbers in the world. Cheap, so that callers can report at every
    /// check. After a while rank 0 warns the user of the ranks that block all others.
    fn stalled(&self, _ticket: &Ticket, _waits_for: &[Rank], _idle: Duration) {}

    /// Reports that this recipient has read all payloads of the call.
    fn done(&self, ticket: &Ticket);

    /// Sets the names of the ranks of the world in messages. Errors keep the numbers of the ranks, except in the texts
    /// of rank 0.
    fn name_ranks(&self, _names: &RankNames) {}

    /// Sets the function that removes payloads that no rank needs any more: one for the world and all its groups.
    fn set_reclaim_sink(&self, sink: ReclaimSink);

    /// Makes current and later calls fail on all ranks. Does not wait. Interrupting a world also interrupts all groups
    /// of this rank; interrupting a group affects no other channel.
    fn interrupt(&self, cause: Error);

    /// Returns an exchange of some of these ranks, in the order given, over the same connections.
    ///
    /// Local and cheap: no rank waits for another. All members, and no other ranks, must make it, with the same list
    /// and channel, before calls on it succeed. `channel` is best taken from [`ChannelId::of_group`]. It is possible on
    /// a channel that has failed.
    ///
    /// Dropping it leaves the group: calls of the others that need this rank fail. A group ends at the latest with its
    /// world.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if `members` is not a list of different ranks of this exchange with this rank among them, if
    /// this rank uses the channel already, or if this exchange is closed.
    fn group(&self, channel: ChannelId, members: &[Rank]) -> Result<Box<dyn Exchange>, Error>;

    /// Ends the communicator together with all other ranks of it.
    ///
    /// `Ok` means that all recipients have read the data of every call of this rank. Closing the world closes all its
    /// groups.
    ///
    /// # Errors
    ///
    /// A failure of any earlier call that this rank has not reported yet, or of a rank that did not call `close`.
    fn close(&self, site: Site) -> Result<(), Error>;

    /// Leaves without the others: this rank makes no more calls. With a cause, calls that still need it fail with that
    /// cause. Called when a communicator is dropped.
    ///
    /// Decided results stay readable. A rank that keeps payloads in its memory stays until their recipients are done or
    /// dead. Rank 0 stays until the recipients of all payloads are, because only it knows them. Each stays at most for
    /// the time-out, counted from the last progress, no longer than rank 0 is there, and names the ranks that it waits
    /// for. A rank that is the first to fail stays only for some seconds without progress, an interrupted rank not at
    /// all. No rank waits for anything else longer than a few seconds.
    ///
    /// Leaving again changes nothing and returns the same. A group is left at once.
    fn leave(&self, cause: Option<Error>) -> Departure;

    /// Returns a probe for the activities of all ranks of the world, on rank 0; `None` elsewhere, and if ranks are
    /// threads.
    fn onlooker(&self) -> Option<Arc<dyn Onlooker>> {
        None
    }

    /// Waits for the verdict on one round.
    ///
    /// # Errors
    ///
    /// The agreed error if the call failed.
    fn wait(&self, ticket: &Ticket, round: Round) -> Result<Verdict, Error> {
        self.wait_for(ticket, round, None)?
            .ok_or_else(Error::closed)
    }

    /// Makes one whole exchange: begin, contribute, wait. Returns the table on recipients, `None` on other ranks.
    ///
    /// # Errors
    ///
    /// Those of its three parts.
    fn exchange(&self, call: Call, body: Bytes) -> Result<Option<Table>, Error> {
        let ticket = self.begin(call)?;
        self.contribute(&ticket, Round::VERDICT, Contribution::inline(body))?;
        Ok(self.wait(&ticket, Round::VERDICT)?.table)
    }

    /// Waits until every rank has made this call.
    ///
    /// # Errors
    ///
    /// Those of [`exchange`](Exchange::exchange).
    fn barrier(&self, site: Site) -> Result<(), Error> {
        self.exchange(Call::new(Operation::Barrier, site), Bytes::new())
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_from_a_channels_first_undecided_on_are_undecided() {
        let departure = Departure {
            in_good_hands: true,
            undecided: vec![(ChannelId::WORLD, Epoch::new(7))],
        };
        let is_undecided = |epoch| departure.is_undecided(ChannelId::WORLD, Epoch::new(epoch));
        assert!(!is_undecided(6) && is_undecided(7) && is_undecided(8));
        assert!(!departure.is_undecided(ChannelId::new(5), Epoch::new(8)));
        assert!(!Departure::default().is_undecided(ChannelId::WORLD, Epoch::new(8)));
    }

    #[test]
    fn what_a_ticket_says_is_its_call() {
        let call = Call {
            number: 2,
            ..Call::new(Operation::AllGather, Site::named("eval.py:42"))
        };
        let ticket = Ticket {
            channel: ChannelId::new(7),
            epoch: Epoch::new(3),
            call: Arc::new(call),
        };
        assert_eq!(ticket.to_string(), "all_gather #2");
        let step = ticket.step(Round::new(1));
        assert_eq!(
            (step.channel, step.epoch, step.round),
            (ChannelId::new(7), Epoch::new(3), Round::new(1))
        );
        assert_eq!(
            ticket.activity(Phase::Reading).to_string(),
            "reading payloads in all_gather #2 at eval.py:42"
        );
    }

    #[test]
    fn what_is_handed_in_inline_is_its_body_and_leaves_nothing() {
        let part = Contribution::inline(vec![7, 8]);
        assert_eq!(
            (part.body.as_ref(), part.leaves, part.further_rounds),
            (&[7, 8][..], Leaves::Nothing, 0)
        );
        let kept = [
            Leaves::Nothing,
            Leaves::ForReader,
            Leaves::ForOwner,
            Leaves::WithOwner,
            Leaves::Refusal,
        ];
        let acknowledged = kept.map(Leaves::is_acknowledged);
        assert_eq!(acknowledged, [false, false, true, true, false]);
        assert_eq!(
            kept.map(Leaves::is_published),
            [false, true, true, true, false]
        );
    }
}
