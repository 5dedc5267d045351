//! Small messages through a place that all ranks can read and write: [`Mailbox`] and [`MailboxFactory`].

use std::{sync::Arc, time::Duration};

use uuid::Uuid;

use crate::{Error, Rank, WorldSize};

/// One message, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboundMessage {
    /// The rank in its name.
    pub from: Rank,
    /// The process that left it: tells two processes apart that say they are the same rank.
    pub sender: u64,
    /// Its number among the messages of this sender, from 1.
    pub number: u64,
    /// What it says; `None` when it is for somebody else.
    pub body: Option<Vec<u8>>,
}

/// A sign of life of a host, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Which rank of the host has left it.
    pub from: Rank,
    /// Grows with every beat of that rank.
    pub number: u64,
    /// What it says.
    pub body: Vec<u8>,
}

/// How the use of a [`Mailbox`] ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retirement {
    /// In good order. On rank 0: everybody has read everything, so the place can go. Elsewhere: rank 0
    /// will see to it once it has read what was left last.
    Over,
    /// On rank 0: somebody may still have to read.
    InUse,
    /// On a member: rank 0 is gone, and nobody but the members sees to the place. The last sign of life
    /// stays for those who still look.
    Deserted,
    /// On a process that was never a member.
    Withdrawn,
}

/// One rank's access to a place through which ranks exchange small messages: rank 0 leaves messages for
/// the others, and each of them for rank 0.
///
/// A message is never changed, and seen whole or not at all; it may be seen late, and two messages of one
/// sender in the wrong order. That a message is not seen proves nothing. There is no notification: whoever
/// waits looks again and again.
///
/// Calls may block for as long as a file server is away. They are made on a thread of their own.
pub trait Mailbox: Send + Sync {
    /// Leaves message `number`; rank 0 may address it to one rank, which saves the others from reading
    /// it.
    ///
    /// # Errors
    ///
    /// When it cannot be left. Trying again is allowed.
    fn send(&self, number: u64, to: Option<Rank>, body: &[u8]) -> Result<(), Error>;

    /// Leaves a message that [`send`](Self::send) cannot leave where the others may find it all the same, if
    /// there is such a place. Best effort; it counts as not sent, and may be found twice.
    fn detour(&self, number: u64, to: Option<Rank>, body: &[u8]) {
        let _ = (number, to, body);
    }

    /// Has the next [`receive`](Self::receive) look wherever messages may have been left.
    fn look_around(&self) {}

    /// Messages from the other side that have not been returned before, in any order. `newcomers` asks
    /// rank 0's box to look for senders from hosts that have never written as well.
    ///
    /// # Errors
    ///
    /// When the place cannot be read, is gone, or a message stays unreadable for longer than any cache
    /// can explain. Nothing is lost by it: looking again is allowed.
    fn receive(&self, newcomers: bool) -> Result<Vec<InboundMessage>, Error>;

    /// Keeps what was sent visible; called now and then as long as an answer is due.
    fn tend(&self);

    /// Takes back own messages up to number `up_to`, except those in `keep`.
    fn discard(&self, up_to: u64, keep: &[u64]);

    /// Shows that this host is alive, with a sign of a higher number than the one that this rank gave
    /// before, which goes.
    ///
    /// # Errors
    ///
    /// When the sign cannot be left.
    fn beat(&self, body: &[u8]) -> Result<(), Error>;

    /// The signs of life of a host that can be seen now.
    ///
    /// # Errors
    ///
    /// When the place cannot be read.
    fn beats(&self, host: u64) -> Result<Vec<Beat>, Error>;

    /// Ends the use of the box. What nobody needs then is removed; what somebody may need stays.
    fn retire(&self, how: Retirement);

    /// How soon to look for a message for the first time, and how seldom at most: what a look costs
    /// differs between file systems.
    fn pace(&self) -> (Duration, Duration);

    /// Where this is, for messages.
    fn place(&self) -> String;
}

/// Where [`Mailbox`]es come from.
pub trait MailboxFactory: Send + Sync {
    /// Sets up a place for one world; rank 0 does this. Returns what the others have to know to find it.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    fn open(
        &self,
        communicator: Uuid,
        world_size: WorldSize,
    ) -> Result<(Vec<u8>, Arc<dyn Mailbox>), Error>;

    /// Enters a place that rank 0 has set up; `None` while it is not seen.
    ///
    /// # Errors
    ///
    /// When it is there but cannot be used, or `facts` cannot be understood.
    fn enter(
        &self,
        facts: &[u8],
        rank: Rank,
        sender: u64,
    ) -> Result<Option<Arc<dyn Mailbox>>, Error>;
}
