//! Numbered items in their order, independent of that of their arrival: [`ReorderBuffer`]. Pure.

use std::collections::BTreeMap;

/// Puts items that arrive in any order, perhaps several times, into the order of their numbers from 1.
#[derive(Clone, Debug)]
pub(super) struct ReorderBuffer<T> {
    /// Number of items that have been taken.
    taken: u64,
    early: BTreeMap<u64, T>,
}

impl<T> Default for ReorderBuffer<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> ReorderBuffer<T> {
    pub(super) const fn new() -> Self {
        Self {
            taken: 0,
            early: BTreeMap::new(),
        }
    }

    /// Adds an item; one that was added before is ignored.
    pub(super) fn offer(&mut self, number: u64, item: T) {
        if number > self.taken {
            self.early.entry(number).or_insert(item);
        }
    }

    /// The next item in order, if it is there.
    pub(super) fn take(&mut self) -> Option<T> {
        let item = self.early.remove(&(self.taken + 1))?;
        self.taken += 1;
        Some(item)
    }

    /// Counts all items up to `number` as taken.
    pub(super) fn skip_to(&mut self, number: u64) {
        if number > self.taken {
            self.taken = number;
            self.early = self.early.split_off(&(number + 1));
        }
    }

    /// The number of the item that was taken last; 0 before the first.
    pub(super) const fn taken(&self) -> u64 {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_out_in_order_and_once() {
        let mut sequence = ReorderBuffer::default();
        let mut out = Vec::new();
        for number in [2, 3, 2, 1, 1, 5, 2] {
            sequence.offer(number, number * 10);
            out.extend(std::iter::from_fn(|| sequence.take()));
        }
        assert_eq!(out, [10, 20, 30]);
        assert_eq!(sequence.taken(), 3);
        sequence.offer(4, 40);
        assert_eq!((sequence.take(), sequence.take()), (Some(40), Some(50)));
        assert_eq!(sequence.take(), None);
    }

    #[test]
    fn what_is_skipped_does_not_come() {
        let mut sequence = ReorderBuffer::default();
        for number in [1, 2, 4] {
            sequence.offer(number, number);
        }
        sequence.skip_to(3);
        sequence.offer(3, 3);
        assert_eq!((sequence.take(), sequence.take()), (Some(4), None));
    }
}
