//! Messages about calls and the failure of communicators: [`CallRequest`] and [`CallReply`].

use std::time::Duration;

use bytes::Bytes;
use fsgather_core::{
    Activity, Call, ChannelId, Contribution, Epoch, Error, Rank, Step, Verdict, error_form,
};
use serde::{Deserialize, Serialize};

/// A message of a member about a call, or the failure of a communicator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallRequest {
    /// The member's part of one exchange.
    Contribute {
        /// The exchange.
        step: Step,
        /// The call of the member's program.
        call: Call,
        /// Inline payload or locator, and what the member has published.
        contribution: Contribution,
    },
    /// The activity of the member, with a count of bytes that grows as long as it makes progress.
    Status {
        /// The communicator.
        channel: ChannelId,
        /// The activity.
        activity: Activity,
        /// Number of bytes that it has moved since it joined.
        bytes: u64,
    },
    /// Nothing moves between the member and others while payloads go from rank to rank.
    Stalled {
        /// The communicator.
        channel: ChannelId,
        /// The activity.
        activity: Activity,
        /// The wait.
        wait: StallReport,
    },
    /// The member has read all payloads of a call.
    Done {
        /// The communicator.
        channel: ChannelId,
        /// The call.
        epoch: Epoch,
    },
    /// The member cannot continue.
    Fail {
        /// The communicator that has to fail.
        channel: ChannelId,
        /// The reason.
        #[serde(with = "error_form")]
        cause: Error,
        /// The activity that has failed.
        activity: Activity,
    },
    /// The member knows that a communicator has failed.
    AbortSeen {
        /// The communicator.
        channel: ChannelId,
    },
}

/// A member's report that nothing moves between it and others in a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallReport {
    /// The ranks that the member waits for, by their numbers in the world.
    pub waits_for: Vec<Rank>,
    /// Time for which nothing has moved.
    pub idle: Duration,
    /// Time for which nothing may move in this call.
    pub timeout: Duration,
}

/// A message of rank 0 about a call, or the failure of a communicator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallReply {
    /// Every rank has contributed.
    Release {
        /// The exchange.
        step: Step,
        /// All contributions, for ranks that receive. They answer with [`CallRequest::Done`] if they have to acknowledge.
        verdict: Verdict,
    },
    /// A communicator has failed: no exchange of it that is undecided will be released.
    Abort {
        /// The communicator.
        channel: ChannelId,
        /// The reason.
        #[serde(with = "error_form")]
        cause: Error,
    },
    /// A payload is not needed any more.
    Reclaim {
        /// The communicator.
        channel: ChannelId,
        /// The call.
        epoch: Epoch,
    },
    /// Another rank has made progress, so the call does not time out yet.
    KeepWaiting {
        /// The communicator.
        channel: ChannelId,
    },
    /// A warning of rank 0, for the logs of waiting ranks.
    Notice {
        /// The warning.
        text: String,
    },
    /// A warning that this member has to log itself: all wait for rank 0, which may be unable to do so.
    Warning {
        /// The warning.
        text: String,
    },
}

impl CallReply {
    /// The communicator that it is about.
    pub(crate) const fn channel(&self) -> Option<ChannelId> {
        match self {
            Self::Release { step, .. } => Some(step.channel),
            Self::Abort { channel, .. }
            | Self::Reclaim { channel, .. }
            | Self::KeepWaiting { channel } => Some(*channel),
            Self::Notice { .. } | Self::Warning { .. } => None,
        }
    }

    /// The contributions in it.
    pub(crate) fn bodies(&self) -> &[Bytes] {
        match self {
            Self::Release { verdict, .. } => {
                let table = verdict.table.as_ref();
                table.map_or(&[], |table| &table.bodies)
            }
            _ => &[],
        }
    }
}
