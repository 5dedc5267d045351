//! The messages between ranks and rank 0: [`ToCoordinator`] and [`ToMember`].
//!
//! `docs/design/wire-protocol.md` describes them. Adding a variant at the end keeps old bytes readable;
//! anything else is a new [`VERSION`](crate::wire::VERSION).

use bytes::Bytes;
use fsgather_core::{
    Activity, Call, ChannelId, Epoch, Error, Leaves, Neighbour, Peer, ProcessId, Rank, Site, Start,
    Step, Whereabouts, WorldSize, in_place, in_place_each,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use uuid::Uuid;

use crate::join::job_credentials::JobFingerprint;

/// A process asks to be a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// Which rank it says it is.
    pub rank: Rank,
    /// How many ranks it believes there are.
    pub world_size: WorldSize,
    /// Drawn by the process when it started: the same nonce is the same process asking again.
    pub nonce: u128,
    /// Where it runs.
    pub process: ProcessId,
    /// Its time-out; rank 0's counts.
    pub timeout: Duration,
    /// By whom it was started, where its job has no id of its own.
    pub start: Option<Start>,
    /// How often its launcher has started the job again, where it counts that.
    pub attempt: Option<u32>,
    /// Which job it belongs to, and which secret it was given.
    pub fingerprint: JobFingerprint,
}

/// What a member says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToCoordinator {
    /// The first message on a control connection.
    Join(Join),
    /// The first and only message on the silent connection that watches for the loss of a host.
    Watch {
        /// Who watches.
        rank: Rank,
        /// The nonce it joined with.
        nonce: u128,
    },
    /// This member is forming another world of the same key as well.
    Rival {
        /// What the other rank 0 is: host and pid.
        other: String,
    },
    /// This member's part of one exchange.
    Contribute {
        /// Which exchange.
        step: Step,
        /// What the member has called.
        call: Call,
        /// Inline payload or locator.
        #[serde(deserialize_with = "in_place")]
        body: Bytes,
        /// What the member has published for others to read.
        leaves: Leaves,
        /// How many further rounds the member needs for this call.
        further_rounds: u32,
    },
    /// The member cannot go on.
    Fail {
        /// The communicator concerned.
        channel: ChannelId,
        /// The call concerned; none when the whole communicator is.
        epoch: Option<Epoch>,
        /// Why.
        cause: Error,
        /// What it was doing.
        activity: Activity,
    },
    /// What the member is doing, with a count of bytes that grows as long as it gets on.
    Status {
        /// The communicator concerned.
        channel: ChannelId,
        /// What it is doing.
        activity: Activity,
        /// How many bytes it has moved since it joined.
        bytes: u64,
    },
    /// The member has read all payloads of a call.
    Done {
        /// The communicator.
        channel: ChannelId,
        /// The call.
        epoch: Epoch,
    },
    /// The member knows that a channel has failed.
    AbortSeen {
        /// The communicator.
        channel: ChannelId,
    },
    /// A process on the member's host, with the pid of this rank, has ended.
    SiblingExited {
        /// The rank that ended.
        rank: Rank,
    },
    /// The member has come to the orderly end.
    Close {
        /// Where in the user's program.
        site: Site,
    },
    /// The member goes without waiting for the others.
    Leave {
        /// Why, if something went wrong.
        cause: Option<Error>,
    },
    /// The member takes part in a group from here on.
    Open {
        /// The communicator.
        channel: ChannelId,
        /// Who belongs to it, in its order, by their ranks in the world.
        members: Vec<Rank>,
    },
    /// The member takes part in a group no more.
    Retire {
        /// The communicator.
        channel: ChannelId,
    },
    /// Nothing moves between the member and others while payloads go from rank to rank.
    Stalled {
        /// The communicator.
        channel: ChannelId,
        /// What it is doing.
        activity: Activity,
        /// For whom it waits, by their ranks in the world.
        waits_for: Vec<Rank>,
        /// For how long nothing has moved.
        idle: Duration,
        /// How long nothing may move in this call.
        timeout: Duration,
    },
    /// The member has been asked whether it is there, and is.
    Here,
    /// The member makes no more calls, and stays as long as others have to read what it keeps.
    Stay {
        /// Why, if something went wrong.
        cause: Option<Error>,
    },
    /// Is rank 0 there?
    Ask,
    /// The member has looked, as it was told to.
    Seen {
        /// Which order this answers.
        number: u64,
        /// At whom: itself, or a neighbour.
        who: Rank,
        /// What it has seen, if it can tell and may.
        whereabouts: Option<Whereabouts>,
    },
}

/// What rank 0 says to everybody once all have joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The nonces of all processes that are members, in rank order.
    pub nonces: Vec<u128>,
    /// The identity of this world, fresh for each.
    pub communicator: Uuid,
    /// Where every rank runs, in rank order.
    pub processes: Vec<ProcessId>,
    /// The time-out that holds for all.
    pub timeout: Duration,
}

/// Why rank 0 does not take a process in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalReason {
    /// The world has failed, or cannot have this process as a member.
    Failed(Error),
    /// The world has formed with another process as this rank.
    AlreadyFormed {
        /// The running job and that process.
        running: String,
        /// True while that process takes part and the world has not failed, so that it is not about to end.
        is_live: bool,
    },
    /// The world was started by another process than the one that asks: what tells the two apart.
    OtherStart(String),
    /// The world belongs to the same job and has another size: which rank was given which size.
    OtherSize(String),
}

impl RefusalReason {
    /// Whether asking this world again is useless.
    pub(crate) const fn is_final(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::OtherSize(_))
    }
}

impl From<Error> for RefusalReason {
    fn from(cause: Error) -> Self {
        Self::Failed(cause)
    }
}

/// What rank 0 says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToMember {
    /// The member is in; others are still to come.
    Forming {
        /// Rank 0 of this world: host and pid.
        coordinator: String,
    },
    /// The process is not a member of this world.
    Refused {
        /// Why.
        reason: RefusalReason,
    },
    /// All are in.
    Welcome(Welcome),
    /// Every rank has contributed.
    Release {
        /// Which exchange.
        step: Step,
        /// All contributions in rank order; absent for those who do not receive.
        #[serde(deserialize_with = "in_place_each")]
        bodies: Option<Vec<Bytes>>,
        /// Whether [`ToCoordinator::Done`] is expected.
        acknowledge: bool,
        /// How many further rounds the call has.
        further_rounds: u32,
        /// Who has contributed last, by its number in the world.
        last: Option<Rank>,
    },
    /// A communicator has failed: no exchange of it that is undecided will be released.
    Abort {
        /// The communicator.
        channel: ChannelId,
        /// Why.
        cause: Error,
    },
    /// A payload is not needed any more.
    Reclaim {
        /// The communicator.
        channel: ChannelId,
        /// The call.
        epoch: Epoch,
    },
    /// Nothing is wrong: somebody else made progress, so do not time out yet.
    KeepWaiting {
        /// The communicator.
        channel: ChannelId,
    },
    /// This world has ended; nothing follows.
    Bye {
        /// Whether all ranks closed it in good order.
        orderly: bool,
    },
    /// This world will form in another way: look again where rank 0 leaves word.
    Moved,
    /// Is the member there?
    Ask,
    /// Who has still to read what a member that stays has handed over; nobody any more if there are none.
    /// While somebody gets on this is said again.
    Needed {
        /// Those ranks.
        by: Vec<Peer>,
    },
    /// Rank 0 has been asked whether it is there, and is.
    Here,
    /// The member is to say what its process is doing, or that of a neighbour.
    Look {
        /// Tells this order from others.
        number: u64,
        /// At whom, if not at itself.
        neighbour: Option<Neighbour>,
    },
    /// What rank 0 warns of, for those who wait.
    Notice {
        /// The warning.
        text: String,
    },
    /// What rank 0 warns of, to be said by this member: rank 0 itself is waited for, and may be unable to speak.
    Warning {
        /// The warning.
        text: String,
    },
}

impl ToCoordinator {
    /// How many bytes of payloads are in it.
    pub(crate) fn payload_len(&self) -> usize {
        match self {
            Self::Contribute { body, .. } => body.len(),
            _ => 0,
        }
    }
}

impl ToMember {
    /// How many bytes of payloads are in it.
    pub(crate) fn payload_len(&self) -> usize {
        match self {
            Self::Release { bodies, .. } => bodies.iter().flatten().map(Bytes::len).sum(),
            _ => 0,
        }
    }

    /// The communicator that it is about.
    pub(crate) fn channel(&self) -> Option<ChannelId> {
        match self {
            Self::Release { step, .. } => Some(step.channel),
            Self::Abort { channel, .. }
            | Self::Reclaim { channel, .. }
            | Self::KeepWaiting { channel } => Some(*channel),
            Self::Forming { .. }
            | Self::Refused { .. }
            | Self::Welcome(_)
            | Self::Bye { .. }
            | Self::Moved
            | Self::Ask
            | Self::Here
            | Self::Look { .. }
            | Self::Notice { .. }
            | Self::Warning { .. }
            | Self::Needed { .. } => None,
        }
    }
}
