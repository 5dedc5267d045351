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

/// For whom a payload is placed.
#[derive(Clone, Copy)]
pub struct Placement<'a> {
    /// The call that it is of.
    pub call: CallId,
    /// Who reads it, by their numbers in the world.
    pub readers: &'a [Rank],
    /// Who reads nothing any more, since it is gone.
    pub is_gone: &'a dyn Fn(Rank) -> bool,
}

/// Memory of this rank that others of its host read.
///
/// At most `budget` bytes of it are taken up at any time, and none before the second payload of a size. Dropping it gives all
/// back, but for payloads that somebody still reads.
#[derive(Debug)]
pub struct Arena {
    owner: Rank,
    budget: u64,
    pub(crate) memory: Arc<OwnMemory>,
    pub(crate) ledger: Arc<Ledger>,
    words: File,
    pub(crate) slots: Mutex<Slots>,
    /// The process whose it is. A forked child has a copy of all this, and the same memory.
    process: u32,
    pub(crate) idle_shelves: Mutex<IdleShelves>,
}

impl Arena {
    /// Makes the arena of a rank of a world of so many ranks, which may take up `budget` bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] where the system has no such memory, or no descriptor for it.
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

    /// Who has it.
    #[must_use]
    pub const fn owner(&self) -> Rank {
        self.owner
    }

    /// Whether this process is a forked child of the one whose arena it is. Which slots are free that one alone knows, and
    /// locks may be held for ever.
    pub(crate) fn is_foreign(&self) -> bool {
        self.process != process::id()
    }

    /// Number of bytes that it may take up.
    #[must_use]
    pub const fn budget(&self) -> u64 {
        self.budget
    }

    /// The descriptors by which others map it.
    pub(crate) fn descriptors(&self) -> Result<[OwnedFd; 2], Error> {
        let words = self.words.try_clone().map(OwnedFd::from);
        let both = self
            .memory
            .for_reading()
            .and_then(|memory| Ok([memory, words?]));
        both.map_err(|error| Error::storage("pass on", "memory that ranks share", &error))
    }

    /// Copies a payload, given in pieces, to a place where its readers find it; nothing where it had better go another way:
    /// the first payload of a size, one that is too large, and any while there is no room.
    ///
    /// The place is free again once all readers have let go of it, or are gone. A forked child has no place for anything.
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

    /// Copies a payload to where it has its place.
    fn write(&self, location: &Location, pieces: &[&[u8]]) -> Option<()> {
        let mut start = location.start;
        for piece in pieces {
            self.memory.write(start, piece)?;
            start += piece.len() as u64;
        }
        Some(())
    }

    /// Finds a place for a payload of `len` bytes, which nobody else is given while it is written to, nor while it is leased.
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

    /// Gives back, and takes up, the memory that a plan says; nothing, and the slot is gone, if there is none.
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

    /// Takes back a payload that nobody has been told of.
    pub fn withdraw(&self, call: CallId) {
        lock(&self.slots).withdraw(call);
    }
}
