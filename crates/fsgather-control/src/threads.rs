//! A world whose ranks are threads of one process: [`threads`].

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use fsgather_core::{
    AwakeClock, ChannelId, Epoch, Exchange, Interrupt, Peer, ProcessId, Rank, ReclaimSink,
    WorldSize, lock,
};
use uuid::Uuid;

use crate::{
    bond::Belonging,
    carrier::Carrier,
    coordinator::{Action, Coordinator, World},
    member::{Member, MemberAction},
    message::{Join, ToCoordinator},
    rank_exchange::RankExchange,
    waiting::{self, Timed},
};

/// Makes a world of `world_size` ranks for as many threads, one exchange for each.
///
/// The machines are those of the TCP world; messages are moved by whoever calls. There is no limit to
/// the size of a contribution, since nothing is copied. `process` says where the ranks run, and
/// `timeout` how long nothing may move before a call fails.
#[must_use]
pub fn threads(
    world_size: WorldSize,
    process: &ProcessId,
    timeout: Duration,
) -> Vec<Box<dyn Exchange>> {
    let now = Instant::now();
    let world = World {
        world_size,
        communicator: Uuid::new_v4(),
        job: "this process".into(),
        timeout,
        join_timeout: timeout,
        belonging: Belonging::default(),
    };
    let mut coordinator = Coordinator::new(world, now);
    for rank in world_size.ranks() {
        let nonce = u128::from(rank.get());
        coordinator.join(
            Join {
                rank,
                world_size,
                nonce,
                process: process.clone(),
                timeout,
                start: None,
                attempt: None,
                belonging: Belonging::default(),
            },
            now,
        );
    }
    // Nobody is told of a meeting that could not fail.
    coordinator.take_actions();
    let peer = |rank| Peer {
        rank,
        host: process.host.clone(),
        pid: process.pid,
    };
    let peers: Vec<Peer> = world_size.ranks().map(peer).collect();
    let member = |_| Member::new(peer(Rank::ZERO), timeout, now);
    let room = Arc::new(ThreadWorld {
        pid: std::process::id(),
        state: Mutex::new(State {
            clock: AwakeClock::new(now),
            coordinator,
            members: world_size.ranks().map(member).collect(),
            sinks: vec![None; world_size.count()],
        }),
        changed: Condvar::new(),
    });
    world_size
        .ranks()
        .map(|rank| {
            let carrier = ThreadCarrier {
                rank,
                room: Arc::clone(&room),
            };
            let interrupt = Interrupt::default();
            let exchange =
                RankExchange::new(rank, world_size, peers.clone(), None, interrupt, carrier);
            Box::new(exchange) as Box<dyn Exchange>
        })
        .collect()
}

/// All machines of a world of threads.
struct ThreadWorld {
    pid: u32,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The time that the machines live in.
    clock: AwakeClock,
    coordinator: Coordinator,
    members: Vec<Member>,
    sinks: Vec<Option<ReclaimSink>>,
}

/// A payload that is ready to go, and who removes it.
type Reclaim = (ReclaimSink, ChannelId, Epoch, Rank);

impl State {
    /// Moves messages between the machines until nobody has anything to say.
    fn pump(&mut self, now: Instant) -> Vec<Reclaim> {
        let mut reclaims = Vec::new();
        loop {
            let mut quiet = true;
            for index in 0..self.members.len() {
                let actions = self.members[index].take_actions();
                quiet &= actions.is_empty();
                let rank = Rank::new(u32::try_from(index).unwrap_or(u32::MAX));
                for action in actions {
                    match action {
                        MemberAction::Send(message) => self.coordinator.hear(rank, message, now),
                        MemberAction::Reclaim { channel, epoch } => {
                            reclaims.extend(self.reclaim(rank, channel, epoch, rank));
                        }
                        MemberAction::Warn(text) => tracing::warn!("{text}"),
                    }
                }
            }
            let actions = self.coordinator.take_actions();
            quiet &= actions.is_empty();
            for action in actions {
                match action {
                    Action::Send { to, message } => {
                        for rank in to {
                            if let Some(member) = self.members.get_mut(rank.index()) {
                                member.hear(message.clone(), now);
                            }
                        }
                    }
                    Action::ReclaimFor {
                        channel,
                        epoch,
                        owner,
                    } => reclaims.extend(self.reclaim(Rank::ZERO, channel, epoch, owner)),
                    Action::Warn(text) => tracing::warn!("{text}"),
                    Action::Note(text) => tracing::info!("{text}"),
                }
            }
            if quiet {
                return reclaims;
            }
        }
    }

    fn reclaim(&self, by: Rank, channel: ChannelId, epoch: Epoch, owner: Rank) -> Option<Reclaim> {
        let sink = self.sinks.get(by.index())?.clone()?;
        Some((sink, channel, epoch, owner))
    }

    fn tick(&mut self, now: Instant) {
        self.coordinator.tick(now);
        for member in &mut self.members {
            member.tick(now);
        }
    }
}

impl Timed for State {
    fn next_look(&self) -> Option<Instant> {
        self.next_tick().map(|due| self.clock.next_look(due))
    }
}

impl State {
    fn next_tick(&self) -> Option<Instant> {
        self.members
            .iter()
            .filter_map(Member::next_tick)
            .chain(self.coordinator.next_tick())
            .min()
    }

    /// What time it is for the machines.
    fn look(&mut self) -> Instant {
        let now = Instant::now();
        if self.next_tick().is_none() {
            return self.clock.look_after_rest(now);
        }
        self.clock.look(now)
    }
}

/// One rank's access to the room.
struct ThreadCarrier {
    rank: Rank,
    room: Arc<ThreadWorld>,
}

impl ThreadCarrier {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.room.state)
    }

    /// Moves messages, wakes those who wait, and removes what can go, the last outside of the lock.
    fn deliver(&self, mut state: MutexGuard<'_, State>, now: Instant) {
        let reclaims = state.pump(now);
        drop(state);
        self.room.changed.notify_all();
        for (sink, channel, epoch, owner) in reclaims {
            sink(channel, epoch, owner);
        }
    }

    fn wait_on_state<R>(
        &self,
        limit: Option<Duration>,
        ready: impl FnMut(&mut State) -> Option<R>,
    ) -> Option<R> {
        let pass_time = |mut state: MutexGuard<'_, State>| {
            let now = state.look();
            // Nothing is ever unread here.
            if state.next_tick().is_some_and(|due| due <= now) {
                state.tick(now);
                self.deliver(state, now);
            }
        };
        let ThreadWorld { state, changed, .. } = &*self.room;
        waiting::wait_on(state, changed, limit, pass_time, ready)
    }
}

impl Carrier for ThreadCarrier {
    fn act<R>(&self, act: impl FnOnce(&mut Member, Instant) -> R) -> R {
        let mut state = self.lock();
        let now = state.look();
        let result = act(&mut state.members[self.rank.index()], now);
        self.deliver(state, now);
        result
    }

    fn wait_until<R>(
        &self,
        limit: Option<Duration>,
        mut ready: impl FnMut(&mut Member) -> Option<R>,
    ) -> Option<R> {
        let index = self.rank.index();
        self.wait_on_state(limit, |state| ready(&mut state.members[index]))
    }

    fn settle(&self, _limit: Duration) {
        // Messages are delivered before `act` returns.
    }

    fn wait_for_departures(&self, limit: Duration) -> bool {
        self.wait_on_state(Some(limit), |state| {
            state.coordinator.is_gone().then_some(())
        })
        .is_some()
    }

    fn set_reclaim_sink(&self, sink: ReclaimSink) {
        if let Some(place) = self.lock().sinks.get_mut(self.rank.index()) {
            *place = Some(sink);
        }
    }

    fn shut_down(&self) -> bool {
        let mut state = self.lock();
        let now = state.look();
        if self.rank == Rank::ZERO {
            state.coordinator.abandon();
        } else {
            // Members that have left already are not heard.
            let leave = ToCoordinator::Leave { cause: None };
            state.coordinator.hear(self.rank, leave, now);
        }
        self.deliver(state, now);
        if let Some(place) = self.lock().sinks.get_mut(self.rank.index()) {
            // The sink may hold what holds this exchange.
            *place = None;
        }
        true
    }

    fn is_foreign(&self) -> bool {
        self.room.pid != std::process::id()
    }
}
