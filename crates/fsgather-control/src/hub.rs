//! Connects sockets and machines: [`Hub`].
//!
//! The machines are under one mutex that is never held over a system call: messages for other ranks go
//! into an outbox for each connection, which a task of its own empties.

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;
use fsgather_core::{Activity, AwakeClock, Error, Rank, ReclaimSink, lock};
use serde::Serialize;
use tokio::sync::{
    Notify,
    mpsc::{self, UnboundedReceiver, UnboundedSender},
};

use crate::{
    config::Interruptible,
    coordinator::{Coordinator, JoinAnswer},
    machines::{Machines, Mail},
    member::Member,
    message::{Join, ToCoordinator, ToMember},
    transport::{Reader, Writer},
    wire,
};

/// A connection's queue of frames.
struct Outbox {
    /// Tells a rank's connection from an earlier one of the same rank.
    serial: usize,
    frames: UnboundedSender<Bytes>,
}

struct State {
    machines: Machines,
    /// On rank 0 one for each rank; elsewhere one, for rank 0.
    outboxes: Vec<Option<Outbox>>,
    serials: usize,
    /// The time that the machines live in.
    clock: AwakeClock,
    /// When time is looked at next for what is due, on the clock on the wall.
    armed: Option<Instant>,
}

impl State {
    /// What time it is for the machines.
    fn look(&mut self) -> Instant {
        let now = Instant::now();
        if self.armed.is_none() {
            return self.clock.look_after_rest(now);
        }
        let now = self.clock.look(now);
        if self.clock.take_wake() {
            self.machines.wake(now);
        }
        now
    }

    /// When to look next, if anything is due at some time.
    fn next_look(&self) -> Option<Instant> {
        let due = self.machines.next_tick();
        due.map(|due| self.clock.next_look(due))
    }
}

/// Puts messages into the queues of the connections they go over.
struct Queues<'a> {
    outboxes: &'a [Option<Outbox>],
    backlog: &'a Tally,
}

impl Mail for Queues<'_> {
    fn to_coordinator(&mut self, message: ToCoordinator) {
        self.queue(&[Rank::ZERO], &message);
    }

    fn to_members(&mut self, to: &[Rank], message: &ToMember) {
        self.queue(to, message);
    }
}

impl Queues<'_> {
    /// Encodes a message once and queues it for all connections it goes to.
    fn queue<M: Serialize>(&self, to: &[Rank], message: &M) {
        let mut outboxes = to
            .iter()
            .filter_map(|rank| self.outboxes.get(rank.index())?.as_ref())
            .peekable();
        if outboxes.peek().is_none() {
            return;
        }
        match wire::encode_frame(message) {
            Ok(frame) => {
                let frame = Bytes::from(frame);
                for outbox in outboxes {
                    self.backlog.add();
                    if outbox.frames.send(frame.clone()).is_err() {
                        self.backlog.remove(1);
                    }
                }
            }
            // Contributions are bounded so that this cannot be; nobody would be told otherwise.
            Err(error) => tracing::error!("a message was not sent: {error}"),
        }
    }
}

/// How many of something there are, and word of when there are none.
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
            self.cleared.notify_waiters();
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

/// One in a tally, for as long as this exists.
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

/// All that one rank's tasks and callers share.
pub(crate) struct Hub {
    state: Mutex<State>,
    /// Told after every event; waiting callers look again.
    changed: Notify,
    /// Told when something is due earlier than the timer is set for.
    rearm: Notify,
    /// Frames that were queued and are not written yet.
    backlog: Arc<Tally>,
    /// Connections that are being read.
    readers: Tally,
}

impl Hub {
    pub(crate) fn new(machines: Machines, connections: usize) -> Self {
        Self {
            state: Mutex::new(State {
                machines,
                outboxes: (0..connections).map(|_| None).collect(),
                serials: 0,
                clock: AwakeClock::new(Instant::now()),
                armed: None,
            }),
            changed: Notify::new(),
            rearm: Notify::new(),
            backlog: Arc::default(),
            readers: Tally::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Lets the member act and queues what follows from it.
    pub(crate) fn act<R>(&self, act: impl FnOnce(&mut Member, Instant) -> R) -> R {
        let mut state = self.lock();
        let now = state.look();
        let result = act(&mut state.machines.member, now);
        self.deliver(state, now);
        result
    }

    /// Lets the coordinator act, if this is rank 0, and queues what follows from it.
    pub(crate) fn coordinate<R>(
        &self,
        act: impl FnOnce(&mut Coordinator, Instant) -> R,
    ) -> Option<R> {
        let mut state = self.lock();
        let now = state.look();
        let result = act(state.machines.coordinator.as_mut()?, now);
        self.deliver(state, now);
        Some(result)
    }

    /// Waits until `ready` has a result.
    pub(crate) async fn until<R>(
        &self,
        mut ready: impl FnMut(&mut Member, Option<&Coordinator>) -> Option<R>,
    ) -> R {
        loop {
            let changed = self.changed.notified();
            {
                let machines = &mut self.lock().machines;
                if let Some(result) = ready(&mut machines.member, machines.coordinator.as_ref()) {
                    return result;
                }
            }
            changed.await;
        }
    }

    /// Waits until everything that was queued has been handed to the operating system.
    pub(crate) async fn flushed(&self) {
        self.backlog.clear().await;
    }

    /// Whether nothing is queued.
    pub(crate) fn is_flushed(&self) -> bool {
        self.backlog.is_clear()
    }

    pub(crate) fn set_reclaim_sink(&self, sink: Option<ReclaimSink>) {
        self.lock().machines.set_reclaim_sink(sink);
    }

    /// Makes a connection the one of `rank`: its number, and the frames that have to be written to it.
    pub(crate) fn attach(&self, rank: Rank) -> (usize, Frames) {
        self.attach_to(&mut self.lock(), rank)
    }

    fn attach_to(&self, state: &mut State, rank: Rank) -> (usize, Frames) {
        state.serials += 1;
        let serial = state.serials;
        let (frames, queue) = mpsc::unbounded_channel();
        if let Some(place) = state.outboxes.get_mut(rank.index()) {
            *place = Some(Outbox { serial, frames });
        }
        let backlog = Arc::clone(&self.backlog);
        (serial, Frames { queue, backlog })
    }

    /// Closes all queues: their writers say goodbye to the connections once they are empty.
    pub(crate) fn detach_all(&self) {
        self.lock().outboxes.fill_with(|| None);
    }

    /// Handles a process that asks to be a rank; `attach` runs when it is accepted, before
    /// anything is said to it.
    pub(crate) fn join(&self, join: Join, attach: impl FnOnce(usize, Frames)) -> Option<ToMember> {
        let rank = join.rank;
        // One lock for all of it: what the machine says to the new rank must find its queue.
        let mut state = self.lock();
        let now = state.look();
        let refusal = match state.machines.coordinator.as_mut()?.join(join, now) {
            JoinAnswer::Accepted => {
                let (serial, frames) = self.attach_to(&mut state, rank);
                attach(serial, frames);
                None
            }
            JoinAnswer::Refused(message) => Some(message),
        };
        self.deliver(state, now);
        refusal
    }

    /// Rank 0 joins its own world.
    pub(crate) fn join_self(&self, join: Join) {
        let _ = self.coordinate(|coordinator, now| coordinator.join(join, now));
    }

    /// Handles the end of a connection, unless it was replaced by another one.
    fn ended(&self, from: Rank, serial: usize, how: &str) {
        let mut state = self.lock();
        let now = state.look();
        let current = state
            .outboxes
            .get(from.index())
            .and_then(Option::as_ref)
            .is_some_and(|outbox| outbox.serial == serial);
        if current {
            if let Some(place) = state.outboxes.get_mut(from.index()) {
                *place = None;
            }
            match &mut state.machines.coordinator {
                Some(coordinator) => coordinator.disconnected(from, how, now),
                None => state.machines.member.lost(how),
            }
        }
        self.deliver(state, now);
    }

    /// Waits until no connection is read any more: all others have closed theirs.
    pub(crate) async fn all_read(&self) {
        self.readers.clear().await;
    }

    /// Handles what a member says.
    ///
    /// Most contributions decide nothing, and nobody has to look at them: waking rank 0's caller for each
    /// would cost more than all the rest of it.
    fn hear(&self, from: Rank, message: ToCoordinator) {
        let is_quiet = matches!(
            message,
            ToCoordinator::Contribute { .. }
                | ToCoordinator::Status { .. }
                | ToCoordinator::Stalled { .. }
        );
        let mut state = self.lock();
        let now = state.look();
        if let Some(coordinator) = &mut state.machines.coordinator {
            coordinator.hear(from, message, now);
        }
        self.move_messages(state, now, is_quiet);
    }

    /// Reads what a member says until its connection ends.
    pub(crate) async fn serve_member(&self, from: Rank, serial: usize, mut reader: Reader) {
        let _counted = Counted::new(&self.readers);
        loop {
            match reader.next::<ToCoordinator>().await {
                Ok(message) => self.hear(from, message),
                Err(end) => {
                    self.ended(from, serial, &end.to_string());
                    reader.drain().await;
                    return;
                }
            }
        }
    }

    /// Reads what rank 0 says until its connection ends.
    pub(crate) async fn serve_coordinator(&self, serial: usize, mut reader: Reader) {
        let _counted = Counted::new(&self.readers);
        loop {
            match reader.next::<ToMember>().await {
                Ok(message) => self.act(|member, now| member.hear(message, now)),
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
            let rearm = self.rearm.notified();
            let due = {
                let mut state = self.lock();
                state.armed = state.next_look();
                state.armed
            };
            match due {
                None => rearm.await,
                Some(due) => tokio::select! {
                    () = rearm => {}
                    () = tokio::time::sleep_until(due.into()) => self.tick(),
                },
            }
        }
    }

    /// Looks at the time, and lets it pass for the machines if something is due. After a stop what was said
    /// meanwhile is heard first.
    fn tick(&self) {
        let mut state = self.lock();
        let now = state.look();
        let due = state.machines.next_tick();
        let is_due = due.is_some_and(|due| due <= now) && !state.clock.is_hearing();
        if is_due {
            state.machines.tick(now);
        }
        self.move_messages(state, now, !is_due);
    }

    /// Moves messages until nobody has anything to say, then wakes whoever may care.
    fn deliver(&self, state: MutexGuard<'_, State>, now: Instant) {
        self.move_messages(state, now, false);
    }

    /// The same, without waking anybody if no message had to be moved.
    fn move_messages(&self, mut state: MutexGuard<'_, State>, now: Instant, is_quiet: bool) {
        let State {
            machines,
            outboxes,
            clock,
            armed,
            ..
        } = &mut *state;
        let mut queues = Queues {
            outboxes,
            backlog: &self.backlog,
        };
        let has_news = !is_quiet || machines.has_something_to_say();
        let reclaims = machines.deliver(now, &mut queues);
        let earlier = match (machines.next_tick(), *armed) {
            (Some(next), Some(armed)) => clock.next_look(next) < armed,
            (Some(_), None) => true,
            (None, _) => false,
        };
        drop(state);
        if earlier {
            self.rearm.notify_one();
        }
        if has_news {
            self.changed.notify_waiters();
        }
        for (sink, channel, epoch, owner) in reclaims {
            sink(channel, epoch, owner);
        }
    }
}

impl Interruptible for Hub {
    fn doing(&self) -> Activity {
        self.lock().machines.member.doing()
    }

    fn interrupt(&self, cause: &Error) {
        let mut state = self.lock();
        let now = state.look();
        state.machines.interrupt(cause);
        self.deliver(state, now);
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
    pub(crate) async fn write_to(mut self, mut writer: Writer) {
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
