//! Decides where in an arena a payload goes: [`Slots`].
//!
//! Making the pages of a slot costs about twice as much as a file, once; after that, each payload costs only its copy. So the
//! first payload of a size goes another way, and a slot is made for the second. Another slot of that size is made if the first
//! is still held, which always happens in programs that replace one result by the next.

use std::collections::BTreeSet;

use fsgather_core::{CallId, Rank};

use crate::ranges::Ranges;

/// The smallest slot, in bytes; a multiple of all page sizes in use.
const SMALLEST: u64 = 64 << 10;

/// Slots that begin at a multiple of this can use huge pages, in bytes.
const HUGE: u64 = 2 << 20;

/// Number of payloads that must fit into existing slots after memory was refused, before more is requested: a refusal takes as
/// long as the copy that the memory would save.
const PATIENCE: u32 = 64;

/// Number of slots that an arena may have.
pub(crate) const MOST_SLOTS: usize = 64;

/// Address space for each byte of memory that may be used, so that slots of different sizes find a place.
pub(crate) const SPREAD: u64 = 2;

/// A payload in a slot, with the readers that it was placed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// The number of the payload, counted in the arena from 1.
    pub(crate) generation: u64,
    pub(crate) call: CallId,
    pub(crate) readers: Vec<Rank>,
}

#[derive(Debug)]
struct Slot {
    start: u64,
    capacity: u64,
    /// The number of its latest payload.
    generation: u64,
    lease: Option<Lease>,
    /// True while a payload is being copied there. Its readers may give it up before it is complete.
    is_written_to: bool,
}

impl Slot {
    const fn is_idle(&self) -> bool {
        self.lease.is_none() && !self.is_written_to
    }
}

/// The steps that place a payload in a slot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The slot.
    pub(crate) slot: usize,
    pub(crate) start: u64,
    pub(crate) generation: u64,
    /// Number of bytes of memory to reserve for the slot, if it has none yet.
    pub(crate) to_reserve: Option<u64>,
    /// Starts and lengths of the parts that are given back to the system first.
    pub(crate) to_give_back: Vec<(u64, u64)>,
}

/// The slots of one arena.
#[derive(Debug)]
pub(crate) struct Slots {
    ranges: Ranges,
    all: Vec<Option<Slot>>,
    /// Number of payloads placed so far.
    placed: u64,
    /// Maximum number of bytes of all slots together.
    budget: u64,
    /// Number of bytes of all slots together.
    used: u64,
    /// Number of payloads for which no more memory is requested.
    lacking: u32,
    /// The capacities that have been asked for.
    seen: BTreeSet<u64>,
}

impl Slots {
    pub(crate) fn new(budget: u64) -> Self {
        Self {
            ranges: Ranges::of(budget.saturating_mul(SPREAD)),
            all: Vec::new(),
            placed: 0,
            budget,
            used: 0,
            lacking: 0,
            seen: BTreeSet::new(),
        }
    }

    /// Finds a place for a payload of `len` bytes. Returns `None` if the payload should go another way.
    ///
    /// No other payload gets the place before [`end_writing`](Self::end_writing). `has_let_go` returns true if a reader of a
    /// slot's payload has released it.
    pub(crate) fn place(
        &mut self,
        len: u64,
        call: CallId,
        readers: Vec<Rank>,
        has_let_go: impl Fn(usize, &Lease, Rank) -> bool,
    ) -> Option<Plan> {
        self.end_leases(has_let_go);
        self.lacking = self.lacking.saturating_sub(1);
        let capacity = capacity(len).filter(|capacity| *capacity <= self.budget)?;
        let fitting = self.fitting(len, capacity);
        // The first payload of a size goes another way.
        if fitting.is_none() && self.seen.insert(capacity) {
            return None;
        }
        let (slot, to_reserve, to_give_back) = if let Some(slot) = fitting {
            (slot, None, Vec::new())
        } else {
            let (slot, to_give_back) = self.make(capacity)?;
            (slot, Some(capacity), to_give_back)
        };
        let found = self.all.get_mut(slot)?.as_mut()?;
        self.placed += 1;
        found.is_written_to = true;
        found.generation = self.placed;
        found.lease = Some(Lease {
            generation: self.placed,
            call,
            readers,
        });
        Some(Plan {
            slot,
            start: found.start,
            generation: self.placed,
            to_reserve,
            to_give_back,
        })
    }

    /// Notes that a slot is no longer written to.
    pub(crate) fn end_writing(&mut self, slot: usize) {
        if let Some(Some(slot)) = self.all.get_mut(slot) {
            slot.is_written_to = false;
        }
    }

    /// Ends the lease of a payload that is not announced to any reader.
    pub(crate) fn withdraw(&mut self, call: CallId) {
        for slot in self.all.iter_mut().flatten() {
            slot.lease.take_if(|lease| lease.call == call);
        }
    }

    /// Drops a slot for which memory was refused, and requests no more memory for a while.
    pub(crate) fn refuse(&mut self, slot: usize) {
        self.drop_slot(slot);
        self.lacking = PATIENCE;
    }

    fn end_leases(&mut self, has_let_go: impl Fn(usize, &Lease, Rank) -> bool) {
        for (index, slot) in self.all.iter_mut().enumerate() {
            let Some(slot) = slot else { continue };
            slot.lease.take_if(|lease| {
                lease
                    .readers
                    .iter()
                    .all(|reader| has_let_go(index, lease, *reader))
            });
        }
    }

    fn idle(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let slots = self.all.iter().enumerate();
        slots
            .filter_map(|(index, slot)| Some((index, slot.as_ref().filter(|slot| slot.is_idle())?)))
    }

    /// Returns the smallest idle slot that holds `len` bytes and is not much larger than requested.
    fn fitting(&self, len: u64, capacity: u64) -> Option<usize> {
        let fitting = self.idle().filter(|(_, slot)| {
            slot.capacity >= len && slot.capacity <= capacity.saturating_mul(2)
        });
        fitting
            .min_by_key(|(_, slot)| slot.capacity)
            .map(|(index, _)| index)
    }

    /// Makes a slot, replacing idle ones if there is no space otherwise. Returns the slot and the parts of idle slots to give
    /// back. If even all idle slots together do not free enough space, none is dropped.
    fn make(&mut self, capacity: u64) -> Option<(usize, Vec<(u64, u64)>)> {
        let alignment = if capacity >= HUGE { HUGE } else { SMALLEST };
        let mut idle: Vec<(usize, &Slot)> = self.idle().collect();
        // The slot with the oldest payload goes first.
        idle.sort_by_key(|(_, slot)| slot.generation);
        let mut idle = idle.into_iter();
        let mut has_number = self.all.len() < MOST_SLOTS || self.all.iter().any(Option::is_none);
        let (mut ranges, mut used) = (self.ranges.clone(), self.used);
        let most = if self.lacking > 0 { used } else { self.budget };
        let mut to_drop = Vec::new();
        let start = loop {
            if has_number
                && used + capacity <= most
                && let Some(start) = ranges.take(capacity, alignment)
            {
                break start;
            }
            let (index, slot) = idle.next()?;
            ranges.give_back(slot.start, slot.capacity);
            used -= slot.capacity;
            has_number = true;
            to_drop.push(index);
        };
        let dropped = to_drop.into_iter();
        let given_back = dropped.filter_map(|slot| self.drop_slot(slot)).collect();
        (self.ranges, self.used) = (ranges, used + capacity);
        let free = self.all.iter().position(Option::is_none);
        let index = free.unwrap_or(self.all.len());
        if index == self.all.len() {
            self.all.push(None);
        }
        self.all[index] = Some(Slot {
            start,
            capacity,
            generation: 0,
            lease: None,
            is_written_to: true,
        });
        Some((index, given_back))
    }

    /// Drops a slot, and returns its start and length.
    fn drop_slot(&mut self, slot: usize) -> Option<(u64, u64)> {
        let gone = self.all.get_mut(slot).and_then(Option::take)?;
        self.used -= gone.capacity;
        self.ranges.give_back(gone.start, gone.capacity);
        Some((gone.start, gone.capacity))
    }
}

/// Returns the size of a slot for `len` bytes: slightly more, so that payloads of about one size share a slot.
fn capacity(len: u64) -> Option<u64> {
    let step = (len.checked_next_power_of_two()? / 8).max(SMALLEST);
    len.max(1).checked_next_multiple_of(step)
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
