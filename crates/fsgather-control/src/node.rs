//! The state machines of one process as its threads share them: [`Node`].
//!
//! All carriers run the same machines in the same way: a thread with an event takes the lock, reads the time, lets a
//! machine act and delivers the results. They differ in the [`Medium`]: the destination of messages for other processes,
//! and the way in which waiting threads are woken. The lock is never held over a system call.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use fsgather_core::{
    Activity, AwakeClock, Deadline, Error, Rank, ReclaimSink, Whereabouts, lock,
    sys::{clock, condition::Condition},
};

use crate::{
    coordinator::Coordinator,
    join::config::{self, Config},
    machines::{Errands, LookOrder, Machines, Outlet},
    member::Member,
};

/// Maximum number of concurrent looks at processes; beyond it orders are dropped, so that hanging looks do not pile up.
const MOST_LOOKS: usize = 8;

/// The part of a node in which carriers differ.
pub(crate) trait Medium: Outlet + Send + Sized + 'static {
    /// Wakes waiting threads and tasks.
    type Notifier: Notifier;

    /// Returns true if the time is read regularly, so that a long gap means that this process was stopped.
    fn is_timed(&self, machines: &Machines) -> bool {
        machines.next_tick().is_some()
    }

    /// Returns true if the carrier has work: messages to take away, or an earlier deadline.
    fn has_work(state: &NodeState<Self>) -> bool;
}

/// Wakes the threads and tasks that wait for a node.
pub(crate) trait Notifier: Send + Sync + 'static {
    /// Wakes all that wait for a change.
    fn changed(&self);

    /// Wakes the thread or task that takes messages away or keeps time.
    fn work(&self);
}

/// State of a node under its lock.
pub(crate) struct NodeState<P> {
    pub(crate) machines: Machines,
    pub(crate) medium: P,
    /// The clock of the machines.
    clock: AwakeClock,
}

impl<P: Medium> NodeState<P> {
    /// Reads the time of the machines.
    fn look(&mut self) -> Instant {
        let now = clock::now();
        if !self.medium.is_timed(&self.machines) {
            return self.clock.look_after_rest(now);
        }
        let now = self.clock.look(now);
        if self.clock.take_wake() {
            self.machines.wake(now);
        }
        now
    }

    /// Time at which to read the clock next, if anything is due at some time.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        let due = self.machines.next_tick();
        due.map(|due| self.clock.next_look(due))
    }
}

/// The machines of a process, the lock around them, and the notifier of waiting threads.
pub(crate) struct Node<P: Medium> {
    /// The process that made it; a forked child must not touch it.
    pid: u32,
    state: Mutex<NodeState<P>>,
    /// Follows orders to look at processes, if that is enabled.
    eyes: OnceLock<Eyes>,
    pub(crate) notifier: P::Notifier,
}

impl<P: Medium> Node<P> {
    pub(crate) fn new(machines: Machines, medium: P, notifier: P::Notifier) -> Self {
        Self {
            pid: std::process::id(),
            state: Mutex::new(NodeState {
                machines,
                medium,
                clock: AwakeClock::new(clock::now()),
            }),
            eyes: OnceLock::new(),
            notifier,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, NodeState<P>> {
        lock(&self.state)
    }

    /// Returns true if this process is a forked child of the one that made the node.
    pub(crate) fn is_foreign(&self) -> bool {
        self.pid != std::process::id()
    }

    /// Applies a change, and delivers its results.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut NodeState<P>, Instant) -> R) -> R {
        let mut state = self.lock();
        let now = state.look();
        let result = change(&mut state, now);
        self.deliver(state, now, true);
        result
    }

    /// The same for changes that few threads wait for: it wakes them only if a message had to be moved.
    pub(crate) fn change_quietly(&self, change: impl FnOnce(&mut NodeState<P>, Instant)) {
        let mut state = self.lock();
        let now = state.look();
        change(&mut state, now);
        self.deliver(state, now, false);
    }

    /// Lets the only member of this process act.
    pub(crate) fn act<R>(&self, act: impl FnOnce(&mut Member, Instant) -> R) -> R {
        self.change(|state, now| act(state.machines.member(), now))
    }

    /// Lets the coordinator act, if this is rank 0.
    pub(crate) fn coordinate<R>(
        &self,
        act: impl FnOnce(&mut Coordinator, Instant) -> R,
    ) -> Option<R> {
        self.change(|state, now| {
            let coordinator = state.machines.coordinator.as_mut()?;
            Some(act(coordinator, now))
        })
    }

    /// Sets the callback that removes payloads of a member of this process.
    pub(crate) fn set_reclaim_sink(&self, rank: Rank, sink: Option<ReclaimSink>) {
        self.lock().machines.set_reclaim_sink(rank, sink);
    }

    /// Sets the callback that removes payloads of the only member of this process.
    pub(crate) fn set_own_reclaim_sink(&self, sink: Option<ReclaimSink>) {
        self.lock().machines.set_own_reclaim_sink(sink);
    }

    /// Lets time pass for the machines if something is due. After a stop of the process, messages that arrived meanwhile
    /// are read first.
    pub(crate) fn pass_time(&self, mut state: MutexGuard<'_, NodeState<P>>) {
        let now = state.look();
        let due = state.machines.next_tick();
        let is_due = due.is_some_and(|due| due <= now) && !state.clock.is_hearing();
        if is_due {
            state.machines.tick(now);
        }
        self.deliver(state, now, is_due);
    }

    /// Moves messages until no machine has any more, wakes waiting threads if there is news, and removes payloads that can
    /// go, the last two outside of the lock.
    fn deliver(&self, mut state: MutexGuard<'_, NodeState<P>>, now: Instant, is_news: bool) {
        let NodeState {
            machines, medium, ..
        } = &mut *state;
        let is_news = is_news || machines.has_something_to_say();
        let Errands { reclaims, looks } = machines.deliver(now, medium);
        let has_work = P::has_work(&state);
        drop(state);
        if has_work {
            self.notifier.work();
        }
        if is_news {
            self.notifier.changed();
        }
        for (sink, channel, epoch, owner) in reclaims {
            sink(channel, epoch, owner);
        }
        for order in looks {
            match self.eyes.get() {
                Some(eyes) => eyes(order),
                None => self.say_seen(order, None),
            }
        }
    }
}

/// Follows an order to look at a process, and has the member report the result.
type Eyes = Box<dyn Fn(LookOrder) + Send + Sync>;

impl<P: Medium> Node<P> {
    fn say_seen(&self, order: LookOrder, whereabouts: Option<Whereabouts>) {
        let LookOrder {
            member,
            number,
            neighbour,
        } = order;
        let who = neighbour.map_or(member, |neighbour| neighbour.rank);
        self.change(|state, _| {
            let member = state.machines.member_of(member);
            member.seen(number, who, whereabouts);
        });
    }

    /// Enables looks at processes, each on a thread of its own: a look may take long, and must not block others.
    pub(crate) fn open_eyes(self: &Arc<Self>, config: &Config) {
        let Some(look) = config.look.clone() else {
            return;
        };
        let (node, threads) = (Arc::downgrade(self), config.threads());
        let looking = Arc::new(AtomicUsize::new(0));
        let eyes = move |order: LookOrder| {
            let (node, look, looking) = (node.clone(), look.clone(), looking.clone());
            if looking.fetch_add(1, Ordering::SeqCst) >= MOST_LOOKS {
                looking.fetch_sub(1, Ordering::SeqCst);
                return;
            }
            let name = format!("fsgather-{}-look", order.member);
            let count = looking.clone();
            let started = threads.start(name, move || {
                let whereabouts = look(order.neighbour.as_ref());
                looking.fetch_sub(1, Ordering::SeqCst);
                if let Some(node) = node.upgrade() {
                    node.say_seen(order, whereabouts);
                }
            });
            if let Err(error) = started {
                count.fetch_sub(1, Ordering::SeqCst);
                tracing::debug!("no thread to look at a process: {error}");
            }
        };
        // If it is enabled twice, both are the same.
        let _ = self.eyes.set(Box::new(eyes));
    }

    /// Makes the interrupt of this rank end all calls, with an error that names the rank.
    pub(crate) fn obey_interrupt(self: &Arc<Self>, config: &Config) {
        // The interrupt may outlive the communicator.
        let node = Arc::downgrade(self);
        let me = config::own_peer(config);
        config.interrupt.on_raise(move |reason| {
            if let Some(node) = node.upgrade() {
                let doing: Activity = node.lock().machines.member().doing();
                let cause = Error::raised(me.clone(), doing, reason);
                node.change(|state, _| state.machines.interrupt(&cause));
            }
        });
    }
}

/// Notifier for threads.
#[derive(Default)]
pub(crate) struct Condvars {
    changed: Condition,
    work: Condition,
}

impl Notifier for Condvars {
    fn changed(&self) {
        self.changed.wake_all();
    }

    fn work(&self) {
        self.work.wake_one();
    }
}

impl<P: Medium<Notifier = Condvars>> Node<P> {
    /// Waits until `ready` has a result, for `limit` at most. Time passes for the machines meanwhile.
    pub(crate) fn wait_until<R>(
        &self,
        limit: Option<Duration>,
        mut ready: impl FnMut(&mut NodeState<P>) -> Option<R>,
    ) -> Option<R> {
        let deadline = limit.map(|limit| Deadline::after(clock::now(), limit).at());
        let mut state = self.lock();
        loop {
            if let Some(result) = ready(&mut state) {
                return Some(result);
            }
            let now = clock::now();
            let due = state.next_look();
            // Checked before the deadline, so that time also passes for callers that look only now and then.
            if due.is_some_and(|due| now >= due) {
                self.pass_time(state);
                state = self.lock();
                continue;
            }
            if deadline.is_some_and(|deadline| now >= deadline) {
                return None;
            }
            let until = due.into_iter().chain(deadline).min();
            let left = until.map(|until| until - now);
            state = self.notifier.changed.wait(&self.state, state, left);
        }
    }

    /// Waits for work, or until `pause` is over; `is_called` returns true if there is any.
    pub(crate) fn wait_for_work(&self, pause: Duration, is_called: impl Fn(&NodeState<P>) -> bool) {
        let until = clock::now() + pause;
        let mut state = self.lock();
        loop {
            let left = until.saturating_duration_since(clock::now());
            if is_called(&state) || left.is_zero() {
                return;
            }
            state = self.notifier.work.wait(&self.state, state, Some(left));
        }
    }
}
