//! The interface of the carriers of a member's messages: [`Carrier`].

use std::time::{Duration, Instant};

use fsgather_core::{Error, ReclaimSink};

use crate::{coordinator::Coordinator, member::Member};

/// Runs the machines of one rank and moves their messages, over threads or sockets.
pub(crate) trait Carrier: Send + Sync + 'static {
    /// Lets the member act, and sends its messages without waiting for them.
    fn act<R>(&self, act: impl FnOnce(&mut Member, Instant) -> R) -> R;

    /// The same for a caller that is going to wait: the messages may be sent only then.
    ///
    /// # Errors
    ///
    /// That of the member, or when this process cannot move messages any more.
    fn act_and_wait_later<R>(
        &self,
        act: impl FnOnce(&mut Member, Instant) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.act(act)
    }

    /// Sends queued messages soon, although this thread continues with other work.
    fn nudge(&self) {}

    /// Waits until `ready` has a result, for `limit` at most; time passes for the machines meanwhile. With a limit of zero,
    /// messages that have arrived already are still handled.
    fn wait_until<R>(
        &self,
        limit: Option<Duration>,
        ready: impl FnMut(&mut Member) -> Option<R>,
    ) -> Option<R>;

    /// Waits until all messages have left this process and, on rank 0, until all members know of every failure; for `limit` at most.
    fn settle(&self, limit: Duration);

    /// On rank 0, waits until all other ranks have left, for `limit` at most, and returns true if they have.
    fn wait_for_departures(&self, limit: Duration) -> bool;

    /// Lets the coordinator act, if this is rank 0 of a world of processes.
    fn coordinate<R>(&self, _act: impl FnOnce(&mut Coordinator, Instant) -> R) -> Option<R> {
        None
    }

    /// Sets the callback that removes payloads.
    fn set_reclaim_sink(&self, sink: ReclaimSink);

    /// Stops everything. Nothing else is called after this. Returns true if the others know all that they have to know, so
    /// that the world's leftovers can be removed.
    fn shut_down(&self) -> bool;

    /// Returns true if this process is a forked child of the one that made the carrier, and must not touch it.
    fn is_foreign(&self) -> bool;
}
