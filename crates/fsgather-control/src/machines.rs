//! The machines of one rank, and the messages between them: [`Machines`].

use std::time::Instant;

use fsgather_core::{ChannelId, Epoch, Error, Peer, ProcessId, Rank, ReclaimSink};

use uuid::Uuid;

use crate::{
    config::Config,
    coordinator::{Action, Coordinator, World},
    member::{Member, MemberAction},
    message::{ToCoordinator, ToMember, Welcome},
};

/// What takes messages to other ranks.
pub(crate) trait Mail {
    /// Takes what this member says to rank 0.
    fn to_coordinator(&mut self, message: ToCoordinator);

    /// Takes what rank 0 says to members; rank 0 itself may be among them and is served already.
    fn to_members(&mut self, to: &[Rank], message: &ToMember);
}

/// A payload that is ready to go, and who removes it.
pub(crate) type Reclaim = (ReclaimSink, ChannelId, Epoch, Rank);

/// A rank's member and, on rank 0, the coordinator.
pub(crate) struct Machines {
    rank: Rank,
    pub(crate) coordinator: Option<Coordinator>,
    pub(crate) member: Member,
    sink: Option<ReclaimSink>,
}

impl Machines {
    /// Those of rank 0, whose world has been forming since `started`.
    pub(crate) fn of_root(config: &Config, communicator: Uuid, started: Instant) -> Self {
        let world = World {
            world_size: config.world_size,
            communicator,
            job: config.job.clone(),
            timeout: config.timeout,
            join_timeout: config.join_timeout,
            belonging: config.bond.belonging(),
        };
        let me = coordinator_peer(&config.process);
        let member = Member::new(me, config.timeout, started);
        Self::new(Rank::ZERO, member, Some(Coordinator::new(world, started)))
    }

    /// Those of another rank, whose world has formed.
    ///
    /// # Errors
    ///
    /// When the welcome does not say where rank 0 is.
    pub(crate) fn of_member(rank: Rank, welcome: &Welcome) -> Result<Self, Error> {
        let root = welcome
            .processes
            .first()
            .ok_or_else(|| Error::rendezvous("rank 0 named no processes in its welcome"))?;
        let root = coordinator_peer(root);
        let member = Member::new(root, welcome.timeout, Instant::now());
        Ok(Self::new(rank, member, None))
    }

    fn new(rank: Rank, member: Member, coordinator: Option<Coordinator>) -> Self {
        Self {
            rank,
            coordinator,
            member,
            sink: None,
        }
    }

    pub(crate) fn set_reclaim_sink(&mut self, sink: Option<ReclaimSink>) {
        self.sink = sink;
    }

    /// Whether [`deliver`](Self::deliver) has something to do.
    pub(crate) fn has_something_to_say(&self) -> bool {
        let coordinator = self.coordinator.as_ref();
        self.member.has_actions() || coordinator.is_some_and(Coordinator::has_actions)
    }

    /// Moves messages until nobody has anything to say. What is to be reclaimed is returned, for when no
    /// lock is held any more.
    #[must_use]
    pub(crate) fn deliver(&mut self, now: Instant, mail: &mut impl Mail) -> Vec<Reclaim> {
        let mut reclaims = Vec::new();
        loop {
            let said = self.member.take_actions();
            let ordered = self
                .coordinator
                .as_mut()
                .map(Coordinator::take_actions)
                .unwrap_or_default();
            if said.is_empty() && ordered.is_empty() {
                return reclaims;
            }
            for action in said {
                match action {
                    MemberAction::Send(message) => match &mut self.coordinator {
                        Some(coordinator) => coordinator.hear(self.rank, message, now),
                        None => mail.to_coordinator(message),
                    },
                    MemberAction::Reclaim { channel, epoch } => {
                        reclaims.extend(self.reclaim(channel, epoch, self.rank));
                    }
                    MemberAction::Warn(text) => tracing::warn!("{text}"),
                }
            }
            for action in ordered {
                match action {
                    Action::Send { to, message } => {
                        mail.to_members(&to, &message);
                        if to.contains(&self.rank) {
                            self.member.hear(message, now);
                        }
                    }
                    Action::ReclaimFor {
                        channel,
                        epoch,
                        owner,
                    } => reclaims.extend(self.reclaim(channel, epoch, owner)),
                    Action::Warn(text) => tracing::warn!("{text}"),
                    Action::Note(text) => tracing::info!("{text}"),
                }
            }
        }
    }

    /// Lets time pass for both.
    pub(crate) fn tick(&mut self, now: Instant) {
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.tick(now);
        }
        self.member.tick(now);
    }

    /// Notes that this process has gone on after it was stopped.
    pub(crate) fn wake(&mut self, now: Instant) {
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.wake(now);
        }
    }

    /// When [`tick`](Self::tick) has to be called next.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        let coordinator = self.coordinator.as_ref().and_then(Coordinator::next_tick);
        self.member.next_tick().into_iter().chain(coordinator).min()
    }

    /// Ends everything with an error that all ranks are told.
    pub(crate) fn interrupt(&mut self, cause: &Error) {
        if let Some(coordinator) = &mut self.coordinator
            && !coordinator.is_open()
        {
            coordinator.give_up(cause);
        }
        self.member.interrupt(cause);
    }

    fn reclaim(&self, channel: ChannelId, epoch: Epoch, owner: Rank) -> Option<Reclaim> {
        Some((self.sink.clone()?, channel, epoch, owner))
    }
}

fn coordinator_peer(process: &ProcessId) -> Peer {
    Peer {
        rank: Rank::ZERO,
        host: process.host.clone(),
        pid: process.pid,
    }
}
