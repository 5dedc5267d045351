//! The state machines of one process, and the messages between them: [`Machines`].

use std::time::{Duration, Instant};

use fsgather_core::{
    ChannelId, Epoch, Error, Neighbour, Peer, ProcessId, Rank, ReclaimSink, sys::clock,
};

use uuid::Uuid;

use crate::{
    coordinator::{Action, Coordinator, World},
    join::config::{self, Config, Meeting},
    member::{Member, MemberAction},
    message::{ToCoordinator, ToMember, Welcome},
};

/// Takes messages to ranks of other processes.
pub(crate) trait Outlet {
    /// Takes a message of this process's member to rank 0.
    fn to_coordinator(&mut self, message: ToCoordinator);

    /// Takes a message of rank 0 to members; members of this process may be among them and have received it already.
    fn to_members(&mut self, to: &[Rank], message: &ToMember);
}

/// A payload that is ready to go, and the sink that removes it.
pub(crate) type Reclaim = (ReclaimSink, ChannelId, Epoch, Rank);

/// An order to look at a process.
#[derive(Clone, Copy)]
pub(crate) struct LookOrder {
    /// The rank that must look.
    pub(crate) member: Rank,
    /// Number of the order.
    pub(crate) number: u64,
    /// The neighbour to look at; `None` for the rank itself.
    pub(crate) neighbour: Option<Neighbour>,
}

/// Work for later, when no lock is held.
#[derive(Default)]
pub(crate) struct Errands {
    pub(crate) reclaims: Vec<Reclaim>,
    pub(crate) looks: Vec<LookOrder>,
}

/// A rank's member and, on rank 0, the coordinator; in a threads world all of them.
pub(crate) struct Machines {
    pub(crate) coordinator: Option<Coordinator>,
    /// The rank of the first member.
    first: Rank,
    members: Vec<Member>,
    /// One for each member.
    sinks: Vec<Option<ReclaimSink>>,
}

impl Machines {
    /// The machines of rank 0, whose world has been forming since `started`. Ranks answer within `lead` what they are doing.
    /// Rank 0 joins before any other rank can and before any time passes: a rank that has not joined does not learn that
    /// the meeting has failed.
    pub(crate) fn of_root(
        config: &Config,
        communicator: Uuid,
        lead: Duration,
        started: Instant,
    ) -> Self {
        let world = World {
            world_size: config.world_size,
            communicator,
            job: config.job.clone(),
            timeout: config.timeout,
            join_timeout: config.join_timeout,
            idle_limit: config.idle_limit(),
            fingerprint: config.job_credentials.fingerprint(),
            lead: config.look.is_some().then_some(lead),
            is_introduced: matches!(&config.meeting, Meeting::Board(board) if board.introduces()),
            is_named: config.is_named,
            is_patient: config.is_patient,
        };
        let me = coordinator_peer(&config.process);
        let member = Member::new(me, config.timeout, started);
        let mut coordinator = Coordinator::new(world, started);
        // A world that forms accepts its own rank 0.
        let _ = coordinator.join(config::join_request(config), started);
        Self::new(Rank::ZERO, vec![member], Some(coordinator))
    }

    /// The machines of another rank, whose world has formed.
    ///
    /// # Errors
    ///
    /// If the welcome does not name the process of rank 0.
    pub(crate) fn of_member(rank: Rank, welcome: &Welcome) -> Result<Self, Error> {
        let root = welcome
            .processes
            .first()
            .ok_or_else(|| Error::rendezvous("rank 0 named no processes in its welcome"))?;
        let member = Member::new(coordinator_peer(root), welcome.timeout, clock::now());
        let own = welcome.processes.get(rank.index());
        let sees = |own: &&ProcessId| own.sees_pids_of(root) && own.shares_clock_with(root);
        let member = match own.filter(sees) {
            None => member,
            Some(_) => member.beside(Neighbour {
                rank: Rank::ZERO,
                pid: root.pid,
                start_time: root.start_time,
            }),
        };
        Ok(Self::new(rank, vec![member], None))
    }

    /// The machines of all ranks, in one process.
    pub(crate) fn of_all(coordinator: Coordinator, members: Vec<Member>) -> Self {
        Self::new(Rank::ZERO, members, Some(coordinator))
    }

    fn new(first: Rank, members: Vec<Member>, coordinator: Option<Coordinator>) -> Self {
        Self {
            coordinator,
            first,
            sinks: vec![None; members.len()],
            members,
        }
    }

    /// The place of a rank among the members here, if it is one of them.
    fn place_of(&self, rank: Rank) -> Option<usize> {
        let place = rank.index().checked_sub(self.first.index())?;
        (place < self.members.len()).then_some(place)
    }

    /// A member of this process by its rank; the only one if there is only one.
    pub(crate) fn member_of(&mut self, rank: Rank) -> &mut Member {
        let place = self.place_of(rank).unwrap_or_default();
        &mut self.members[place]
    }

    /// The only member of this process; that of rank 0 if there are several.
    pub(crate) fn member(&mut self) -> &mut Member {
        &mut self.members[0]
    }

    /// The same, with the coordinator.
    pub(crate) fn both(&mut self) -> (&mut Member, Option<&Coordinator>) {
        (&mut self.members[0], self.coordinator.as_ref())
    }

    /// Sets the callback that removes payloads of a member.
    pub(crate) fn set_reclaim_sink(&mut self, rank: Rank, sink: Option<ReclaimSink>) {
        if let Some(place) = self.place_of(rank) {
            self.sinks[place] = sink;
        }
    }

    /// The same for the only member of this process.
    pub(crate) fn set_own_reclaim_sink(&mut self, sink: Option<ReclaimSink>) {
        self.set_reclaim_sink(self.first, sink);
    }

    /// Returns true if [`deliver`](Self::deliver) has something to do.
    pub(crate) fn has_something_to_say(&self) -> bool {
        let coordinator = self.coordinator.as_ref();
        self.members.iter().any(Member::has_actions)
            || coordinator.is_some_and(Coordinator::has_actions)
    }

    /// Moves messages until no machine has any more. Returns the remaining work, for when no lock is held any more.
    #[must_use]
    pub(crate) fn deliver(&mut self, now: Instant, outlet: &mut impl Outlet) -> Errands {
        let mut errands = Errands::default();
        let reclaims = &mut errands.reclaims;
        while self.has_something_to_say() {
            for (place, rank) in (0..self.members.len()).zip(self.first.get()..) {
                let rank = Rank::new(rank);
                for action in self.members[place].take_actions() {
                    match action {
                        MemberAction::Send(message) => match &mut self.coordinator {
                            Some(coordinator) => coordinator.on_message(rank, message, now),
                            None => outlet.to_coordinator(message),
                        },
                        MemberAction::Reclaim { channel, epoch } => {
                            reclaims.extend(self.reclaim(place, channel, epoch, rank));
                        }
                        MemberAction::Warn(text) => fsgather_core::warn!("{text}"),
                        MemberAction::Note(text) => tracing::info!("{text}"),
                        MemberAction::Look { number, neighbour } => errands.looks.push(LookOrder {
                            member: rank,
                            number,
                            neighbour,
                        }),
                    }
                }
            }
            let ordered = self.coordinator.as_mut().map(Coordinator::take_actions);
            for action in ordered.unwrap_or_default() {
                match action {
                    Action::Send { to, message } => {
                        outlet.to_members(&to, &message);
                        self.deliver_to(&to, message, now);
                    }
                    Action::ReclaimFor {
                        channel,
                        epoch,
                        owner,
                    } => reclaims.extend(self.reclaim(0, channel, epoch, owner)),
                    Action::Warn(text) => fsgather_core::warn!("{text}"),
                    Action::Note(text) => tracing::info!("{text}"),
                }
            }
        }
        errands
    }

    /// Delivers a message of rank 0 to the members here, and copies it only for the second and further ones.
    fn deliver_to(&mut self, to: &[Rank], message: ToMember, now: Instant) {
        let mut here = to
            .iter()
            .filter_map(|rank| self.place_of(*rank))
            .collect::<Vec<_>>();
        let last = here.pop();
        for place in here {
            self.members[place].on_message(message.clone(), now);
        }
        if let Some(place) = last {
            self.members[place].on_message(message, now);
        }
    }

    /// Lets time pass for all machines.
    pub(crate) fn tick(&mut self, now: Instant) {
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.tick(now);
        }
        for member in &mut self.members {
            member.tick(now);
        }
    }

    /// Notes that this process has continued after it was stopped.
    pub(crate) fn wake(&mut self, now: Instant) {
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.wake(now);
        }
    }

    /// Time of the next call of [`tick`](Self::tick).
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        let coordinator = self.coordinator.as_ref().and_then(Coordinator::next_tick);
        let members = self.members.iter().filter_map(Member::next_tick);
        members.chain(coordinator).min()
    }

    /// Ends everything with an error that all ranks receive.
    pub(crate) fn interrupt(&mut self, cause: &Error) {
        if let Some(coordinator) = &mut self.coordinator
            && !coordinator.is_open()
        {
            coordinator.give_up(cause);
        }
        for member in &mut self.members {
            member.interrupt(cause);
        }
    }

    fn reclaim(
        &self,
        place: usize,
        channel: ChannelId,
        epoch: Epoch,
        owner: Rank,
    ) -> Option<Reclaim> {
        Some((self.sinks[place].clone()?, channel, epoch, owner))
    }
}

fn coordinator_peer(process: &ProcessId) -> Peer {
    Peer {
        rank: Rank::ZERO,
        host: process.host.clone(),
        pid: process.pid,
    }
}

#[cfg(test)]
mod tests {
    use fsgather_core::WorldSize;

    use super::*;

    /// An outlet without other processes.
    struct Alone;

    impl Outlet for Alone {
        fn to_coordinator(&mut self, _: ToCoordinator) {}

        fn to_members(&mut self, _: &[Rank], _: &ToMember) {}
    }

    #[test]
    fn rank_0_is_told_that_there_was_no_time_left_to_meet_in() {
        let meeting = Meeting::Address {
            host: "localhost".into(),
            port: 0,
            communicator: Uuid::nil(),
            secret: [1; 32],
        };
        let world_size = WorldSize::new(2).unwrap();
        let config = Config::new(Rank::ZERO, world_size, ProcessId::default(), meeting);
        let started = Instant::now();
        // Its file system has not answered for longer.
        let now = started + config.join_timeout + Duration::from_secs(1);
        let mut machines = Machines::of_root(&config, Uuid::nil(), Duration::ZERO, started);
        machines.tick(now);
        let _ = machines.deliver(now, &mut Alone);
        let failure = machines.member().failure(ChannelId::WORLD);
        let failure = failure.map(ToString::to_string).unwrap_or_default();
        assert!(failure.contains("waiting for rank 1"), "{failure}");
    }
}
