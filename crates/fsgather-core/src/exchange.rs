//! The one primitive of the control plane: [`Exchange`].

use std::{fmt, sync::Arc};

use bytes::Bytes;

use crate::{
    Activity, Call, ChannelId, Epoch, Error, Operation, Peer, Phase, Rank, Round, Site, Step,
    WorldSize,
};

/// What one rank hands in to one exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contribution {
    /// A small payload, or a locator of a large one; at most [`Exchange::body_limit`] bytes.
    pub body: Bytes,
    /// Whether this rank has published a payload that has to be reclaimed once everybody has read it.
    pub leaves_payload: bool,
    /// How many further rounds this rank needs to hand over what does not fit into one body.
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

/// What recipients of an exchange get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// One body for each rank, in rank order.
    pub bodies: Vec<Bytes>,
    /// Whether [`Exchange::done`] must be called once everything announced here has been read.
    pub acknowledge: bool,
}

/// What everybody learns when an exchange succeeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The contributions, on recipients.
    pub table: Option<Table>,
    /// How many further rounds the call has: as many as the rank that needs most.
    pub further_rounds: u32,
}

/// Proof that a call was started: it carries the call's number.
#[derive(Clone, Debug)]
pub struct Ticket {
    /// The communicator.
    pub channel: ChannelId,
    /// The number of the call.
    pub epoch: Epoch,
    /// What was called.
    pub call: Arc<Call>,
}

impl Ticket {
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
        Activity::within(phase, self.call.operation, self.epoch)
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.call.operation, self.epoch)
    }
}

/// Told when a payload that `rank` published may be removed; must not block.
pub type ReclaimSink = Arc<dyn Fn(ChannelId, Epoch, Rank) + Send + Sync>;

/// Every rank hands in a small contribution; when all have, the recipients get all contributions in
/// rank order.
///
/// A barrier is an exchange of nothing, a broadcast one in which only the root contributes. All four
/// implementations (one rank, threads, TCP, marker files) pass the same conformance suite.
///
/// # Guarantees
///
/// - Each exchange has at most one verdict, and no two ranks learn different ones.
/// - It succeeds only when every rank has handed in a contribution to the *same* call: operation,
///   root, bound and type are compared, and a difference is [`Error::Desync`] on all ranks.
/// - A rank that fails, is lost or is late before the verdict makes the call fail on every rank with
///   the same error. After a failure the channel is poisoned: later calls return
///   [`Error::Poisoned`].
/// - Waiting is bounded by the time-out, which counts from the last progress.
///
/// Methods may be called from several threads. Calls are numbered in the order of [`begin`], which has
/// to be the same on all ranks.
///
/// [`begin`]: Exchange::begin
pub trait Exchange: Send + Sync {
    /// Which rank this is.
    fn rank(&self) -> Rank;

    /// How many ranks take part.
    fn world_size(&self) -> WorldSize;

    /// Host and process of every rank, in rank order.
    fn peers(&self) -> &[Peer];

    /// The largest body a contribution may have, in bytes.
    fn body_limit(&self) -> usize;

    /// Numbers a call. What follows must be [`contribute`](Exchange::contribute) or
    /// [`fail`](Exchange::fail).
    ///
    /// # Errors
    ///
    /// [`Error::Poisoned`] after a failure.
    fn begin(&self, call: Call) -> Result<Ticket, Error>;

    /// Hands in this rank's contribution to one round, without waiting.
    ///
    /// # Errors
    ///
    /// When the call has failed already, with the agreed error.
    fn contribute(
        &self,
        ticket: &Ticket,
        round: Round,
        contribution: Contribution,
    ) -> Result<(), Error>;

    /// Waits for the verdict on one round.
    ///
    /// # Errors
    ///
    /// The agreed error when the call failed.
    fn wait(&self, ticket: &Ticket, round: Round) -> Result<Verdict, Error>;

    /// Says that this rank cannot go on with a call, in the phase given, before or after its verdict,
    /// and returns the error that all ranks agree on, which is usually `cause`.
    fn fail(&self, ticket: &Ticket, phase: Phase, cause: Error) -> Error;

    /// Notes that this rank is at work, so that nobody times out meanwhile. Cheap; call it often.
    ///
    /// # Errors
    ///
    /// The agreed error when the call has failed elsewhere: stop working on it.
    fn progress(&self, ticket: &Ticket, phase: Phase, bytes: u64) -> Result<(), Error>;

    /// Says that this recipient has read all payloads of the call.
    fn done(&self, ticket: &Ticket);

    /// Sets who removes payloads once nobody needs them any more.
    fn set_reclaim_sink(&self, sink: ReclaimSink);

    /// Makes current and later calls fail on all ranks. Does not wait.
    fn interrupt(&self, cause: Error);

    /// Ends the communicator together with all other ranks.
    ///
    /// Returning `Ok` means that every recipient has read what this rank took part in.
    ///
    /// # Errors
    ///
    /// A failure of any earlier call that this rank has not been told yet, or of a rank that did not
    /// come to close.
    fn close(&self, site: Site) -> Result<(), Error>;

    /// Leaves without waiting for the others longer than a few seconds; with a cause, calls that still
    /// need this rank fail with it. Called when a communicator is dropped.
    ///
    /// Returns whether what the world has left behind is in good hands: on rank 0 whether all other
    /// ranks have left as well, elsewhere whether rank 0 was still there. Leaving again changes
    /// nothing and returns the same.
    fn leave(&self, cause: Option<Error>) -> bool;

    /// One whole exchange: begin, contribute, wait; the table on recipients, `None` on others.
    ///
    /// # Errors
    ///
    /// As its three parts.
    fn exchange(&self, call: Call, body: Bytes) -> Result<Option<Table>, Error> {
        let ticket = self.begin(call)?;
        self.contribute(&ticket, Round::VERDICT, Contribution::inline(body))?;
        Ok(self.wait(&ticket, Round::VERDICT)?.table)
    }

    /// Waits until every rank has come here.
    ///
    /// # Errors
    ///
    /// As [`exchange`](Exchange::exchange).
    fn barrier(&self, site: Site) -> Result<(), Error> {
        self.exchange(Call::new(Operation::Barrier, site), Bytes::new())
            .map(drop)
    }
}
