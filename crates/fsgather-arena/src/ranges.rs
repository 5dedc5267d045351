//! Free parts of an arena: [`Ranges`].

use std::collections::BTreeMap;

/// The free parts of an address range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ranges {
    /// Length by start; no two touch each other.
    free: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Makes a range of which all of `0..len` is free.
    pub(crate) fn of(len: u64) -> Self {
        Self {
            free: (len > 0).then_some((0, len)).into_iter().collect(),
        }
    }

    /// Takes the first free part of this length whose start is a multiple of `alignment`.
    pub(crate) fn take(&mut self, len: u64, alignment: u64) -> Option<u64> {
        let (start, (before, room)) = self.free.iter().find_map(|(before, room)| {
            let start = before.checked_next_multiple_of(alignment)?;
            let end = start.checked_add(len)?;
            (end <= before + room).then_some((start, (*before, *room)))
        })?;
        self.free.remove(&before);
        if start > before {
            self.free.insert(before, start - before);
        }
        let rest = before + room - (start + len);
        if rest > 0 {
            self.free.insert(start + len, rest);
        }
        Some(start)
    }

    /// Frees a part that was taken.
    pub(crate) fn give_back(&mut self, mut start: u64, mut len: u64) {
        if let Some((before, room)) = self.free.range(..start).next_back()
            && before + room == start
        {
            (start, len) = (*before, room + len);
            self.free.remove(&start);
        }
        if let Some(after) = self.free.remove(&(start + len)) {
            len += after;
        }
        self.free.insert(start, len);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn neighbours_become_one_again() {
        let mut ranges = Ranges::of(100);
        let taken: Vec<u64> = (0..4).map(|_| ranges.take(25, 1).unwrap()).collect();
        assert_eq!(taken, [0, 25, 50, 75]);
        assert_eq!(ranges.take(1, 1), None);
        for start in [0, 50, 25, 75] {
            ranges.give_back(start, 25);
        }
        assert_eq!(ranges, Ranges::of(100));
    }

    proptest! {
        #[test]
        fn nothing_is_given_twice(steps in prop::collection::vec((1..40_u64, 0..4_u32, any::<bool>()), 1..60)) {
            let mut ranges = Ranges::of(200);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (len, power, gives_back) in steps {
                if gives_back && !taken.is_empty() {
                    let (start, len) = taken.swap_remove(usize::try_from(len).unwrap() % taken.len());
                    ranges.give_back(start, len);
                } else if let Some(start) = ranges.take(len, 1 << power) {
                    prop_assert_eq!(start % (1 << power), 0);
                    prop_assert!(start + len <= 200);
                    for (other, room) in &taken {
                        prop_assert!(start + len <= *other || other + room <= start);
                    }
                    taken.push((start, len));
                }
            }
            for (start, len) in taken {
                ranges.give_back(start, len);
            }
            prop_assert_eq!(ranges, Ranges::of(200));
        }
    }
}
