//! Worlds within one process: [`threads`], a rank for each thread, and [`solo`], one rank alone.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fsgather_core::{
    ChannelId, Error, Exchange, Interrupt, Peer, ProcessId, Rank, ReclaimSink, WorldSize,
};
use uuid::Uuid;

use crate::{
    carrier::Carrier,
    coordinator::{Coordinator, World},
    join::job_credentials::JobFingerprint,
    machines::{Machines, Outlet},
    member::Member,
    message::{EndRequest, Join, ToCoordinator, ToMember},
    node::{Condvars, Medium, Node, NodeState},
    rank_exchange::RankExchange,
};

/// Makes a world of `world_size` ranks for as many threads, one exchange for each.
///
/// The machines are those of the TCP world; the calling thread moves messages. There is no limit to the size of a
/// contribution, since nothing is copied. `process` is where the ranks run, and a call fails if nothing moves for
/// `timeout`.
#[must_use]
pub fn threads(
    world_size: WorldSize,
    process: &ProcessId,
    timeout: Duration,
) -> Vec<Box<dyn Exchange>> {
    let node = Arc::new(node_of_all(world_size, process, timeout));
    let peer = |rank| Peer {
        rank,
        host: process.host.clone(),
        pid: process.pid,
    };
    let peers: Vec<Peer> = world_size.ranks().map(peer).collect();
    world_size
        .ranks()
        .map(|rank| {
            let carrier = ThreadCarrier {
                rank,
                node: Arc::clone(&node),
                is_for_children: false,
            };
            let interrupt = Interrupt::default();
            let exchange =
                RankExchange::new(rank, world_size, peers.clone(), None, interrupt, carrier);
            Box::new(exchange) as Box<dyn Exchange>
        })
        .collect()
}

/// Makes a world of one rank: no file, no socket, no thread. Forked children may use it.
#[must_use]
pub fn solo(me: Peer) -> Box<dyn Exchange> {
    Box::new(alone(me))
}

/// Makes a group of one member of a world, on a channel of its own, without asking other ranks. Its verdicts call the last
/// rank rank 0, independent of its number in the world.
///
/// # Errors
///
/// None for a channel of groups.
pub fn solo_group(me: Peer, channel: ChannelId) -> Result<Box<dyn Exchange>, Error> {
    Ok(Box::new(alone(me).into_group(channel)?))
}

/// The only rank of a world, under any name.
fn alone(me: Peer) -> RankExchange<ThreadCarrier> {
    let carrier = ThreadCarrier {
        rank: Rank::ZERO,
        // A rank that is alone waits for no other, and watches no process.
        node: Arc::new(node_of_all(
            WorldSize::ONE,
            &ProcessId::default(),
            Duration::MAX,
        )),
        is_for_children: true,
    };
    RankExchange::new(
        Rank::ZERO,
        WorldSize::ONE,
        vec![me],
        None,
        Interrupt::default(),
        carrier,
    )
}

/// The node of a world that all ranks have joined.
fn node_of_all(
    world_size: WorldSize,
    process: &ProcessId,
    timeout: Duration,
) -> Node<ThreadMedium> {
    let now = Instant::now();
    let world = World {
        world_size,
        communicator: Uuid::new_v4(),
        job: "this process".into(),
        timeout,
        join_timeout: timeout,
        idle_limit: None,
        fingerprint: JobFingerprint::default(),
        lead: None,
        is_introduced: false,
        is_named: false,
        is_patient: false,
    };
    let mut coordinator = Coordinator::new(world, now);
    for rank in world_size.ranks() {
        let nonce = u128::from(rank.get());
        // No rank of such a world is refused.
        let _ = coordinator.join(
            Join {
                rank,
                world_size,
                nonce,
                process: process.clone(),
                timeout,
                start: None,
                attempt: None,
                fingerprint: JobFingerprint::default(),
            },
            now,
        );
    }
    // No rank needs the messages of a meeting that could not fail.
    coordinator.take_actions();
    let first = Peer {
        rank: Rank::ZERO,
        host: process.host.clone(),
        pid: process.pid,
    };
    let member = |_| Member::new(first.clone(), timeout, now);
    let members = world_size.ranks().map(member).collect();
    let machines = Machines::of_all(coordinator, members);
    Node::new(machines, ThreadMedium, Condvars::default())
}

/// The medium of a world within one process: no message goes anywhere else.
struct ThreadMedium;

impl Outlet for ThreadMedium {
    fn to_coordinator(&mut self, _: ToCoordinator) {}

    fn to_members(&mut self, _: &[Rank], _: &ToMember) {}
}

impl Medium for ThreadMedium {
    type Notifier = Condvars;

    fn has_work(_: &NodeState<Self>) -> bool {
        false
    }
}

/// One rank's access to the node of all.
struct ThreadCarrier {
    rank: Rank,
    node: Arc<Node<ThreadMedium>>,
    /// True if forked children may use their copy.
    is_for_children: bool,
}

impl Carrier for ThreadCarrier {
    fn act<R>(&self, act: impl FnOnce(&mut Member, Instant) -> R) -> R {
        let act = |state: &mut NodeState<ThreadMedium>, now| {
            act(state.machines.member_of(self.rank), now)
        };
        self.node.change(act)
    }

    fn wait_until<R>(
        &self,
        limit: Option<Duration>,
        mut ready: impl FnMut(&mut Member) -> Option<R>,
    ) -> Option<R> {
        let ready =
            |state: &mut NodeState<ThreadMedium>| ready(state.machines.member_of(self.rank));
        self.node.wait_until(limit, ready)
    }

    fn settle(&self, _limit: Duration) {
        // Messages are delivered before `act` returns.
    }

    fn wait_for_departures(&self, limit: Duration) -> bool {
        let gone = |state: &mut NodeState<ThreadMedium>| {
            let (_, coordinator) = state.machines.both();
            coordinator.is_none_or(Coordinator::is_gone).then_some(())
        };
        self.node.wait_until(Some(limit), gone).is_some()
    }

    fn set_reclaim_sink(&self, sink: ReclaimSink) {
        self.node.set_reclaim_sink(self.rank, Some(sink));
    }

    fn shut_down(&self) -> bool {
        self.node.coordinate(|coordinator, now| {
            if self.rank == Rank::ZERO {
                coordinator.abandon();
            } else {
                // Messages of members that have left already are ignored.
                let leave = ToCoordinator::End(EndRequest::Leave { cause: None });
                coordinator.on_message(self.rank, leave, now);
            }
        });
        // The sink may hold the owner of this exchange.
        self.node.set_reclaim_sink(self.rank, None);
        true
    }

    fn is_foreign(&self) -> bool {
        !self.is_for_children && self.node.is_foreign()
    }
}
