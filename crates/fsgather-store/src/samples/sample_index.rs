//! The result that counts for each sample: [`SampleIndex`]. Pure.

use std::collections::{HashMap, hash_map::Entry};

use crate::samples::{
    entry::{EntryHead, EntryKind},
    sample_id::SampleId,
};

/// Location of an encoded value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValuePlace {
    /// Number of its file among those that were read together.
    pub(crate) file: u32,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) hash: u64,
}

impl ValuePlace {
    /// Whether both places hold the same bytes, by their hashes and lengths.
    fn has_bytes_of(&self, other: &Self) -> bool {
        (self.len, self.hash) == (other.len, other.hash)
    }
}

/// The first result of each sample, by attempt, rank and position: the same on every reader.
#[derive(Debug, Default)]
pub struct SampleIndex {
    results: HashMap<SampleId, (ValuePlace, u64)>,
    failures: HashMap<SampleId, ValuePlace>,
    expectation: Option<ValuePlace>,
    repeats: HashMap<SampleId, u32>,
    /// Samples with another result, whose bytes differ: the first result and the other.
    candidates: Vec<(SampleId, ValuePlace, ValuePlace)>,
}

impl SampleIndex {
    /// Adds the distinct entries of a process, in order, and returns how many cannot be read although a later one can.
    ///
    /// Processes must come in the order of their names.
    pub(crate) fn add_process(&mut self, entries: Vec<(EntryHead, ValuePlace)>) -> u64 {
        let count = entries.len() as u64;
        let last = entries.last().map(|(head, _)| head.sequence);
        for (head, place) in entries {
            self.add(head, place);
        }
        last.map_or(0, |last| last.saturating_add(1).saturating_sub(count))
    }

    /// Notes the samples that an attempt expects.
    pub(crate) fn expect(&mut self, place: ValuePlace) {
        self.expectation = Some(place);
    }

    fn add(&mut self, head: EntryHead, place: ValuePlace) {
        match head.kind {
            EntryKind::Failure => {
                self.failures.insert(head.id, place);
            }
            EntryKind::Result => {
                let order = self.results.len() as u64;
                match self.results.entry(head.id) {
                    Entry::Vacant(vacant) => {
                        vacant.insert((place, order));
                    }
                    Entry::Occupied(first) => {
                        let counted = first.get().0;
                        if counted.has_bytes_of(&place) {
                            *self.repeats.entry(first.key().clone()).or_default() += 1;
                        } else {
                            self.candidates.push((first.key().clone(), counted, place));
                        }
                    }
                }
            }
        }
    }

    /// The result of a sample.
    #[must_use]
    pub fn result(&self, id: &SampleId) -> Option<ValuePlace> {
        self.results.get(id).map(|(place, _)| *place)
    }

    /// The reason why a sample failed, as text, unless an attempt has its result.
    #[must_use]
    pub fn failure(&self, id: &SampleId) -> Option<ValuePlace> {
        if self.results.contains_key(id) {
            return None;
        }
        self.failures.get(id).copied()
    }

    /// The samples that the last attempt expects, if it has said so.
    #[must_use]
    pub const fn expectation(&self) -> Option<ValuePlace> {
        self.expectation
    }

    /// Number of samples that have a result.
    #[must_use]
    pub fn len(&self) -> usize {
        self.results.len()
    }

    /// Whether no sample has a result.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// Samples that have a result, in the order in which they were first added.
    #[must_use]
    pub fn ids(&self) -> Vec<&SampleId> {
        let mut ids: Vec<_> = self
            .results
            .iter()
            .map(|(id, (_, order))| (*order, id))
            .collect();
        ids.sort_unstable_by_key(|(order, _)| *order);
        ids.into_iter().map(|(_, id)| id).collect()
    }

    /// Samples that have failed and have no result, sorted.
    #[must_use]
    pub fn failed(&self) -> Vec<&SampleId> {
        let mut ids: Vec<_> = self
            .failures
            .keys()
            .filter(|id| !self.results.contains_key(id))
            .collect();
        ids.sort_unstable();
        ids
    }

    /// How often a sample came again with the same bytes.
    #[must_use]
    pub fn repeats(&self, id: &SampleId) -> u32 {
        self.repeats.get(id).copied().unwrap_or_default()
    }

    /// Results that came again with other bytes: the sample, the result that counts, and the other.
    #[must_use]
    pub fn different(&self) -> &[(SampleId, ValuePlace, ValuePlace)] {
        &self.candidates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(sequence: u64, kind: EntryKind, id: i32, hash: u64) -> (EntryHead, ValuePlace) {
        let head = EntryHead {
            sequence,
            kind,
            id: id.into(),
        };
        let place = ValuePlace {
            file: 0,
            offset: 0,
            len: 1,
            hash,
        };
        (head, place)
    }

    #[test]
    fn the_first_result_counts_and_others_are_compared() {
        let mut index = SampleIndex::default();
        let result = |sequence, id, hash| entry(sequence, EntryKind::Result, id, hash);
        index.add_process(vec![result(0, 5, 50), result(1, 3, 30)]);
        index.add_process(vec![result(0, 5, 50), result(1, 3, 31)]);
        assert_eq!(index.ids(), [&SampleId::from(5), &SampleId::from(3)]);
        assert_eq!(index.result(&3.into()).unwrap().hash, 30);
        assert_eq!((index.repeats(&5.into()), index.repeats(&3.into())), (1, 0));
        let [(id, first, other)] = index.different() else {
            panic!("{:?}", index.different());
        };
        assert_eq!((id, first.hash, other.hash), (&3.into(), 30, 31));
    }

    #[test]
    fn failures_count_until_there_is_a_result() {
        let mut index = SampleIndex::default();
        let failure = |id| entry(id, EntryKind::Failure, i32::try_from(id).unwrap(), 9);
        index.add_process(vec![failure(1), failure(2)]);
        let result = entry(0, EntryKind::Result, 2, 20);
        index.add_process(vec![result]);
        assert_eq!(index.failed(), [&SampleId::from(1)]);
        assert!(index.failure(&2.into()).is_none() && index.failure(&1.into()).is_some());
    }

    #[test]
    fn entries_before_one_that_can_be_read_are_counted_as_lost() {
        let mut index = SampleIndex::default();
        let result = |sequence| entry(sequence, EntryKind::Result, 1, 1);
        assert_eq!(index.add_process(vec![result(2), result(5)]), 4);
        assert_eq!(index.add_process(Vec::new()), 0);
    }
}
