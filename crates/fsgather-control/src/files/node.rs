//! The state that callers and the poller of one rank share: [`FileNode`].

use std::time::{Duration, Instant};

use fsgather_core::{InboundMessage, ProcessId, Rank, Retirement};

use super::endpoint::{BulletinItem, CoordinatorEndpoint, MemberEndpoint, OutgoingFile, To};
use crate::{
    coordinator::Coordinator,
    machines::{Machines, Outlet},
    member::Member,
    message::{JoinReply, JoinRequest, ToCoordinator, ToMember},
    node::{Condvars, Medium, Node, NodeState, Notifier},
};

/// One end of the message exchange.
pub(super) enum Endpoint {
    /// The end of rank 0.
    Coordinator(CoordinatorEndpoint),
    /// The end of a member.
    Member(MemberEndpoint),
}

/// The messages of a rank, and the orders for its poller.
pub(super) struct Files {
    endpoint: Endpoint,
    /// True while the poller leaves messages.
    in_flight: bool,
    /// Ranks whose processes were seen to end, until the poller has looked for their last messages: any rank on rank 0,
    /// rank 0 elsewhere.
    ended: Vec<Rank>,
    /// True if messages cannot be moved any more.
    is_cut_off: bool,
    /// Final step of the poller, once it has to stop.
    stopping: Option<Retirement>,
    /// True if the poller has stopped.
    stopped: bool,
}

impl Outlet for Files {
    fn to_coordinator(&mut self, message: ToCoordinator) {
        if let Endpoint::Member(endpoint) = &mut self.endpoint {
            endpoint.send(message);
        }
    }

    fn to_members(&mut self, to: &[Rank], message: &ToMember) {
        let others: Vec<Rank> = to.iter().copied().filter(|to| *to != Rank::ZERO).collect();
        if let Endpoint::Coordinator(endpoint) = &mut self.endpoint
            && !others.is_empty()
        {
            endpoint.send(To::Ranks(others), BulletinItem::Message(message.clone()));
        }
    }
}

impl Medium for Files {
    type Notifier = Condvars;

    fn has_work(state: &NodeState<Self>) -> bool {
        !state.medium.endpoint.is_empty()
    }
}

/// The node of a rank whose messages go through marker files.
pub(super) type FileNode = Node<Files>;

/// The work of one round of the poller.
pub(super) struct PollRound {
    pub(super) outgoing: Vec<OutgoingFile>,
    pub(super) coordinator_ended: bool,
    /// Ranks whose processes were seen to end.
    pub(super) ended: Vec<Rank>,
    pub(super) stopping: Option<Retirement>,
}

/// Messages of this rank that are not needed any more.
pub(super) struct Discard {
    pub(super) up_to: u64,
    pub(super) keep: Vec<u64>,
    /// True if no reader has to be waited for.
    pub(super) is_answered: bool,
}

impl FileNode {
    pub(super) fn over_files(machines: Machines, endpoint: Endpoint) -> Self {
        let medium = Files {
            endpoint,
            in_flight: false,
            ended: Vec::new(),
            is_cut_off: false,
            stopping: None,
            stopped: false,
        };
        Self::new(machines, medium, Condvars::default())
    }

    /// Notes that the process of rank 0 has ended; its last messages may still be unread.
    pub(super) fn coordinator_ended(&self) {
        self.lock().medium.ended.push(Rank::ZERO);
        self.notifier.work();
    }

    /// Notes that the process of a rank on this host has ended. Rank 0 looks for its last messages first; the others report
    /// it to rank 0.
    pub(super) fn sibling_ended(&self, sibling: Rank) {
        let mut state = self.lock();
        if state.machines.coordinator.is_some() {
            state.medium.ended.push(sibling);
            self.notifier.work();
        } else {
            drop(state);
            self.act(|member, _| member.sibling_exited(sibling));
        }
    }

    /// Returns true if rank 0 waits for the last messages of a rank that is reported to have ended.
    pub(super) fn has_suspects(&self) -> bool {
        let state = self.lock();
        let coordinator = state.machines.coordinator.as_ref();
        coordinator.is_some_and(Coordinator::has_suspects)
    }

    /// Notes that messages cannot be moved any more, so that no reader has to be waited for.
    pub(super) fn cut_off(&self) {
        self.lock().medium.is_cut_off = true;
        self.notifier.changed();
    }

    /// Waits until `ready` has a result, independently of the poller.
    pub(super) fn until<R>(
        &self,
        limit: Option<Duration>,
        mut ready: impl FnMut(&mut Member, Option<&Coordinator>) -> Option<R>,
    ) -> Option<R> {
        self.wait_until(limit, |state| {
            let (member, coordinator) = state.machines.both();
            ready(member, coordinator)
        })
    }

    /// Waits until all messages have been left for the others, and returns true if that was in time.
    pub(super) fn flushed(&self, limit: Duration) -> bool {
        self.wait_until(Some(limit), |NodeState { medium, .. }| {
            (medium.endpoint.is_empty() && !medium.in_flight || medium.stopped).then_some(())
        })
        .is_some()
    }

    /// On rank 0, waits until all members have read everything, and returns true if they have.
    pub(super) fn all_read(&self, limit: Duration) -> bool {
        self.wait_until(Some(limit), |state| {
            let NodeState {
                machines, medium, ..
            } = state;
            let all_read = match (&medium.endpoint, &machines.coordinator) {
                (Endpoint::Coordinator(endpoint), Some(coordinator)) => {
                    endpoint.is_empty()
                        && !medium.in_flight
                        && endpoint.read_by(coordinator.connected_processes()) == endpoint.sent()
                }
                _ => true,
            };
            (all_read || medium.stopped || medium.is_cut_off).then_some(all_read)
        })
        .unwrap_or(false)
    }

    /// On rank 0 of a world that fails while it forms, waits until all processes that have asked to join know it, for
    /// `limit` at most.
    pub(super) fn all_told(&self, limit: Duration) {
        self.wait_until(Some(limit), |state| {
            let NodeState {
                machines, medium, ..
            } = state;
            let all_told = match (&medium.endpoint, &machines.coordinator) {
                (Endpoint::Coordinator(endpoint), Some(coordinator)) => {
                    coordinator.all_told() && endpoint.all_informed()
                }
                _ => true,
            };
            (all_told || medium.stopped || medium.is_cut_off).then_some(())
        });
    }

    /// Stops the poller once it has done its remaining work.
    pub(super) fn stop(&self, how: Retirement) {
        self.lock().medium.stopping = Some(how);
        self.notifier.work();
    }

    // Methods for the poller.

    /// Waits for messages to carry, for `pause` at most; an order to stop ends the wait unless it is known already.
    pub(super) fn wait_to_carry(&self, pause: Duration, knows_of_stop: bool) {
        self.wait_for_work(pause, |NodeState { medium, .. }| {
            !medium.endpoint.is_empty()
                || !medium.ended.is_empty()
                || (medium.stopping.is_some() && !knows_of_stop)
        });
    }

    /// Starts a round of the poller: lets time pass, and returns the messages to leave.
    pub(super) fn start_round(&self) -> PollRound {
        self.pass_time(self.lock());
        let mut state = self.lock();
        let NodeState {
            machines, medium, ..
        } = &mut *state;
        let stopping = medium.stopping;
        let ended = std::mem::take(&mut medium.ended);
        let finally = stopping.is_some() || machines.member().farewell().is_some();
        let outgoing = match &mut medium.endpoint {
            Endpoint::Coordinator(endpoint) => endpoint.take_outgoing(),
            Endpoint::Member(endpoint) => endpoint.take_outgoing(finally),
        };
        medium.in_flight |= !outgoing.is_empty();
        PollRound {
            outgoing,
            coordinator_ended: ended.contains(&Rank::ZERO),
            ended: ended
                .into_iter()
                .filter(|rank| *rank != Rank::ZERO)
                .collect(),
            stopping,
        }
    }

    /// Notes that all messages of the round have been left for the others.
    pub(super) fn landed(&self) {
        self.lock().medium.in_flight = false;
        self.notifier.changed();
    }

    /// Hands messages to the machines, and returns which of this rank's own messages can go then.
    pub(super) fn receive(&self, found: Vec<InboundMessage>) -> Discard {
        self.change(|state, now| deliver(state, found, now))
    }

    /// Processes of all ranks, once the world has formed; on rank 0.
    pub(super) fn formed(&self) -> Option<Vec<ProcessId>> {
        let state = self.lock();
        let coordinator = state.machines.coordinator.as_ref()?;
        coordinator.is_open().then(|| coordinator.processes())
    }

    /// Ranks that have joined so far, and their processes; on rank 0.
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

    /// Notes that the poller has stopped.
    pub(super) fn stopped(&self) {
        self.lock().medium.stopped = true;
        self.notifier.changed();
    }
}

impl Endpoint {
    fn is_empty(&self) -> bool {
        match self {
            Self::Coordinator(endpoint) => endpoint.is_empty(),
            Self::Member(endpoint) => endpoint.is_empty(),
        }
    }
}

/// Hands messages to the machines, and returns which of this rank's own messages can go then.
fn deliver(state: &mut NodeState<Files>, found: Vec<InboundMessage>, now: Instant) -> Discard {
    let machines = &mut state.machines;
    let endpoint = &mut state.medium.endpoint;
    match (&mut *endpoint, &mut machines.coordinator) {
        (Endpoint::Coordinator(endpoint), Some(coordinator)) => {
            for (from, nonce, message) in endpoint.receive(found) {
                on_message(endpoint, coordinator, (from, nonce), message, now);
            }
        }
        (Endpoint::Member(endpoint), _) => {
            for message in endpoint.receive(found) {
                machines.member().on_message(message, now);
            }
        }
        (Endpoint::Coordinator(_), None) => {}
    }
    match (&*endpoint, &machines.coordinator) {
        (Endpoint::Coordinator(endpoint), Some(coordinator)) if coordinator.is_open() => {
            let up_to = endpoint.read_by(coordinator.connected_processes());
            Discard {
                up_to,
                keep: endpoint.answers(),
                is_answered: up_to == endpoint.sent(),
            }
        }
        (Endpoint::Coordinator(_), _) => Discard {
            up_to: 0,
            keep: Vec::new(),
            is_answered: false,
        },
        // The first letter stays: it shows the others that this rank is still here.
        (Endpoint::Member(endpoint), _) => Discard {
            up_to: endpoint.acknowledged(),
            keep: vec![1],
            is_answered: endpoint.is_answered(),
        },
    }
}

/// Handles a message of a process that may or may not be a member.
fn on_message(
    endpoint: &mut CoordinatorEndpoint,
    coordinator: &mut Coordinator,
    (from, nonce): (Rank, u128),
    message: ToCoordinator,
    now: Instant,
) {
    match message {
        ToCoordinator::Join(JoinRequest::Join(join))
            if join.rank == from && join.nonce == nonce =>
        {
            let answer = match coordinator.join(join, now) {
                Ok(()) => BulletinItem::Admitted,
                Err(reason) => BulletinItem::Message(ToMember::Join(JoinReply::Refused { reason })),
            };
            endpoint.send(To::Process(nonce), answer);
        }
        message if coordinator.knows(from, nonce) => coordinator.on_message(from, message, now),
        _ => tracing::debug!("a process that is no member speaks for rank {from}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn who_joins_is_the_process_and_the_rank_that_it_says() {
        let now = Instant::now();
        let mut coordinator = Coordinator::new(fixtures::world(4), now);
        let mut endpoint = CoordinatorEndpoint::default();
        // The author of a letter, and the process that its join names.
        let letters = [
            ((1, 10), (1, 10), true),
            ((2, 20), (3, 20), false),
            ((2, 20), (2, 21), false),
        ];
        for ((from, its), (rank, nonce), is_taken_in) in letters {
            let join = ToCoordinator::Join(JoinRequest::Join(fixtures::join(rank, 4, nonce)));
            let from = (Rank::new(from), its);
            on_message(&mut endpoint, &mut coordinator, from, join, now);
            assert_eq!(coordinator.is_connected(Rank::new(rank)), is_taken_in);
            assert_eq!(!endpoint.take_outgoing().is_empty(), is_taken_in);
        }
    }
}
