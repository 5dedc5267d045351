//! Payloads in arenas, the own one or another rank's: [`Arenas`] and [`Leased`].

use std::{
    collections::BTreeMap,
    fmt, io,
    ops::{Deref, DerefMut},
    os::fd::OwnedFd,
    sync::{Arc, Mutex},
};

use fsgather_core::{CallId, Error, Rank, lock};
use memmap2::MmapMut;

use crate::{
    arena::Arena,
    forks::{self, ForkMark},
    ledger::Ledger,
    location::Location,
    memory::{ForeignMemory, Words},
    shelf::ReadSoFar,
    slots::SPREAD,
};

/// Another rank's arena.
#[derive(Debug)]
struct ForeignArena {
    memory: ForeignMemory,
    ledger: Arc<Ledger>,
}

/// The arenas that a rank has mapped: its own, and those of other ranks of its host.
#[derive(Debug)]
pub struct Arenas {
    own: Arc<Arena>,
    world_size: usize,
    others: Mutex<BTreeMap<Rank, Arc<ForeignArena>>>,
    /// Number of calls that this rank has given up.
    given_up: Mutex<usize>,
}

impl Arenas {
    /// Holds only the own arena.
    #[must_use]
    pub fn new(own: Arena, world_size: usize) -> Self {
        Self {
            own: Arc::new(own),
            world_size,
            others: Mutex::default(),
            given_up: Mutex::default(),
        }
    }

    /// The own arena.
    #[must_use]
    pub fn own(&self) -> &Arc<Arena> {
        &self.own
    }

    /// Returns true if the arena of a rank is mapped.
    #[must_use]
    pub fn knows(&self, rank: Rank) -> bool {
        rank == self.own.owner() || lock(&self.others).contains_key(&rank)
    }

    /// Maps the arena of another rank, whose owner may take up `budget` bytes.
    pub(crate) fn add(
        &self,
        rank: Rank,
        budget: u64,
        descriptors: [OwnedFd; 2],
    ) -> Result<(), Error> {
        let [memory, words] = descriptors;
        let map = || {
            let memory = ForeignMemory::map(memory, budget.saturating_mul(SPREAD))?;
            let words = Words::map(words, Ledger::words(self.world_size))?;
            Ok(ForeignArena {
                memory,
                ledger: Arc::new(Ledger::new(words, self.world_size)),
            })
        };
        let arena =
            map().map_err(|error| Error::storage("map", "memory that ranks share", &error))?;
        lock(&self.others)
            .entry(rank)
            .or_insert_with(|| Arc::new(arena));
        Ok(())
    }

    /// Leases a payload that a rank has announced. Returns `None` if its slot does not hold the announced payload, or if the
    /// arena of that rank is not mapped.
    ///
    /// This rank counts as one of its readers until the lease is dropped.
    #[must_use]
    pub fn lease(&self, owner: Rank, location: &Location, call: CallId) -> Option<Leased> {
        forks::release_ended();
        let reader = self.own.owner();
        let arena = if owner == reader {
            AnyArena::Own(Arc::clone(&self.own))
        } else {
            AnyArena::Foreign(lock(&self.others).get(&owner).map(Arc::clone)?)
        };
        arena.ledger().let_go_of_given_up(reader);
        let is_there = arena.ledger().holds(location, call) && arena.bytes(location).is_some();
        is_there.then(|| Leased {
            reader,
            location: *location,
            arena,
            since: ForkMark::now(),
        })
    }

    /// Leases a payload that may still be [arriving](crate::Filling), like [`lease`](Self::lease).
    #[must_use]
    pub fn follow(&self, owner: Rank, location: &Location, call: CallId) -> Option<Following> {
        self.lease(owner, location, call).map(Following)
    }

    /// Returns how far another rank is with the payload of this number in its share of a call, if that rank says so.
    #[must_use]
    pub fn look_for(&self, owner: Rank, call: CallId, number: usize) -> Option<ReadSoFar> {
        let arena = lock(&self.others).get(&owner).map(Arc::clone)?;
        arena.ledger.look_for(call, number)
    }

    /// Notifies all owners that this rank will never ask for payloads of a call. It skips owners whose payloads this rank `has`
    /// asked for and may be reading: dropping those payloads lets go of them.
    pub fn give_up(&self, call: CallId, has: &[Rank]) {
        let reader = self.own.owner();
        // Threads that give calls up take turns.
        let mut given_up = lock(&self.given_up);
        let others = lock(&self.others);
        let foreign = others.iter().map(|(rank, arena)| (*rank, &*arena.ledger));
        for (owner, ledger) in foreign.chain([(reader, &*self.own.ledger)]) {
            if !has.contains(&owner) {
                ledger.give_up(reader, call, *given_up);
            }
        }
        *given_up = given_up.wrapping_add(1);
    }
}

/// The own arena, or that of another rank.
enum AnyArena {
    Own(Arc<Arena>),
    Foreign(Arc<ForeignArena>),
}

impl AnyArena {
    fn ledger(&self) -> &Arc<Ledger> {
        match self {
            Self::Own(arena) => &arena.ledger,
            Self::Foreign(arena) => &arena.ledger,
        }
    }

    fn bytes(&self, at: &Location) -> Option<&[u8]> {
        let len = usize::try_from(at.len).ok()?;
        match self {
            Self::Own(arena) => arena.memory.bytes(at.start, len),
            Self::Foreign(arena) => arena.memory.bytes(at.start, len),
        }
    }

    fn private(&self, at: &Location) -> io::Result<MmapMut> {
        let len = usize::try_from(at.len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        match self {
            Self::Own(arena) => arena.memory.private(at.start, len),
            Self::Foreign(arena) => arena.memory.private(at.start, len),
        }
    }
}

/// A payload in an arena, read in place. It stays unchanged until this is dropped, even if its owner is gone.
pub struct Leased {
    reader: Rank,
    location: Location,
    arena: AnyArena,
    since: ForkMark,
}

impl Leased {
    /// Returns the first `len` bytes, or all if the payload is shorter.
    pub(crate) fn beginning(&self, len: u64) -> &[u8] {
        let beginning = Location {
            len: len.min(self.location.len),
            ..self.location
        };
        self.arena.bytes(&beginning).unwrap_or_default()
    }

    /// Maps the payload privately, in memory that may be written to. Only pages that are written to are copied.
    ///
    /// # Errors
    ///
    /// The error of the system, if it refuses the mapping.
    pub fn private(self: &Arc<Self>) -> io::Result<PrivatePayload> {
        Ok(PrivatePayload {
            map: self.arena.private(&self.location)?,
            _lease: Arc::clone(self),
        })
    }
}

/// A payload in an arena that may still be arriving.
#[derive(Debug)]
pub struct Following(Leased);

impl Following {
    /// Returns the first `len` bytes, or all if the payload is shorter. The owner must have announced that they have arrived.
    #[must_use]
    pub fn beginning(&self, len: u64) -> &[u8] {
        self.0.beginning(len)
    }

    /// Returns the payload, once the caller knows that it is complete.
    #[must_use]
    pub fn whole(self) -> Leased {
        self.0
    }
}

/// A payload of an arena that may be written to: [`Leased::private`].
#[derive(Debug)]
pub struct PrivatePayload {
    map: MmapMut,
    /// Pages that have not been written to are still those of the lease.
    _lease: Arc<Leased>,
}

impl Deref for PrivatePayload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

impl DerefMut for PrivatePayload {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map
    }
}

impl Deref for Leased {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // The bytes were there when the lease was made, and mappings do not shrink.
        self.beginning(self.location.len)
    }
}

impl AsRef<[u8]> for Leased {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        if self.since.is_unforked() {
            return self.arena.ledger().let_go(self.reader, &self.location);
        }
        let ledger = Arc::downgrade(self.arena.ledger());
        let (reader, location) = (self.reader, self.location);
        forks::keep(self.since, move || {
            if let Some(ledger) = ledger.upgrade() {
                ledger.let_go(reader, &location);
            }
        });
    }
}

impl fmt::Debug for Leased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leased")
            .field("reader", &self.reader)
            .field("len", &self.location.len)
            .finish_non_exhaustive()
    }
}
