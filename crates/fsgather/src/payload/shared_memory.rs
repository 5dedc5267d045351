//! Payloads in memory that ranks of one host share: [`SharedMemory`] of a world, [`Share`] of a call.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, OnceLock},
};

use fsgather_arena::{
    Arena, Arenas, Filling, Leased, Location, Placement, ReadSoFar, ReadingForOthers, budget,
};
use fsgather_config::settings::{Transport, Verify};
use fsgather_core::{CallId, Error, Rank, Recipients, Ticket, lock};
use fsgather_store::{LentBytes, Liveness, Payload, liveness};

use crate::{group_state::GroupState, payload::path_request::PathRequest, world_state::WorldState};

/// Minimum size of payloads in shared memory, in bytes. Smaller payloads travel with their announcement: that costs
/// less than a look at shared memory.
pub(crate) const SMALLEST: u64 = 4 << 10;

/// The arenas of this process's world, for the world and all its groups.
#[derive(Default)]
pub(crate) struct SharedMemory {
    /// Memory that this rank may share, in bytes.
    pub(crate) setting: u64,
    arenas: Mutex<Option<Arc<Arenas>>>,
    /// The ranks of each host that share memory with each other.
    hosts: OnceLock<Vec<Vec<Rank>>>,
}

impl SharedMemory {
    /// Returns the arenas, if they have been made.
    pub(crate) fn arenas(&self) -> Option<Arc<Arenas>> {
        lock(&self.arenas).clone()
    }

    /// Makes the arena of this rank, which is one of `ranks` on its host. Returns `None` if it must not share memory.
    pub(crate) fn make(
        &self,
        world: &WorldState,
        ranks: usize,
    ) -> Result<Option<Arc<Arenas>>, Error> {
        let budget = budget(self.setting, ranks);
        // Payloads in shared memory have no checksums.
        if budget < SMALLEST || world.verify == Verify::Always {
            return Ok(None);
        }
        let world_size = world.processes.len();
        let own = Arena::new(world.rank, world_size, budget)?;
        let made = Arc::new(Arenas::new(own, world_size));
        *lock(&self.arenas) = Some(Arc::clone(&made));
        Ok(Some(made))
    }

    /// Records the ranks of each host that share memory.
    pub(crate) fn keep(&self, hosts: Vec<Vec<Rank>>) {
        self.hosts.get_or_init(|| hosts);
    }

    /// Returns true if all `members` share memory with each other; all of them get the same answer.
    pub(crate) fn is_shared_by(&self, members: &[Rank]) -> bool {
        let mut hosts = self.hosts.get().into_iter().flatten();
        members.len() > 1 && hosts.any(|ranks| members.iter().all(|member| ranks.contains(member)))
    }

    /// Returns those of `members` that share memory with `me`, itself among them; none if it is the only one.
    pub(crate) fn sharing(&self, me: Rank, members: &[Rank]) -> Vec<Rank> {
        let mut hosts = self.hosts.get().into_iter().flatten();
        let host = hosts.find(|ranks| ranks.contains(&me));
        let shares = |member: &&Rank| host.is_some_and(|ranks| ranks.contains(member));
        let sharing: Vec<Rank> = members.iter().filter(shares).copied().collect();
        if sharing.len() > 1 {
            sharing
        } else {
            Vec::new()
        }
    }

    /// Releases the memory, except the parts that results still hold.
    pub(crate) fn release(&self) {
        lock(&self.arenas).take();
    }
}

/// The arenas, for one call.
pub(crate) struct Share {
    arenas: Arc<Arenas>,
    call: CallId,
    reach: Reach,
    /// True if this rank may still request payloads that others have placed for it.
    is_open: bool,
    /// The owners of payloads that this rank has requested. It releases each when it has finished with it.
    asked_for: Mutex<Vec<Rank>>,
    /// The process whose call it is; a forked child has a copy.
    process: u32,
}

/// The ranks that read a payload in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// All ranks that receive it.
    Recipients,
    /// Those of its host; it reaches recipients on other hosts over connections.
    Host,
}

impl Share {
    /// Returns the share of a call in which all recipients share memory with this rank; if payloads are passed on
    /// `by_ring`, it is enough that some do.
    ///
    /// So the ranks of a root's host hand a gather over in memory, and those of other hosts use another path.
    pub(crate) fn of(
        inner: &GroupState,
        request: &PathRequest,
        ticket: &Ticket,
        by_ring: bool,
    ) -> Option<Self> {
        if request.transport == Transport::Filesys {
            return None;
        }
        let reach = match ticket.call.recipients() {
            Recipients::All if inner.shares_memory() => Reach::Recipients,
            Recipients::All if by_ring && !inner.sharing_memory().is_empty() => Reach::Host,
            Recipients::Only(root) if inner.shares_memory_with(root) => Reach::Recipients,
            _ => return None,
        };
        Some(Self::with(
            inner.world.shared_memory.arenas()?,
            ticket,
            reach,
        ))
    }

    /// Returns the share of a call with payloads in files, in which ranks of this host read for each other. Returns
    /// `None` if they do not share memory, or if all recipients do.
    pub(crate) fn of_host(inner: &GroupState, ticket: &Ticket) -> Option<Self> {
        if inner.sharing_memory().is_empty() || inner.shares_memory() {
            return None;
        }
        Some(Self::with(
            inner.world.shared_memory.arenas()?,
            ticket,
            Reach::Host,
        ))
    }

    fn with(arenas: Arc<Arenas>, ticket: &Ticket, reach: Reach) -> Self {
        Self {
            arenas,
            call: ticket.id(),
            reach,
            is_open: true,
            asked_for: Mutex::default(),
            process: std::process::id(),
        }
    }

    /// Begins to read for other ranks of the host; returns `None` if this rank does so in too many other calls.
    pub(crate) fn read_for_others(&self) -> Option<ReadingForOthers> {
        self.arenas.own().read_for_others(self.call)
    }

    /// Returns the progress of a rank of this host with the payload of this number in its share, if it has begun.
    pub(crate) fn look_for(&self, owner: Rank, number: usize) -> Option<ReadSoFar> {
        self.arenas.look_for(owner, self.call, number)
    }

    /// Returns the ranks that read a payload there.
    pub(crate) const fn reach(&self) -> Reach {
        self.reach
    }

    /// Returns the arenas themselves.
    pub(crate) fn arenas(&self) -> &Arenas {
        &self.arenas
    }

    /// Places a payload for all its recipients, including this rank unless it `keeps` its input. Returns `None` if the
    /// payload should take another path.
    pub(crate) fn place(
        &self,
        inner: &GroupState,
        ticket: &Ticket,
        pieces: &[&[u8]],
        keeps: bool,
    ) -> Option<Location> {
        let me = inner.world.rank;
        let mut readers = match (ticket.call.recipients(), self.reach) {
            (Recipients::All, Reach::Recipients) => inner.members.clone(),
            (Recipients::All, Reach::Host) => inner.sharing_memory().to_vec(),
            (Recipients::Only(root), _) => vec![inner.in_world(root)],
            (Recipients::Nobody, _) => Vec::new(),
        };
        readers.retain(|reader| *reader != me || !keeps);
        self.for_readers(inner, &readers, |placement| {
            self.arenas.own().place(pieces, placement)
        })
    }

    /// Begins to place a payload of `len` bytes that comes from another host, for all members on this one; returns
    /// `None` if there is no place.
    pub(crate) fn begin(&self, inner: &GroupState, len: u64) -> Option<Filling> {
        if len < SMALLEST {
            return None;
        }
        self.for_readers(inner, inner.sharing_memory(), |placement| {
            self.arenas.own().begin(len, placement)
        })
    }

    fn for_readers<R>(
        &self,
        inner: &GroupState,
        readers: &[Rank],
        place: impl FnOnce(&Placement<'_>) -> R,
    ) -> R {
        let me = inner.world.rank;
        // A rank that is only silent may still read its payloads.
        let is_gone = |rank: Rank| {
            let processes = &inner.world.processes;
            let both = processes.get(rank.index()).zip(processes.get(me.index()));
            inner.world.is_lost(rank)
                && both.is_some_and(|(reader, own)| {
                    matches!(liveness(reader, own), Liveness::Gone | Liveness::Replaced)
                })
        };
        place(&Placement {
            call: self.call,
            readers,
            is_gone: &is_gone,
        })
    }

    /// Returns true if only this rank receives its input.
    pub(crate) fn is_only_reader(inner: &GroupState, ticket: &Ticket) -> bool {
        ticket.call.recipients() == Recipients::Only(inner.exchange.rank())
    }

    /// Withdraws payloads that have not been announced to any rank.
    pub(crate) fn withdraw(&self) {
        self.arenas.own().withdraw(self.call);
    }

    /// Returns a payload that a rank of the world has placed for this one.
    pub(crate) fn lease(&self, owner: Rank, location: &Location) -> Option<Leased> {
        let leased = self.arenas.lease(owner, location, self.call)?;
        // Within a host, a call that does not bring all payloads brings none: all taken payloads are dropped before the
        // share, and an owner may have more than one payload of the call.
        if self.reach == Reach::Recipients {
            lock(&self.asked_for).push(owner);
        }
        Some(leased)
    }

    /// Records that this rank will request no more payloads.
    pub(crate) fn close(&mut self) {
        self.is_open = false;
    }
}

/// Minimum length of payloads that are mapped again for writing, in bytes; shorter ones are copied.
const MAPPED: usize = 256 << 10;

/// A payload that is read in shared memory, without a copy.
pub(crate) struct SharedPayload(Arc<Leased>);

impl SharedPayload {
    /// The lease lasts as long as the payload.
    pub(crate) fn of(leased: Leased) -> Payload {
        Payload::lent(Arc::new(Self(Arc::new(leased))))
    }
}

impl Deref for SharedPayload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl LentBytes for SharedPayload {
    fn writable(self: Arc<Self>) -> Option<Box<dyn DerefMut<Target = [u8]> + Send + Sync>> {
        if self.len() < MAPPED {
            return None;
        }
        let private = self.0.private();
        let private = private.inspect_err(|error| tracing::debug!("a payload is copied: {error}"));
        Some(Box::new(private.ok()?))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.is_open && self.process == std::process::id() {
            self.arenas.give_up(self.call, &lock(&self.asked_for));
        }
    }
}
