//! Connects sockets and machines: [`TcpNode`].
//!
//! Messages for other ranks go into an outbox for each connection, which a task of its own empties.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;
use fsgather_core::Rank;
use serde::Serialize;
use tokio::sync::{
    Notify,
    mpsc::{self, UnboundedReceiver, UnboundedSender},
};

use crate::{
    coordinator::Coordinator,
    machines::{Machines, Outlet},
    member::Member,
    message::{CallRequest, Join, RefusalReason, ToCoordinator, ToMember},
    node::{Medium, Node, NodeState, Notifier},
    tcp::{
        connection::{ConnectionReader, ConnectionWriter},
        tasks,
    },
    wire,
};

/// A connection's queue of frames.
struct Outbox {
    /// Number that tells a rank's connection from another one of the same rank: the later one has the higher number.
    serial: usize,
    frames: UnboundedSender<Bytes>,
}

/// The queues of the connections that messages go over.
pub(crate) struct Connections {
    /// On rank 0 one for each rank; elsewhere one, for rank 0.
    outboxes: Vec<Option<Outbox>>,
    serials: usize,
    backlog: Arc<Tally>,
    /// Time of the next check for what is due, by the real clock.
    armed: Option<Instant>,
}

impl Outlet for Connections {
    fn to_coordinator(&mut self, message: ToCoordinator) {
        self.queue(&[Rank::ZERO], &message, message.payload_len());
    }

    fn to_members(&mut self, to: &[Rank], message: &ToMember) {
        self.queue(to, message, message.payload_len());
    }
}

impl Medium for Connections {
    type Notifier = TcpNotifier;

    fn is_timed(&self, _: &Machines) -> bool {
        self.armed.is_some()
    }

    fn has_work(state: &NodeState<Self>) -> bool {
        match (state.next_look(), state.medium.armed) {
            (Some(next), Some(armed)) => next < armed,
            (next, None) => next.is_some(),
            (None, _) => false,
        }
    }
}

impl Connections {
    /// Encodes a message once and queues it for all of its connections.
    fn queue<M: Serialize>(&self, to: &[Rank], message: &M, payload_len: usize) {
        let mut outboxes = to
            .iter()
            .filter_map(|rank| self.outboxes.get(rank.index())?.as_ref())
            .peekable();
        if outboxes.peek().is_none() {
            return;
        }
        match wire::encode_frame(message, payload_len) {
            Ok(frame) => {
                let frame = Bytes::from(frame);
                for outbox in outboxes {
                    self.backlog.add();
                    let queued = tasks::wake(|| outbox.frames.send(frame.clone()));
                    if !matches!(queued, Ok(Ok(()))) {
                        self.backlog.remove(1);
                    }
                }
            }
            // Contributions are bounded so that this cannot happen; no rank would learn of it otherwise.
            Err(error) => tracing::error!("a message was not sent: {error}"),
        }
    }
}

impl Connections {
    /// Makes the connection of this number the one of `rank`, and returns the frames to write to it.
    fn attach(&mut self, rank: Rank, serial: usize) -> Frames {
        let (frames, queue) = mpsc::unbounded_channel();
        if let Some(outbox) = self.outboxes.get_mut(rank.index()) {
            *outbox = Some(Outbox { serial, frames });
        }
        let backlog = Arc::clone(&self.backlog);
        Frames { queue, backlog }
    }

    /// Returns true if `rank` has a later connection than this one.
    fn has_later(&self, rank: Rank, serial: usize) -> bool {
        let current = self.outboxes.get(rank.index()).and_then(Option::as_ref);
        current.is_some_and(|current| current.serial > serial)
    }

    /// Forgets a connection that has ended, and returns true if it was the one of `rank`.
    fn detach(&mut self, rank: Rank, serial: usize) -> bool {
        let ended = self.outboxes.get_mut(rank.index());
        let ended = ended.and_then(|outbox| outbox.take_if(|outbox| outbox.serial == serial));
        ended.is_some()
    }
}

/// A count, with a notification when it reaches zero.
#[derive(Default)]
struct Tally {
    count: AtomicUsize,
    cleared: Notify,
}

impl Tally {
    fn add(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    fn remove(&self, number: usize) {
        if self.count.fetch_sub(number, Ordering::SeqCst) == number {
            let _ = tasks::wake(|| self.cleared.notify_waiters());
        }
    }

    fn is_clear(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    async fn clear(&self) {
        loop {
            let cleared = self.cleared.notified();
            if self.is_clear() {
                return;
            }
            cleared.await;
        }
    }
}

/// An item in a tally, for as long as this exists.
struct Counted<'a>(&'a Tally);

impl<'a> Counted<'a> {
    fn new(tally: &'a Tally) -> Self {
        tally.add();
        Self(tally)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.remove(1);
    }
}

/// Wakes tasks, and knows which work is under way.
pub(crate) struct TcpNotifier {
    /// Notified after every event; waiting callers look again.
    changed: Notify,
    /// Notified when something is due earlier than the timer is set for.
    rearm: Notify,
    /// Frames that were queued and are not written yet.
    backlog: Arc<Tally>,
    /// Connections that are being read.
    readers: Tally,
}

impl Notifier for TcpNotifier {
    fn changed(&self) {
        let _ = tasks::wake(|| self.changed.notify_waiters());
    }

    fn work(&self) {
        let _ = tasks::wake(|| self.rearm.notify_one());
    }
}

/// The node of a rank whose messages go over TCP; its tasks and callers share it.
pub(crate) type TcpNode = Node<Connections>;

impl TcpNode {
    pub(crate) fn over_tcp(machines: Machines, connections: usize) -> Self {
        let backlog = Arc::<Tally>::default();
        let medium = Connections {
            outboxes: (0..connections).map(|_| None).collect(),
            serials: 0,
            backlog: Arc::clone(&backlog),
            armed: None,
        };
        let notifier = TcpNotifier {
            changed: Notify::new(),
            rearm: Notify::new(),
            backlog,
            readers: Tally::default(),
        };
        Self::new(machines, medium, notifier)
    }

    /// Waits until `ready` has a result.
    pub(crate) async fn until<R>(
        &self,
        mut ready: impl FnMut(&mut Member, Option<&Coordinator>) -> Option<R>,
    ) -> R {
        loop {
            let changed = self.notifier.changed.notified();
            {
                let mut state = self.lock();
                let (member, coordinator) = state.machines.both();
                if let Some(result) = ready(member, coordinator) {
                    return result;
                }
            }
            changed.await;
        }
    }

    /// Waits until all queued frames have been handed to the operating system.
    pub(crate) async fn flushed(&self) {
        self.notifier.backlog.clear().await;
    }

    /// Returns true if nothing is queued.
    pub(crate) fn is_flushed(&self) -> bool {
        self.notifier.backlog.is_clear()
    }

    /// Makes the connection of this number the one of `rank`, and returns the frames to write to it.
    pub(crate) fn attach(&self, rank: Rank, serial: usize) -> Frames {
        self.lock().medium.attach(rank, serial)
    }

    /// Number for a new connection, higher than those of all before.
    pub(crate) fn next_serial(&self) -> usize {
        let medium = &mut self.lock().medium;
        medium.serials += 1;
        medium.serials
    }

    /// Closes all queues: their writers shut the connections once they are empty.
    pub(crate) fn detach_all(&self) {
        self.lock().medium.outboxes.fill_with(|| None);
    }

    /// Handles a process that asks to be a rank over the connection of this number; `attach` runs when it is accepted,
    /// before any message is sent to it.
    ///
    /// A request over an earlier connection is ignored if the process has asked again meanwhile: it has given that
    /// connection up, whose end would be taken for its own.
    pub(crate) fn join(
        &self,
        join: Join,
        serial: usize,
        attach: impl FnOnce(Frames),
    ) -> Option<RefusalReason> {
        let rank = join.rank;
        // One change for all of it: messages of the machine to the new rank must find its queue.
        self.change(|state, now| {
            let coordinator = state.machines.coordinator.as_mut()?;
            if coordinator.knows(rank, join.nonce) && state.medium.has_later(rank, serial) {
                return None;
            }
            let joined = coordinator.join(join, now);
            if joined.is_ok() {
                attach(state.medium.attach(rank, serial));
            }
            joined.err()
        })
    }

    /// Handles the end of a connection, unless it was replaced by another one.
    fn ended(&self, from: Rank, serial: usize, how: &str) {
        self.change(|state, now| {
            if state.medium.detach(from, serial) {
                match &mut state.machines.coordinator {
                    Some(coordinator) => coordinator.disconnected(from, how, now),
                    None => state.machines.member().lost(how),
                }
            }
        });
    }

    /// Waits until no connection is read any more: all peers have closed theirs.
    pub(crate) async fn all_read(&self) {
        self.notifier.readers.clear().await;
    }

    /// Handles a message of a member.
    ///
    /// Most contributions decide nothing, so that no caller has to look at them: waking rank 0's caller for each would cost
    /// more than all the rest of the work.
    fn on_message(&self, from: Rank, message: ToCoordinator) {
        let is_quiet = matches!(
            message,
            ToCoordinator::Call(
                CallRequest::Contribute { .. }
                    | CallRequest::Status { .. }
                    | CallRequest::Stalled { .. }
            )
        );
        let deliver = |state: &mut NodeState<Connections>, now| {
            if let Some(coordinator) = &mut state.machines.coordinator {
                coordinator.on_message(from, message, now);
            }
        };
        if is_quiet {
            self.change_quietly(deliver);
        } else {
            self.change(deliver);
        }
    }

    /// Reads a member's messages until its connection ends.
    pub(crate) async fn serve_member(
        &self,
        from: Rank,
        serial: usize,
        mut reader: ConnectionReader,
    ) {
        let _counted = Counted::new(&self.notifier.readers);
        loop {
            match reader.next::<ToCoordinator>().await {
                Ok(message) => self.on_message(from, message),
                Err(end) => {
                    self.ended(from, serial, &end.to_string());
                    reader.drain().await;
                    return;
                }
            }
        }
    }

    /// Reads rank 0's messages until its connection ends.
    pub(crate) async fn serve_coordinator(&self, serial: usize, mut reader: ConnectionReader) {
        let _counted = Counted::new(&self.notifier.readers);
        loop {
            match reader.next::<ToMember>().await {
                Ok(message) => self.act(|member, now| member.on_message(message, now)),
                Err(end) => {
                    self.ended(Rank::ZERO, serial, &end.to_string());
                    return;
                }
            }
        }
    }

    /// Lets time pass for the machines.
    pub(crate) async fn keep_time(&self) {
        loop {
            let rearm = self.notifier.rearm.notified();
            let due = {
                let mut state = self.lock();
                state.medium.armed = state.next_look();
                state.medium.armed
            };
            match due {
                None => rearm.await,
                Some(due) => tokio::select! {
                    () = rearm => {}
                    () = tokio::time::sleep_until(due.into()) => self.pass_time(self.lock()),
                },
            }
        }
    }
}

/// Frames that have to be written to one connection.
pub(crate) struct Frames {
    queue: UnboundedReceiver<Bytes>,
    backlog: Arc<Tally>,
}

impl Frames {
    /// Writes frames as they are queued, as many at a time as there are, until the queue is closed and
    /// empty or the connection fails.
    pub(crate) async fn write_to(mut self, mut writer: ConnectionWriter) {
        /// Frames are joined up to this size, so that small ones share a record and a system call.
        const JOIN_UP_TO: usize = 64 << 10;
        let mut joined = Vec::new();
        while let Some(first) = self.queue.recv().await {
            let mut frames = 1;
            let sent = if first.len() >= JOIN_UP_TO {
                writer.send_frames(&first).await
            } else {
                joined.clear();
                joined.extend_from_slice(&first);
                while joined.len() < JOIN_UP_TO
                    && let Ok(next) = self.queue.try_recv()
                {
                    joined.extend_from_slice(&next);
                    frames += 1;
                }
                writer.send_frames(&joined).await
            };
            self.backlog.remove(frames);
            if sent.is_err() {
                // The reading side notices the end of the connection; here nothing is left to do.
                break;
            }
        }
        writer.shut().await;
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.queue.close();
        while self.queue.try_recv().is_ok() {
            self.backlog.remove(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future as _,
        pin::pin,
        task::{Context, Waker},
    };

    use super::*;

    #[test]
    fn a_tally_is_clear_once_the_last_of_it_is_gone() {
        let tally = Tally::default();
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(tally.clear()).poll(&mut context).is_ready());
        tally.add();
        let other = Counted::new(&tally);
        let mut cleared = pin!(tally.clear());
        assert!(cleared.as_mut().poll(&mut context).is_pending());
        tally.remove(1);
        assert!(cleared.as_mut().poll(&mut context).is_pending());
        drop(other);
        assert!(cleared.as_mut().poll(&mut context).is_ready());
    }
}
