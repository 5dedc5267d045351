//! Messages while ranks meet: [`JoinRequest`] and [`JoinReply`].

use std::time::Duration;

use fsgather_core::{Error, ProcessId, Rank, Start, WorldSize, error_form};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::join::job_credentials::JobFingerprint;

/// A process asks to be a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The rank that it asks to be.
    pub rank: Rank,
    /// Number of ranks in the world that it looks for.
    pub world_size: WorldSize,
    /// A number that the process has drawn when it started: the same nonce is the same process asking again.
    pub nonce: u128,
    /// The place where it runs.
    pub process: ProcessId,
    /// Its time-out; rank 0's counts.
    pub timeout: Duration,
    /// The process that has started it, if its job has no id of its own.
    pub start: Option<Start>,
    /// Number of restarts of the job by its launcher, if that counts them.
    pub attempt: Option<u32>,
    /// Its job, and the secret that it was given.
    pub fingerprint: JobFingerprint,
}

/// A message of a process that joins or has just joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinRequest {
    /// The first message on a control connection.
    Join(Join),
    /// The first and only message on the silent connection that watches for the loss of a host.
    Watch {
        /// The watching rank.
        rank: Rank,
        /// The nonce that it joined with.
        nonce: u128,
    },
    /// This member is forming another world of the same key as well.
    Rival {
        /// Host and pid of the other rank 0.
        other: String,
    },
}

/// An answer of rank 0 to a process that joins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinReply {
    /// The process is a member; other ranks are missing.
    Forming {
        /// Host and pid of rank 0.
        coordinator: String,
    },
    /// The process is not a member of this world.
    Refused {
        /// The reason.
        reason: RefusalReason,
    },
    /// All ranks have joined.
    Welcome(Welcome),
    /// This world will form in another way: look again for rank 0's record.
    Moved,
}

/// A world that has formed, as all of its members receive it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The nonces of all processes that are members, in rank order.
    pub nonces: Vec<u128>,
    /// The identity of this world, fresh for each.
    pub communicator: Uuid,
    /// The place of every rank, in rank order.
    pub processes: Vec<ProcessId>,
    /// The time-out that holds for all.
    pub timeout: Duration,
}

/// The reason for which a process is not a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalReason {
    /// The world has failed, or cannot have this process as a member.
    Failed(#[serde(with = "error_form")] Error),
    /// The world has formed with another process as this rank.
    AlreadyFormed {
        /// The running job and that process.
        running: String,
        /// True while that process takes part and the world has not failed, so that it is not about to end.
        is_live: bool,
    },
    /// The world was started by another process than the one that asks: the difference between the two.
    OtherStart(String),
    /// The world belongs to the same job and has another size: the ranks and the sizes that they were given.
    OtherSize(String),
}

impl RefusalReason {
    /// Returns true if asking this world again is useless.
    pub(crate) const fn is_final(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::OtherSize(_))
    }
}

impl From<Error> for RefusalReason {
    fn from(cause: Error) -> Self {
        Self::Failed(cause)
    }
}
