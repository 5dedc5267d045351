//! Small messages through a place that all ranks can read and write: [`Mailbox`] and [`MailboxFactory`].

use std::{sync::Arc, time::Duration};

use uuid::Uuid;

use crate::{Error, Rank, WorldSize};

/// One message, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboundMessage {
    /// The rank in its name.
    pub from: Rank,
    /// The process that left it: distinguishes two processes that claim the same rank.
    pub sender: u64,
    /// Its number among the messages of this sender, from 1.
    pub number: u64,
    /// Its content; `None` if it is addressed to another rank.
    pub body: Option<Vec<u8>>,
}

/// A sign of life of a host, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The rank of the host that left it.
    pub from: Rank,
    /// Grows with every beat of that rank.
    pub number: u64,
    /// Its content.
    pub body: Vec<u8>,
}

/// The reason for which the use of a [`Mailbox`] ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retirement {
    /// In good order. On rank 0: all ranks have read everything, so the place can be removed. Elsewhere: rank 0 will
    /// remove it once it has read the last messages.
    Over,
    /// On rank 0: some rank may still have to read.
    InUse,
    /// On a member: rank 0 is gone, so only the members can clean up the place. The last sign of life stays for ranks
    /// that still look.
    Deserted,
    /// On a process that was never a member.
    Withdrawn,
}

/// One rank's access to a place through which ranks exchange small messages: rank 0 leaves messages for the others, and
/// each of them leaves messages for rank 0.
///
/// A message never changes, and is visible whole or not at all. It may become visible late, and two messages of one
/// sender in the wrong order. A message that is not visible proves nothing. There is no notification: a waiting rank
/// looks again and again.
///
/// Calls may block for as long as a file server is away, so they run on a thread of their own.
pub trait Mailbox: Send + Sync {
    /// Leaves message `number`. Rank 0 may address it to one rank, so that the others need not read it.
    ///
    /// # Errors
    ///
    /// If it cannot be left. Trying again is allowed.
    fn send(&self, number: u64, to: Option<Rank>, body: &[u8]) -> Result<(), Error>;

    /// Leaves a message in another place where the ranks may find it, if there is one, after [`send`](Self::send) has
    /// failed. Best effort; it counts as not sent, and may be found twice.
    fn detour(&self, number: u64, to: Option<Rank>, body: &[u8]) {
        let _ = (number, to, body);
    }

    /// Makes the next [`receive`](Self::receive) look in all places where messages may have been left.
    fn look_around(&self) {}

    /// Returns messages from the other side that have not been returned before, in any order. With `newcomers`, rank
    /// 0's box also looks for senders from hosts that have never written.
    ///
    /// # Errors
    ///
    /// If the place cannot be read, is gone, or a message stays unreadable for longer than any cache can explain.
    /// Nothing is lost: looking again is allowed.
    fn receive(&self, newcomers: bool) -> Result<Vec<InboundMessage>, Error>;

    /// Keeps the sent messages visible; called now and then as long as an answer is due.
    fn tend(&self);

    /// Removes own messages up to number `up_to`, except those in `keep`.
    fn discard(&self, up_to: u64, keep: &[u64]);

    /// Shows that this host is alive, with a sign of a higher number than the previous one of this rank, which it
    /// replaces.
    ///
    /// # Errors
    ///
    /// If the sign cannot be left.
    fn beat(&self, body: &[u8]) -> Result<(), Error>;

    /// Returns the visible signs of life of a host.
    ///
    /// # Errors
    ///
    /// If the place cannot be read.
    fn beats(&self, host: u64) -> Result<Vec<Beat>, Error>;

    /// Ends the use of the box. Removes files that no rank needs any more; files that a rank may need stay.
    fn retire(&self, how: Retirement);

    /// Returns the first and the longest pause between two looks for a message: the cost of a look differs between file
    /// systems.
    fn pace(&self) -> (Duration, Duration);

    /// Returns the location of the place, for messages.
    fn place(&self) -> String;
}

/// A source of [`Mailbox`]es.
pub trait MailboxFactory: Send + Sync {
    /// Sets up a place for one world; only rank 0 calls this. Returns the facts that the other ranks need to find it.
    ///
    /// # Errors
    ///
    /// If it cannot be made.
    fn open(
        &self,
        communicator: Uuid,
        world_size: WorldSize,
    ) -> Result<(Vec<u8>, Arc<dyn Mailbox>), Error>;

    /// Enters a place that rank 0 has set up; returns `None` while it is not visible.
    ///
    /// # Errors
    ///
    /// If it is there but cannot be used, or if `facts` is not valid.
    fn enter(
        &self,
        facts: &[u8],
        rank: Rank,
        sender: u64,
    ) -> Result<Option<Arc<dyn Mailbox>>, Error>;
}
