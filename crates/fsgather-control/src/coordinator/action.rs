//! The effects that a coordinator asks for: [`Action`].

use fsgather_core::{ChannelId, Epoch, Rank};

use crate::message::ToMember;

/// An effect that a coordinator asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a message to these ranks.
    Send {
        /// The receivers.
        to: Vec<Rank>,
        /// The message.
        message: ToMember,
    },
    /// Remove the payload that a rank, now gone, has left.
    ReclaimFor {
        /// The communicator.
        channel: ChannelId,
        /// The call.
        epoch: Epoch,
        /// The rank whose payload it is.
        owner: Rank,
    },
    /// Warn the user of something that concerns the whole job.
    Warn(String),
    /// Log something of less weight.
    Note(String),
}

/// The effects that are still to be carried out, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct ActionQueue {
    actions: Vec<Action>,
}

impl ActionQueue {
    /// Sends a message, if there is a receiver.
    pub(super) fn send(&mut self, to: Vec<Rank>, message: impl Into<ToMember>) {
        if !to.is_empty() {
            let message = message.into();
            self.push(Action::Send { to, message });
        }
    }

    /// Adds any other effect.
    pub(super) fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Removes and returns all of them.
    pub(super) fn take(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Returns true if there is none.
    pub(super) const fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }
}
