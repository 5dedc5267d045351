//! The state that all handles of one communicator share: [`GroupState`].

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;
use fsgather_core::{
    Activity, Call, CallEvent, ChannelId, Contribution, Epoch, Error, Exchange, Operation, Peer,
    Phase, ProcessId, Rank, Round, Site, Table, Ticket, lock,
};
use fsgather_store::{
    PayloadId,
    slow_place::{removal_text, watched},
};
use uuid::Uuid;

use crate::{
    call::{blocking, open_calls::OpenCalls},
    join::local_context::LocalContext,
    payload::{
        known_paths::KnownPaths, mesh::MeshPath, path_request::PathRequest, ring_order::RingOrder,
    },
    world_state::WorldState,
};
use fsgather_config::settings::Transport;

/// One rank's membership of one group, which may be the world or a part of it.
pub(crate) struct GroupState {
    pub(crate) exchange: Box<dyn Exchange>,
    /// The state that all groups of this process's world share.
    pub(crate) world: Arc<WorldState>,
    /// The members, as ranks of the world, in the order of the group.
    pub(crate) members: Vec<Rank>,
    /// The known paths of its payloads.
    pub(crate) known_paths: KnownPaths,
    /// The order in which payloads go round it, once it has been computed.
    ring_order: OnceLock<RingOrder>,
    /// Its members that share memory with this rank, once they have been computed.
    sharing_memory: OnceLock<Vec<Rank>>,
    /// True if this is the world itself, which cleans up after all groups.
    is_world: bool,
    ended: AtomicBool,
    /// Calls whose results have not been taken.
    pub(crate) open_calls: OpenCalls,
    /// The number of groups that were made of each list of members.
    lists: Mutex<BTreeMap<Vec<Rank>, u64>>,
}

impl GroupState {
    /// Returns the membership of a world.
    pub(crate) fn of_world(exchange: Box<dyn Exchange>, world: WorldState) -> Arc<Self> {
        let world = Arc::new(world);
        let inner = Arc::new(Self {
            members: exchange.world_size().ranks().collect(),
            exchange,
            world,
            known_paths: KnownPaths::default(),
            ring_order: OnceLock::new(),
            sharing_memory: OnceLock::new(),
            is_world: true,
            ended: AtomicBool::new(false),
            open_calls: OpenCalls::default(),
            lists: Mutex::default(),
        });
        let weak = Arc::downgrade(&inner.world);
        let me = inner.world.rank;
        inner
            .exchange
            .set_reclaim_sink(Arc::new(move |channel, epoch, owner| {
                if let Some(world) = weak.upgrade() {
                    let id = PayloadId {
                        channel,
                        epoch,
                        rank: owner,
                    };
                    world.reclaim(id, owner == me);
                }
            }));
        inner
    }

    /// Returns a world whose exchange carries payloads of any size, so that there is nothing to reclaim.
    pub(crate) fn in_memory(exchange: Box<dyn Exchange>, processes: Vec<ProcessId>) -> Arc<Self> {
        let request = PathRequest {
            transport: Transport::Memory,
            directory: None,
        };
        let context = LocalContext::nowhere();
        let rank = exchange.rank();
        let world = WorldState::new(Uuid::nil(), rank, processes, u64::MAX, request, context);
        Self::of_world(exchange, world)
    }

    /// Returns a world of this process alone.
    pub(crate) fn solo(process: ProcessId) -> Arc<Self> {
        let me = Peer {
            rank: Rank::ZERO,
            host: process.host.clone(),
            pid: process.pid,
        };
        Self::in_memory(fsgather_control::solo(me), vec![process])
    }

    /// Returns the membership of a group of this communicator's members, which are named by their ranks in it.
    pub(crate) fn group(&self, ranks: &[Rank]) -> Result<Arc<Self>, Error> {
        let uses = {
            let mut lists = lock(&self.lists);
            let uses = lists.entry(self.all_in_world(ranks)).or_insert(0);
            *uses += 1;
            *uses - 1
        };
        self.group_of_use(ranks, uses)
    }

    /// Like [`group`](Self::group), for members that know by other means which use of their list this is.
    pub(crate) fn group_of_use(&self, ranks: &[Rank], uses: u64) -> Result<Arc<Self>, Error> {
        let members = self.all_in_world(ranks);
        let channel = ChannelId::of_group(self.exchange.channel(), &members, uses);
        let exchange: Box<dyn Exchange> = if members.len() == 1 {
            // No other rank takes part.
            fsgather_control::solo_group(self.me(), channel)?
        } else {
            self.exchange.group(channel, ranks)?
        };
        Ok(Arc::new(Self {
            exchange,
            world: Arc::clone(&self.world),
            known_paths: KnownPaths::beginning_with(self.world.settled_from_the_start()),
            ring_order: OnceLock::new(),
            sharing_memory: OnceLock::new(),
            members,
            is_world: false,
            ended: AtomicBool::new(false),
            open_calls: OpenCalls::default(),
            lists: Mutex::default(),
        }))
    }

    /// Records progress of a call. If its payloads go from rank to rank and nothing moves, also reports the ranks that
    /// it waits for.
    pub(crate) fn progress(&self, ticket: &Ticket, phase: Phase, bytes: u64) -> Result<(), Error> {
        if bytes == 0
            && let Some(mesh) = self.world.links.mesh()
            && let Some((waits_for, idle)) = mesh.stalled(ticket.id())
        {
            self.exchange.stalled(ticket, &waits_for, idle);
        }
        self.exchange.progress(ticket, phase, bytes)
    }

    /// Makes one exchange without a payload, like any other call.
    pub(crate) fn pass(&self, call: Call) -> Result<(), Error> {
        self.exchange(call, Bytes::new()).map(drop)
    }

    /// Makes a call that needs only a few bytes of each rank, and records it.
    pub(crate) fn exchange(&self, call: Call, body: Bytes) -> Result<Option<Table>, Error> {
        let exchanged = self.exchange.begin(call).and_then(|ticket| {
            self.observe_waiting(&ticket);
            let verdict = self
                .exchange
                .contribute(&ticket, Round::VERDICT, Contribution::inline(body))
                .and_then(|()| self.exchange.wait(&ticket, Round::VERDICT));
            let last = verdict.as_ref().ok().and_then(|verdict| verdict.last);
            self.observe_end(&ticket, verdict.as_ref().err(), last);
            verdict
        });
        let verdict = exchanged.inspect_err(|failure| self.world.record_failure(failure))?;
        Ok(verdict.table)
    }

    /// Records a call in which this rank waits from the beginning.
    fn observe_waiting(&self, ticket: &Ticket) {
        let ranks = self.exchange.world_size().get();
        let begun = CallEvent::Begun { ranks, waits: true };
        self.world.observe(ticket, begun);
    }

    /// Records the end of such a call, with the rank of the world that came last if it is known.
    fn observe_end(&self, ticket: &Ticket, failure: Option<&Error>, last: Option<Rank>) {
        if let Some(failure) = failure {
            self.world.observe(ticket, CallEvent::Failed(failure));
        } else {
            let received = None;
            self.world
                .observe(ticket, CallEvent::Decided { last, received });
            self.world.observe(ticket, CallEvent::Done);
        }
    }

    pub(crate) fn me(&self) -> Peer {
        let rank = self.exchange.rank();
        self.peer(rank).cloned().unwrap_or_else(|| Peer {
            rank,
            host: "this host".into(),
            pid: std::process::id(),
        })
    }

    /// Returns an error if this rank must stop, while it works outside of a call.
    pub(crate) fn heed(&self) -> Result<(), Error> {
        let interrupt = &self.world.interrupt;
        interrupt.poll_if_due(Instant::now());
        match interrupt.reason() {
            None => Ok(()),
            Some(message) => {
                let doing = Activity::outside(Phase::Joining);
                Err(Error::raised(self.me(), doing, message))
            }
        }
    }

    /// Returns the process of a rank of this group.
    pub(crate) fn peer(&self, rank: Rank) -> Option<&Peer> {
        self.exchange.peers().get(rank.index())
    }

    /// Returns true if the payloads of this group go where those of the world go by default: all ranks of the world are
    /// in it. All ranks get the same answer at any time.
    pub(crate) fn settles_the_world(&self, request: &PathRequest) -> bool {
        let is_first = self.is_world || self.world.sets_up_later;
        let are_all = self.members.len() == self.world.processes.len();
        is_first && are_all && request == self.default_request()
    }

    /// Returns the processes of the members, in the order of the group.
    pub(crate) fn processes(&self) -> Vec<ProcessId> {
        let processes = &self.world.processes;
        let members = self.members.iter();
        members
            .filter_map(|member| processes.get(member.index()))
            .cloned()
            .collect()
    }

    fn all_in_world(&self, ranks: &[Rank]) -> Vec<Rank> {
        ranks.iter().map(|rank| self.in_world(*rank)).collect()
    }

    /// Returns the number in the world of a rank of this group.
    pub(crate) fn in_world(&self, rank: Rank) -> Rank {
        self.members.get(rank.index()).copied().unwrap_or(rank)
    }

    /// Returns the order in which payloads go round this group, given connections that may have been made for another
    /// one.
    pub(crate) fn ring_order(&self, mesh: &MeshPath) -> &RingOrder {
        // The hosts of ranks do not depend on the group that asks.
        self.ring_order
            .get_or_init(|| RingOrder::of_group(&self.members, &mesh.hosts))
    }

    /// Returns its members that share memory with this rank, itself among them, by their numbers in the world. The list
    /// is empty if no other member shares memory with this rank.
    pub(crate) fn sharing_memory(&self) -> &[Rank] {
        let shared_memory = &self.world.shared_memory;
        self.sharing_memory
            .get_or_init(|| shared_memory.sharing(self.world.rank, &self.members))
    }

    /// Returns true if all its members share memory with each other.
    pub(crate) fn shares_memory(&self) -> bool {
        self.sharing_memory().len() == self.members.len()
    }

    /// Returns true if `rank` shares memory with this rank, or is this rank and some other member does.
    pub(crate) fn is_sharing(&self, rank: Rank) -> bool {
        self.sharing_memory().contains(&self.in_world(rank))
    }

    /// Returns true if this rank and `rank` of this group share memory. A rank shares memory with itself if it does
    /// with any other.
    pub(crate) fn shares_memory_with(&self, rank: Rank) -> bool {
        let both = [self.world.rank, self.in_world(rank)];
        self.world.shared_memory.is_shared_by(&both)
    }

    /// Returns the default request of calls.
    pub(crate) fn default_request(&self) -> &PathRequest {
        self.world.request()
    }

    /// Ends the communicator together with all other ranks.
    pub(crate) fn close(&self, site: Site) -> Result<(), Error> {
        if self.world.is_foreign() {
            return Err(Error::config(
                "this communicator belongs to the parent process; a forked child cannot close it",
            ));
        }
        let open_calls = if self.is_world {
            &self.world.open_calls
        } else {
            &self.open_calls
        };
        // After a failure there is nothing left to read.
        if !self.exchange.has_failed() {
            open_calls.check(&site)?;
        }
        if self.ended.swap(true, Ordering::SeqCst) {
            return Err(Error::closed());
        }
        let recorded = self.observe_closing(&site);
        let closed = self.exchange.close(site);
        if let Some(ticket) = recorded {
            self.observe_end(&ticket, closed.as_ref().err(), None);
        }
        if let Err(failure) = &closed {
            self.world.record_failure(failure);
        }
        self.end(None, closed.is_ok());
        closed
    }

    /// Records that this rank closes, so that closing appears like any other call. Records nothing after an earlier
    /// failure, because `close` returns that failure then.
    fn observe_closing(&self, site: &Site) -> Option<Ticket> {
        if self.exchange.has_failed() {
            return None;
        }
        let ticket = Ticket {
            channel: self.exchange.channel(),
            // No other call has this number.
            epoch: Epoch::new(u64::MAX),
            call: Arc::new(Call::new(Operation::Close, site.clone())),
        };
        self.observe_waiting(&ticket);
        Some(ticket)
    }

    /// Returns true if this rank has closed or left it.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Leaves without the others.
    pub(crate) fn leave(&self, cause: Option<Error>) {
        if !self.world.is_foreign() && !self.ended.swap(true, Ordering::SeqCst) {
            self.end(cause, false);
        }
    }

    /// Ends this rank's part; `closed` is true if all ranks have reached the end together.
    fn end(&self, cause: Option<Error>, closed: bool) {
        if let Some(cause) = &cause {
            self.world.record_failure(cause);
        }
        // Other ranks read payloads in the memory of this process until it has left.
        let departure = self.exchange.leave(cause);
        if self.is_world {
            self.world.end_sending();
            match self.world.shared_directory() {
                Some(directory) => watched(removal_text(directory), || {
                    self.world.clean_up(closed, &departure);
                }),
                None => self.world.clean_up(closed, &departure),
            }
        } else if closed {
            // The world removes the leftovers of a group that was not closed at its own end, because some rank may
            // still read them.
            let channel = self.exchange.channel();
            self.world.directories.end_closed(channel, self.world.rank);
        }
    }
}

impl Drop for GroupState {
    fn drop(&mut self) {
        // Only the text is sent: the other ranks know this rank and its activity.
        let cause = std::thread::panicking().then(|| Error::config("it panicked"));
        blocking::wherever(|| self.leave(cause));
    }
}

#[cfg(test)]
mod tests {
    use fsgather_core::WorldSize;

    use super::*;

    /// Rank 0 of a world of three.
    fn rank_0(sets_up_later: bool) -> Arc<GroupState> {
        let (world_size, process) = (WorldSize::new(3).unwrap(), ProcessId::default());
        let limit = std::time::Duration::from_secs(60);
        let exchange = fsgather_control::threads(world_size, &process, limit).remove(0);
        let request = PathRequest {
            transport: Transport::Auto,
            directory: None,
        };
        let processes = vec![process; 3];
        let context = LocalContext::nowhere();
        let mut world = WorldState::new(Uuid::nil(), Rank::ZERO, processes, 0, request, context);
        world.sets_up_later = sets_up_later;
        GroupState::of_world(exchange, world)
    }

    #[test]
    fn world_settles_its_path_or_a_full_group_if_set_up_later() {
        for sets_up_later in [false, true] {
            let world = rank_0(sets_up_later);
            let group = |ranks: &[u32]| {
                let ranks: Vec<Rank> = ranks.iter().copied().map(Rank::new).collect();
                world.group(&ranks).unwrap()
            };
            let (all, pair) = (group(&[2, 0, 1]), group(&[0, 1]));
            let asked = world.default_request().clone();
            assert!(world.settles_the_world(&asked));
            assert_eq!(all.settles_the_world(&asked), sets_up_later);
            assert!(!pair.settles_the_world(&asked));
            let other = PathRequest {
                transport: Transport::Filesys,
                ..asked
            };
            for group in [&world, &all, &pair] {
                assert!(!group.settles_the_world(&other));
            }
        }
    }
}
