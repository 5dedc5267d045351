//! The own arena: [`Arena`].

use std::{
    fs::File,
    os::fd::OwnedFd,
    process,
    sync::{Arc, Mutex},
};

use fsgather_core::{CallId, Error, Rank, lock};

use crate::{
    forks,
    ledger::Ledger,
    location::Location,
    memory::{OwnMemory, Words},
    shelf::IdleShelves,
    slots::{Plan, SPREAD, Slots},
};

/// The call and the readers of a payload.
#[derive(Clone, Copy)]
pub struct Placement<'a> {
    /// The call that the payload belongs to.
    pub call: CallId,
    /// The ranks of the world that read the payload.
    pub readers: &'a [Rank],
    /// Returns true for a rank that is gone, and reads nothing any more.
    pub is_gone: &'a dyn Fn(Rank) -> bool,
}

/// Memory of this rank that others of its host read.
///
/// It takes up at most `budget` bytes at any time, and none before the second payload of a size. Dropping it gives everything
/// back except payloads that are still being read.
#[derive(Debug)]
pub struct Arena {
    owner: Rank,
    budget: u64,
    pub(crate) memory: Arc<OwnMemory>,
    pub(crate) ledger: Arc<Ledger>,
    words: File,
    pub(crate) slots: Mutex<Slots>,
    /// Id of the process that made the arena. A forked child has a copy of this struct, and the same memory.
    process: u32,
    pub(crate) idle_shelves: Mutex<IdleShelves>,
}

impl Arena {
    /// Makes the arena of a rank of a world of this size, which may take up `budget` bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if the system refuses the memory, or a descriptor for it.
    pub fn new(owner: Rank, world_size: usize, budget: u64) -> Result<Self, Error> {
        let failed = |error| Error::storage("make", "memory that ranks share", &error);
        let memory = OwnMemory::make(budget.saturating_mul(SPREAD)).map_err(failed)?;
        let (words, file) = Words::make(Ledger::words(world_size)).map_err(failed)?;
        Ok(Self {
            owner,
            budget,
            memory: Arc::new(memory),
            ledger: Arc::new(Ledger::new(words, world_size)),
            words: file,
            slots: Mutex::new(Slots::new(budget)),
            process: process::id(),
            idle_shelves: Mutex::default(),
        })
    }

    /// Rank that owns the arena.
    #[must_use]
    pub const fn owner(&self) -> Rank {
        self.owner
    }

    /// Returns true if this process is a forked child of the one that made the arena. Only that process knows which slots are
    /// free, and a child may find locks held forever.
    pub(crate) fn is_foreign(&self) -> bool {
        self.process != process::id()
    }

    /// Number of bytes that the arena may take up.
    #[must_use]
    pub const fn budget(&self) -> u64 {
        self.budget
    }

    /// Returns the descriptors by which other ranks map the arena.
    pub(crate) fn descriptors(&self) -> Result<[OwnedFd; 2], Error> {
        let words = self.words.try_clone().map(OwnedFd::from);
        let both = self
            .memory
            .for_reading()
            .and_then(|memory| Ok([memory, words?]));
        both.map_err(|error| Error::storage("pass on", "memory that ranks share", &error))
    }

    /// Copies a payload, given in pieces, to a place where its readers find it. Returns `None` if it should go another way: the
    /// first payload of a size, a payload that is too large, and any payload while there is no space.
    ///
    /// The place is free again once all readers have let go of it, or are gone. A forked child places no payloads.
    pub fn place(&self, pieces: &[&[u8]], placement: &Placement<'_>) -> Option<Location> {
        if self.is_foreign() {
            return None;
        }
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        let location = self.take(len, placement)?;
        let written = self.write(&location, pieces);
        if written.is_some() {
            self.ledger.describe(&location, placement.call);
        }
        lock(&self.slots).end_writing(location.slot());
        written.map(|()| location)
    }

    /// Copies a payload to its place.
    fn write(&self, location: &Location, pieces: &[&[u8]]) -> Option<()> {
        let mut start = location.start;
        for piece in pieces {
            self.memory.write(start, piece)?;
            start += piece.len() as u64;
        }
        Some(())
    }

    /// Finds a place for a payload of `len` bytes. No other payload gets the place while it is written to or leased.
    pub(crate) fn take(&self, len: u64, placement: &Placement<'_>) -> Option<Location> {
        forks::release_ended();
        let call = placement.call;
        let mut slots = lock(&self.slots);
        let plan = slots.place(
            len,
            call,
            placement.readers.to_vec(),
            |slot, lease, reader| {
                (placement.is_gone)(reader)
                    || self
                        .ledger
                        .has_let_go(reader, slot, lease.generation, lease.call)
            },
        )?;
        self.carry_out(&mut slots, &plan)?;
        Some(Location {
            slot: u32::try_from(plan.slot).ok()?,
            generation: plan.generation,
            start: plan.start,
            len,
        })
    }

    /// Gives back and takes up the memory that a plan asks for. If the system refuses memory, drops the slot and returns
    /// `None`.
    fn carry_out(&self, slots: &mut Slots, plan: &Plan) -> Option<()> {
        for (start, len) in &plan.to_give_back {
            if let Err(error) = self.memory.give_back(*start, *len) {
                tracing::debug!("memory is not given back: {error}");
            }
        }
        let capacity = plan.to_reserve.unwrap_or_default();
        if capacity > 0
            && let Err(error) = crate::room::check(capacity)
                .and_then(|()| self.memory.reserve(plan.start, capacity))
        {
            tracing::debug!("there is no memory for {capacity} bytes to be shared: {error}");
            slots.refuse(plan.slot);
            return None;
        }
        Some(())
    }

    /// Takes back a payload that was not announced to any reader.
    pub fn withdraw(&self, call: CallId) {
        lock(&self.slots).withdraw(call);
    }
}
