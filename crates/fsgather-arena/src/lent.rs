//! Memory of the own arena that the program writes its payload to itself: [`LentMemory`].
//!
//! Such a payload is handed over without being copied. What others read must not change, though the program keeps the memory:
//! so with handing over the program's mapping becomes a private one, of the same bytes at the same address. What the program
//! writes from then on is copied page by page, and nobody else sees it.
//!
//! Exchanging mappings takes as long as copying some megabytes. Who gives up writing, by [`LentMemory::freeze`], keeps the mapping,
//! and the next payload in the same place finds it with all its pages.

use std::{
    fmt, io,
    ops::{Deref, DerefMut, Range},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use fsgather_core::{Rank, lock};
use memmap2::MmapRaw;
use rustix::param::page_size;

use crate::{
    arena::{Arena, Placement},
    forks::{self, SharedMapping},
    location::Location,
    memory::{keep_in_cores, keep_out_of_cores, lent, lent_mut},
    slots::Lease,
};

/// A mapping that a program has written through, for the next that is to write there. It goes with its slot, so that there are
/// no more of them than slots, and none reaches into another slot.
#[derive(Debug)]
pub(crate) struct LeftMapping {
    /// Where in the arena it begins.
    start: u64,
    map: Arc<MmapRaw>,
}

/// A part of an arena that is mapped for the program.
#[derive(Debug)]
pub(crate) struct LentPart {
    /// As long as this part, or longer.
    map: Arc<MmapRaw>,
    len: usize,
    slot: usize,
    /// Where in the arena it begins, a page after the slot: before it there is room for what payloads begin with.
    start: u64,
    /// Where its slot ends; up to there is room for what they end with.
    end: u64,
    /// As long as others would see what is written through the mapping.
    shared: Mutex<Option<SharedMapping>>,
    /// Whether the program writes nothing there any more.
    is_frozen: AtomicBool,
    is_handed_over: AtomicBool,
}

impl LentPart {
    /// The memory, by its address.
    fn range(&self) -> Range<usize> {
        let start = self.map.as_ptr() as usize;
        start..start + self.len
    }

    /// Makes what lies there something that never changes under the eyes of its readers.
    fn part_with(&self, arena: &Arena) -> io::Result<()> {
        if self.is_frozen.load(Ordering::Acquire) {
            return Ok(());
        }
        arena.memory.part_with(&self.map, self.start)?;
        lock(&self.shared).take();
        Ok(())
    }

    /// Where in the arena a payload will lie of which one piece is all of this, or, if it is the only one, a part of it.
    fn in_place<'a>(&self, pieces: &[&'a [u8]]) -> Option<InPlace<'a>> {
        let own = self.range();
        let is_here = |piece: &&[u8]| {
            let start = piece.as_ptr() as usize;
            !piece.is_empty() && own.contains(&start) && start + piece.len() <= own.end
        };
        let at = pieces.iter().position(is_here)?;
        let (before, rest) = pieces.split_at(at);
        let (here, after) = rest.split_first()?;
        let skipped = here.as_ptr() as usize - own.start;
        let len = |pieces: &[&[u8]]| -> u64 { pieces.iter().map(|piece| piece.len() as u64).sum() };
        let (head, tail) = (len(before), len(after));
        // What the program has beside the piece stays as it is.
        let has_room_before = head == 0 || (skipped == 0 && head <= page_size() as u64);
        let data = self.start + skipped as u64;
        let end = data + here.len() as u64;
        let is_whole = skipped + here.len() == own.len();
        let has_room_after = tail == 0 || (is_whole && end + tail <= self.end);
        (has_room_before && has_room_after).then(|| InPlace {
            start: data - head,
            len: head + here.len() as u64 + tail,
            end,
            before: before.to_vec(),
            after: after.to_vec(),
        })
    }
}

/// A payload of which one piece is where it will be read.
struct InPlace<'a> {
    start: u64,
    len: u64,
    /// Where in the arena the piece ends that is there already.
    end: u64,
    before: Vec<&'a [u8]>,
    after: Vec<&'a [u8]>,
}

/// Memory that the program writes a payload to, which is then handed over without a copy.
///
/// It can be read and written to at any time, also once it has been handed over: others do not see that any more. It stays the
/// program's until it is dropped, and its memory counts to what its rank may share. What is in it at first is arbitrary.
pub struct LentMemory {
    arena: Arc<Arena>,
    part: Arc<LentPart>,
    /// How often the process that has it had been forked before.
    forks: u64,
}

impl Arena {
    /// Memory of `len` bytes for the program; nothing while there is no room, or nothing is asked for, and in a forked child.
    #[must_use]
    pub fn lend(self: &Arc<Self>, len: usize) -> Option<LentMemory> {
        if self.is_foreign() {
            return None;
        }
        let page = page_size() as u64;
        let forks = forks::count();
        let with_room = (len as u64).checked_add(2 * page).filter(|_| len > 0)?;
        let let_go = |slot: usize, lease: &Lease, reader: Rank| {
            let ledger = &self.ledger;
            ledger.has_let_go(reader, slot, lease.generation, lease.call)
        };
        let mut slots = lock(&self.slots);
        let plan = slots.lend(with_room, let_go)?;
        let (slot, start) = (plan.slot, plan.start + page);
        self.carry_out(&mut slots, &plan)?;
        let made = self.map_again(start, len).and_then(|map| {
            let shared = SharedMapping::of(&map, self.memory.descriptor(), start)?;
            Ok((map, shared))
        });
        let (map, shared) = made
            .inspect_err(|error| {
                tracing::debug!(
                    "a payload of {len} bytes is not written where it is shared: {error}"
                );
                slots.end_writing(slot);
            })
            .ok()?;
        drop(slots);
        let part = Arc::new(LentPart {
            map,
            len,
            slot,
            start,
            end: plan.start + with_room,
            shared: Mutex::new(Some(shared)),
            is_frozen: AtomicBool::new(false),
            is_handed_over: AtomicBool::new(false),
        });
        lock(&self.lent).push(Arc::clone(&part));
        Some(LentMemory {
            arena: Arc::clone(self),
            part,
            forks,
        })
    }

    /// A mapping of a part to be written to: one that was left there before, or a new one.
    fn map_again(&self, start: u64, len: usize) -> io::Result<Arc<MmapRaw>> {
        let mut left = lock(&self.left_mappings);
        let fits = |one: &LeftMapping| {
            // Another thread may be looking at what was there just now.
            one.start == start && one.map.len() >= len && Arc::strong_count(&one.map) == 1
        };
        if let Some(index) = left.iter().position(fits) {
            let map = left.swap_remove(index).map;
            keep_in_cores(&map);
            return Ok(map);
        }
        left.retain(|one| one.start != start);
        self.memory.lend(start, len).map(Arc::new)
    }

    /// Keeps a mapping through which the same is seen as others see, of a slot that is the program's still.
    fn leave(&self, start: u64, map: &Arc<MmapRaw>) {
        keep_out_of_cores(map);
        let mut left = lock(&self.left_mappings);
        left.retain(|one| one.start != start);
        let map = Arc::clone(map);
        left.push(LeftMapping { start, map });
    }

    /// Unmaps what is left of a slot that is given up.
    pub(crate) fn unmap_left(&self, slot: Range<u64>) {
        lock(&self.left_mappings).retain(|one| !slot.contains(&one.start));
    }

    /// Hands over a payload that the program has written where it is to be read, if it has, and not handed it over before.
    pub(crate) fn place_lent(
        &self,
        pieces: &[&[u8]],
        placement: &Placement<'_>,
    ) -> Option<Location> {
        let lent = lock(&self.lent).clone();
        let (part, found) = lent
            .iter()
            .find_map(|part| Some((part, part.in_place(pieces)?)))?;
        // Of several threads one hands it over.
        if part.is_handed_over.swap(true, Ordering::AcqRel) {
            return None;
        }
        if let Err(error) = part.part_with(self) {
            tracing::debug!("a payload that is there already is copied: {error}");
            part.is_handed_over.store(false, Ordering::Release);
            return None;
        }
        let mut start = found.start;
        for piece in found.before {
            self.memory.write(start, piece)?;
            start += piece.len() as u64;
        }
        let mut start = found.end;
        for piece in found.after {
            self.memory.write(start, piece)?;
            start += piece.len() as u64;
        }
        let readers = placement.readers.to_vec();
        let generation = lock(&self.slots).lease(part.slot, placement.call, readers)?;
        let location = Location {
            slot: u32::try_from(part.slot).ok()?,
            generation,
            start: found.start,
            len: found.len,
        };
        self.ledger.describe(&location, placement.call);
        Some(location)
    }
}

impl LentMemory {
    /// Gives up writing to it, so that handing it over is a matter of telling where it is.
    #[must_use]
    pub fn freeze(self) -> FrozenMemory {
        self.part.is_frozen.store(true, Ordering::Release);
        FrozenMemory(self)
    }
}

/// [`LentMemory`] that nobody writes to any more.
#[derive(Debug)]
pub struct FrozenMemory(LentMemory);

impl AsRef<[u8]> for FrozenMemory {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Deref for LentMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        lent(&self.part.map, self.part.len)
    }
}

impl DerefMut for LentMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        lent_mut(&self.part.map, self.part.len)
    }
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        // Of a child that is not the child's business, and a lock could be another thread's that is not there.
        if self.arena.is_foreign() {
            return;
        }
        lock(&self.arena.lent).retain(|part| !Arc::ptr_eq(part, &self.part));
        let shared = lock(&self.part.shared).take();
        // A forked child sees what lies there for as long as it lives.
        if forks::count() != self.forks {
            return;
        }
        if shared.is_some() {
            self.arena.leave(self.part.start, &self.part.map);
        }
        lock(&self.arena.slots).end_writing(self.part.slot);
    }
}

impl fmt::Debug for LentMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentMemory")
            .field("len", &self.part.len)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "lent_tests.rs"]
mod tests;
