//! The state that callers and the poller of one rank share: [`Desk`].

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use fsgather_core::{
    Activity, AwakeClock, Error, Letter, ProcessId, Rank, ReclaimSink, Retirement, lock,
};

use super::mail::{Bulletins, Letters, Outgoing, Saying, To};
use crate::{
    config::Interruptible,
    coordinator::{Coordinator, JoinAnswer},
    machines::{Machines, Mail},
    member::Member,
    message::{ToCoordinator, ToMember},
    waiting::{self, Timed},
};

/// The mail of a rank.
pub(super) enum Office {
    /// Rank 0's.
    Coordinator(Bulletins),
    /// A member's.
    Member(Letters),
}

impl Mail for Office {
    fn to_coordinator(&mut self, message: ToCoordinator) {
        if let Self::Member(letters) = self {
            letters.say(message);
        }
    }

    fn to_members(&mut self, to: &[Rank], message: &ToMember) {
        let others: Vec<Rank> = to.iter().copied().filter(|to| *to != Rank::ZERO).collect();
        if let Self::Coordinator(bulletins) = self
            && !others.is_empty()
        {
            bulletins.say(To::Ranks(others), Saying::Message(message.clone()));
        }
    }
}

struct State {
    machines: Machines,
    /// The time that they live in.
    clock: AwakeClock,
    office: Office,
    /// Whether the poller is under way with something.
    in_flight: bool,
    /// Whose processes were seen to go, until the poller has looked for their last words: of anybody on
    /// rank 0, of rank 0 elsewhere.
    ended: Vec<Rank>,
    /// Whether messages cannot be moved any more.
    is_cut_off: bool,
    /// What the poller does at its end, once it is to stop.
    stopping: Option<Retirement>,
    /// Whether the poller has stopped.
    stopped: bool,
}

impl State {
    /// What time it is for the machines.
    fn look(&mut self) -> Instant {
        let now = Instant::now();
        if self.machines.next_tick().is_none() {
            return self.clock.look_after_rest(now);
        }
        let now = self.clock.look(now);
        if self.clock.take_wake() {
            self.machines.wake(now);
        }
        now
    }

    /// Lets time pass for the machines if something is due; whether they may have something to say. After a
    /// stop what was said meanwhile is heard first.
    fn pass_time(&mut self, now: Instant) -> bool {
        let due = self.machines.next_tick();
        if due.is_some_and(|due| due <= now) && !self.clock.is_hearing() {
            self.machines.tick(now);
            return true;
        }
        self.machines.has_something_to_say()
    }
}

impl Timed for State {
    fn next_look(&self) -> Option<Instant> {
        let due = self.machines.next_tick();
        due.map(|due| self.clock.next_look(due))
    }
}

/// The machines of a rank and its mail, under one lock that is never held over a file call.
pub(super) struct Desk {
    state: Mutex<State>,
    /// Told after every event; waiting callers look again.
    changed: Condvar,
    /// Told when the poller has something to do.
    work: Condvar,
}

/// What the poller has to know before it goes.
pub(super) struct Round {
    pub(super) outgoing: Vec<Outgoing>,
    pub(super) coordinator_ended: bool,
    /// Ranks whose processes were seen to go.
    pub(super) ended: Vec<Rank>,
    pub(super) stopping: Option<Retirement>,
}

/// What of the own mail is not needed any more.
pub(super) struct Discard {
    pub(super) up_to: u64,
    pub(super) keep: Vec<u64>,
    /// Whether nobody has to be waited for.
    pub(super) is_answered: bool,
}

impl Desk {
    pub(super) fn new(machines: Machines, office: Office) -> Self {
        Self {
            state: Mutex::new(State {
                machines,
                clock: AwakeClock::new(Instant::now()),
                office,
                in_flight: false,
                ended: Vec::new(),
                is_cut_off: false,
                stopping: None,
                stopped: false,
            }),
            changed: Condvar::new(),
            work: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Moves messages, wakes those who wait, and removes what can go, the last outside of the lock.
    fn deliver(&self, mut state: MutexGuard<'_, State>, now: Instant) {
        let State {
            machines, office, ..
        } = &mut *state;
        let reclaims = machines.deliver(now, office);
        let is_idle = office.is_empty();
        drop(state);
        self.changed.notify_all();
        if !is_idle {
            self.work.notify_one();
        }
        for (sink, channel, epoch, owner) in reclaims {
            sink(channel, epoch, owner);
        }
    }

    pub(super) fn act<R>(&self, act: impl FnOnce(&mut Member, Instant) -> R) -> R {
        let mut state = self.lock();
        let now = state.look();
        let result = act(&mut state.machines.member, now);
        self.deliver(state, now);
        result
    }

    /// Lets the coordinator act, if this is rank 0.
    pub(super) fn coordinate<R>(
        &self,
        act: impl FnOnce(&mut Coordinator, Instant) -> R,
    ) -> Option<R> {
        let mut state = self.lock();
        let now = state.look();
        let result = act(state.machines.coordinator.as_mut()?, now);
        self.deliver(state, now);
        Some(result)
    }

    pub(super) fn set_reclaim_sink(&self, sink: Option<ReclaimSink>) {
        self.lock().machines.set_reclaim_sink(sink);
    }

    /// Notes that the process of rank 0 has ended; its last words may still be unread.
    pub(super) fn coordinator_ended(&self) {
        self.lock().ended.push(Rank::ZERO);
        self.work.notify_one();
    }

    /// Notes that the process of a rank on this host has ended. Rank 0 looks for its last words first; the
    /// others tell rank 0.
    pub(super) fn sibling_ended(&self, sibling: Rank) {
        let mut state = self.lock();
        if state.machines.coordinator.is_some() {
            state.ended.push(sibling);
            self.work.notify_one();
        } else {
            drop(state);
            self.act(|member, _| member.sibling_exited(sibling));
        }
    }

    /// Whether rank 0 waits for the last words of somebody who is said to have ended.
    pub(super) fn has_suspects(&self) -> bool {
        let state = self.lock();
        let coordinator = state.machines.coordinator.as_ref();
        coordinator.is_some_and(Coordinator::has_suspects)
    }

    /// Notes that messages cannot be moved any more, so that nobody has to be waited for.
    pub(super) fn cut_off(&self) {
        self.lock().is_cut_off = true;
        self.changed.notify_all();
    }

    /// Waits until `ready` has a result, for `limit` at most. Time passes for the machines meanwhile,
    /// whatever the poller is doing.
    fn wait_on<R>(
        &self,
        limit: Option<Duration>,
        ready: impl FnMut(&mut State) -> Option<R>,
    ) -> Option<R> {
        let pass_time = |mut state: MutexGuard<'_, State>| {
            let now = state.look();
            if state.pass_time(now) {
                self.deliver(state, now);
            }
        };
        waiting::wait_on(&self.state, &self.changed, limit, pass_time, ready)
    }

    /// Waits until `ready` has a result.
    pub(super) fn wait_until<R>(
        &self,
        limit: Option<Duration>,
        mut ready: impl FnMut(&mut Member, Option<&Coordinator>) -> Option<R>,
    ) -> Option<R> {
        self.wait_on(limit, |state| {
            let machines = &mut state.machines;
            ready(&mut machines.member, machines.coordinator.as_ref())
        })
    }

    /// Waits until everything that was said has been left for the others; whether that was in time.
    pub(super) fn flushed(&self, limit: Duration) -> bool {
        self.wait_on(Some(limit), |state| {
            (state.office.is_empty() && !state.in_flight || state.stopped).then_some(())
        })
        .is_some()
    }

    /// On rank 0, waits until all members have read everything; whether they have.
    pub(super) fn all_read(&self, limit: Duration) -> bool {
        self.wait_on(Some(limit), |state| {
            let all_read = match (&state.office, &state.machines.coordinator) {
                (Office::Coordinator(bulletins), Some(coordinator)) => {
                    bulletins.is_empty()
                        && !state.in_flight
                        && bulletins.read_by(coordinator.connected_processes()) == bulletins.sent()
                }
                _ => true,
            };
            (all_read || state.stopped || state.is_cut_off).then_some(all_read)
        })
        .unwrap_or(false)
    }

    /// On rank 0 of a world that fails while it forms, waits until everybody knows who has asked to be in
    /// it, for `limit` at most.
    pub(super) fn all_told(&self, limit: Duration) {
        self.wait_on(Some(limit), |state| {
            let all_told = match (&state.office, &state.machines.coordinator) {
                (Office::Coordinator(bulletins), Some(coordinator)) => {
                    coordinator.all_told() && bulletins.all_heard()
                }
                _ => true,
            };
            (all_told || state.stopped || state.is_cut_off).then_some(())
        });
    }

    /// Has the poller stop after what is left to do; whether it has, within `limit`.
    pub(super) fn stop(&self, how: Retirement, limit: Duration) -> bool {
        self.lock().stopping = Some(how);
        self.work.notify_one();
        self.wait_on(Some(limit), |state| state.stopped.then_some(()))
            .is_some()
    }

    // What the poller does.

    /// Waits for something to carry, for `pause` at most; being told to stop counts unless that is known.
    pub(super) fn wait_for_work(&self, pause: Duration, knows_of_stop: bool) {
        let until = Instant::now() + pause;
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let is_called = !state.office.is_empty()
                || !state.ended.is_empty()
                || (state.stopping.is_some() && !knows_of_stop);
            if is_called || now >= until {
                return;
            }
            state = self
                .work
                .wait_timeout(state, until - now)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Starts a round of the courier: lets time pass, and hands out what is to be left.
    pub(super) fn start_round(&self) -> Round {
        let mut state = self.lock();
        let now = state.look();
        if state.pass_time(now) {
            self.deliver(state, now);
            state = self.lock();
        }
        let stopping = state.stopping;
        let ended = std::mem::take(&mut state.ended);
        let finally = stopping.is_some() || state.machines.member.farewell().is_some();
        let outgoing = match &mut state.office {
            Office::Coordinator(bulletins) => bulletins.take_outgoing(),
            Office::Member(letters) => letters.take_outgoing(finally),
        };
        state.in_flight |= !outgoing.is_empty();
        Round {
            outgoing,
            coordinator_ended: ended.contains(&Rank::ZERO),
            ended: ended
                .into_iter()
                .filter(|rank| *rank != Rank::ZERO)
                .collect(),
            stopping,
        }
    }

    /// Notes that everything handed out has been left for the others.
    pub(super) fn landed(&self) {
        self.lock().in_flight = false;
        self.changed.notify_all();
    }

    /// Hands messages to the machines; what of the own mail can go then.
    pub(super) fn take_in(&self, found: Vec<Letter>) -> Discard {
        let mut state = self.lock();
        let now = state.look();
        let State {
            machines, office, ..
        } = &mut *state;
        match (&mut *office, &mut machines.coordinator) {
            (Office::Coordinator(bulletins), Some(coordinator)) => {
                for (from, nonce, message) in bulletins.take_in(found) {
                    hear(bulletins, coordinator, (from, nonce), message, now);
                }
            }
            (Office::Member(letters), _) => {
                for message in letters.take_in(found) {
                    machines.member.hear(message, now);
                }
            }
            (Office::Coordinator(_), None) => {}
        }
        let discard = match (&*office, &machines.coordinator) {
            (Office::Coordinator(bulletins), Some(coordinator)) if coordinator.is_open() => {
                let up_to = bulletins.read_by(coordinator.connected_processes());
                Discard {
                    up_to,
                    keep: bulletins.answers(),
                    is_answered: up_to == bulletins.sent(),
                }
            }
            (Office::Coordinator(_), _) => Discard {
                up_to: 0,
                keep: Vec::new(),
                is_answered: false,
            },
            // The first letter stays: it shows the others that this rank is still here.
            (Office::Member(letters), _) => Discard {
                up_to: letters.acknowledged(),
                keep: vec![1],
                is_answered: letters.is_answered(),
            },
        };
        self.deliver(state, now);
        discard
    }

    /// Where all ranks run, once the world has formed; on rank 0.
    pub(super) fn formed(&self) -> Option<Vec<ProcessId>> {
        let state = self.lock();
        let coordinator = state.machines.coordinator.as_ref()?;
        coordinator.is_open().then(|| coordinator.processes())
    }

    /// Who has joined so far, and where they run; on rank 0.
    pub(super) fn joined(&self) -> Vec<(Rank, ProcessId)> {
        let state = self.lock();
        let Some(coordinator) = &state.machines.coordinator else {
            return Vec::new();
        };
        let processes = coordinator.processes();
        (0..)
            .map(Rank::new)
            .zip(processes)
            .filter(|(rank, _)| coordinator.is_connected(*rank))
            .collect()
    }

    /// Notes that the poller is gone.
    pub(super) fn stopped(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }
}

impl Interruptible for Desk {
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

impl Office {
    fn is_empty(&self) -> bool {
        match self {
            Self::Coordinator(bulletins) => bulletins.is_empty(),
            Self::Member(letters) => letters.is_empty(),
        }
    }
}

/// Handles what a process says that may or may not be a member.
fn hear(
    bulletins: &mut Bulletins,
    coordinator: &mut Coordinator,
    (from, nonce): (Rank, u128),
    message: ToCoordinator,
    now: Instant,
) {
    match message {
        ToCoordinator::Join(join) if join.rank == from && join.nonce == nonce => {
            let answer = match coordinator.join(join, now) {
                JoinAnswer::Accepted => Saying::Admitted,
                JoinAnswer::Refused(message) => Saying::Message(message),
            };
            bulletins.say(To::Process(nonce), answer);
        }
        message if coordinator.knows(from, nonce) => coordinator.hear(from, message, now),
        _ => tracing::debug!("a process that is no member speaks for rank {from}"),
    }
}
