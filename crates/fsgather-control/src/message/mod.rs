//! The messages between ranks and rank 0, by their purpose: [`ToCoordinator`] and [`ToMember`].
//!
//! `docs/design/wire-protocol.md` describes them. Adding a variant at the end keeps old bytes readable;
//! anything else is a new [`VERSION`](crate::wire::VERSION).

mod call;
mod end;
mod group;
mod join;
mod probe;

use bytes::Bytes;
use fsgather_core::ChannelId;
use serde::{Deserialize, Serialize};

pub use self::{
    call::{CallReply, CallRequest, StallReport},
    end::{EndReply, EndRequest},
    group::GroupRequest,
    join::{Join, JoinReply, JoinRequest, RefusalReason, Welcome},
    probe::Probe,
};

/// A message of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToCoordinator {
    /// About the meeting of all ranks.
    Join(JoinRequest),
    /// About a call, or the failure of a communicator.
    Call(CallRequest),
    /// About the members of a group.
    Group(GroupRequest),
    /// A question to rank 0, or an answer to one.
    Probe(Probe),
    /// About the end of a rank.
    End(EndRequest),
}

/// A message of rank 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToMember {
    /// About the meeting of all ranks.
    Join(JoinReply),
    /// About a call, or the failure of a communicator.
    Call(CallReply),
    /// A question to the member, or an answer to one.
    Probe(Probe),
    /// About the end of a rank or of the world.
    End(EndReply),
}

/// Wraps the messages of each family.
macro_rules! families {
    ($message:ident: $($family:ident($kind:ident)),+) => {
        $(impl From<$kind> for $message {
            fn from(message: $kind) -> Self {
                Self::$family(message)
            }
        })+
    };
}

families!(ToCoordinator: Join(JoinRequest), Call(CallRequest), Group(GroupRequest), Probe(Probe), End(EndRequest));
families!(ToMember: Join(JoinReply), Call(CallReply), Probe(Probe), End(EndReply));

impl ToCoordinator {
    /// Number of bytes of payloads in it.
    pub(crate) fn payload_len(&self) -> usize {
        match self {
            Self::Call(CallRequest::Contribute { contribution, .. }) => contribution.body.len(),
            _ => 0,
        }
    }
}

impl ToMember {
    /// Number of bytes of payloads in it.
    pub(crate) fn payload_len(&self) -> usize {
        match self {
            Self::Call(reply) => reply.bodies().iter().map(Bytes::len).sum(),
            _ => 0,
        }
    }

    /// The communicator that it is about.
    pub(crate) const fn channel(&self) -> Option<ChannelId> {
        match self {
            Self::Call(reply) => reply.channel(),
            Self::Join(_) | Self::Probe(_) | Self::End(_) => None,
        }
    }
}
