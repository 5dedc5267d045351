//! Finds entries beside gather directories that belong to them: [`EntriesByGather`].

use std::collections::{BTreeMap, BTreeSet};

use fsgather_core::GatherId;

use crate::{layout::RendezvousEntry, messages::detours::DetourName};

/// The names of one listing of a rendezvous directory, grouped once, so that the entries of a gather directory are found
/// without a search through all others.
#[derive(Debug, Default)]
pub(crate) struct EntriesByGather {
    gathers: BTreeSet<GatherId>,
    beside: BTreeMap<GatherId, Beside>,
}

/// Names of the entries beside one gather directory that belong to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beside {
    /// Marks of processes that were about to remove it.
    pub(crate) marks: Vec<String>,
    /// Messages that could not be written into it.
    pub(crate) detours: Vec<String>,
}

impl EntriesByGather {
    /// Groups the names of a listing.
    pub(crate) fn among(names: &[String]) -> Self {
        let mut all = Self::default();
        for name in names {
            match RendezvousEntry::parse(name) {
                Some(RendezvousEntry::Gather(id)) => {
                    all.gathers.insert(id);
                }
                Some(RendezvousEntry::Condemned { id, .. }) => {
                    all.beside.entry(id).or_default().marks.push(name.clone());
                }
                Some(_) => {}
                None => {
                    if let Some(detour) = DetourName::parse(name) {
                        let beside = all.beside.entry(detour.id).or_default();
                        beside.detours.push(name.clone());
                    }
                }
            }
        }
        all
    }

    /// Returns true if there is a gather directory of this id.
    pub(crate) fn has(&self, id: GatherId) -> bool {
        self.gathers.contains(&id)
    }

    /// Returns the entries that belong to a gather directory.
    pub(crate) fn beside(&self, id: GatherId) -> Beside {
        self.beside.get(&id).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use crate::directory::owner::tests::record;

    use super::*;

    #[test]
    fn entries_are_grouped_by_the_directory_they_belong_to() {
        let (one, other) = (record(1).gather, record(2).gather);
        let mark = |id, nonce| RendezvousEntry::Condemned { id, nonce }.to_string();
        let gather = RendezvousEntry::Gather(one).to_string();
        let detour = format!("detour-{other}-bulletin-n{:020}-all-{:08x}", 7, 9);
        let names = [mark(one, 1), gather, mark(other, 2), detour, "x".into()];
        let seen = EntriesByGather::among(&names);
        assert!(seen.has(one) && !seen.has(other));
        assert_eq!(seen.beside(one).marks, [mark(one, 1)]);
        assert_eq!(seen.beside(other).marks, [mark(other, 2)]);
        assert!(seen.beside(one).detours.is_empty());
        assert_eq!(seen.beside(other).detours.len(), 1);
        assert_eq!(seen.beside(record(3).gather), Beside::default());
    }
}
