//! Opens and closes groups.

use fsgather_core::{ChannelId, Epoch, Error, Rank};

use super::{OpenStage, channel::Channel};
use crate::message::{CallReply, GroupRequest};

impl OpenStage {
    pub(super) fn on_group(&mut self, from: Rank, request: GroupRequest) {
        match request {
            GroupRequest::Open { channel, members } => self.open_group(from, channel, &members),
            GroupRequest::Retire { channel } => self.retire(from, channel),
        }
    }

    /// Notes that a rank takes part in a group; the first that does makes it known.
    fn open_group(&mut self, from: Rank, id: ChannelId, members: &[Rank]) {
        if let Some(message) = self.objection_to_group(from, id, members) {
            let cause = Error::config(message);
            self.queue
                .send(vec![from], CallReply::Abort { channel: id, cause });
            return;
        }
        let (roster, names) = (&self.roster, &self.names);
        let channel = self.channels.entry(id).or_insert_with(|| {
            let mut channel = Channel::group(id, members, names);
            // Members that are gone already will not come, and need not leave.
            for rank in members.iter().filter(|rank| roster.has_left(**rank)) {
                channel.dismiss(*rank);
            }
            channel
        });
        let differs = !channel.ranks().eq(members.iter().copied());
        let returns = channel.has_left(from);
        let is_member = channel.includes(from);
        if differs || returns {
            let peer = names.of_peer(roster.peer(from));
            let others = channel.ranks().map(|rank| names.of(rank).to_string());
            let others: Vec<String> = others.collect();
            let message = if returns {
                format!("{peer} has left a group and takes part in it again; make a new group")
            } else {
                format!(
                    "{peer} made a group of other ranks than the others, which made it of the ranks {}",
                    others.join(" ")
                )
            };
            self.fail_channel(id, &Error::config(message));
        }
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        if is_member && !returns {
            channel.admit(from);
        }
        if let Some(cause) = channel.failure.clone() {
            if channel.is_here(from) {
                channel.untold.insert(from);
            }
            self.queue
                .send(vec![from], CallReply::Abort { channel: id, cause });
        }
    }

    /// The reason why a group is impossible, for the rank that makes it.
    fn objection_to_group(&self, from: Rank, id: ChannelId, members: &[Rank]) -> Option<String> {
        let world_size = self.world.world_size;
        let mut sorted = members.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let are_ranks = members.iter().all(|rank| world_size.contains(*rank));
        if id == ChannelId::WORLD {
            Some("the channel of the world is no group's".into())
        } else if !are_ranks || sorted.len() != members.len() {
            Some(format!(
                "a group has to be made of different ranks of a world of {world_size}"
            ))
        } else if !members.contains(&from) {
            Some(format!(
                "rank {} made a group without itself",
                self.names.of(from)
            ))
        } else {
            None
        }
    }

    /// Notes that a rank takes part in a group no more.
    fn retire(&mut self, from: Rank, id: ChannelId) {
        if id == ChannelId::WORLD || !self.dismiss(from, id) {
            return;
        }
        self.fail_call_that_needs(from, id);
        self.forget_if_over(id);
        if self.channels.get(&id).is_some_and(Channel::is_deserted) {
            self.channels.remove(&id);
        }
    }

    /// Takes a rank off all lists of a communicator, and returns true if it was on them.
    pub(super) fn dismiss(&mut self, rank: Rank, id: ChannelId) -> bool {
        let Some(channel) = self.channels.get_mut(&id) else {
            return false;
        };
        let was_in = channel.dismiss(rank);
        let unread: Vec<Epoch> = channel.reading.keys().copied().collect();
        for epoch in unread {
            self.finished_reading(id, epoch, rank);
        }
        was_in
    }

    /// Forgets a group of which all members have left and nothing is being read.
    pub(super) fn forget_if_over(&mut self, id: ChannelId) {
        if id != ChannelId::WORLD && self.channels.get(&id).is_some_and(Channel::is_over) {
            self.channels.remove(&id);
        }
    }
}
