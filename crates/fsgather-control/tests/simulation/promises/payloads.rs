//! How long payloads stay, and who removes them.

use std::collections::BTreeSet;

use fsgather_core::{Epoch, Rank};

use super::{Checked, Connected, Ledger, promise};

/// Payloads of a decided call that somebody may still read.
#[derive(Default)]
pub(super) struct Payloads {
    pub(super) owners: BTreeSet<Rank>,
    /// Whose payload is to be removed, or is removed by rank 0.
    pub(super) reclaimed: BTreeSet<Rank>,
    /// Whose payload is not there any more.
    pub(super) removed: BTreeSet<Rank>,
    pub(super) done: BTreeSet<Rank>,
}

impl Ledger {
    /// Whether rank 0 waits for this rank to say that it has read something.
    pub(super) fn reads(&self, rank: Rank) -> bool {
        self.payloads.values().any(|payloads| {
            payloads.owners.len() > payloads.reclaimed.len() && !payloads.done.contains(&rank)
        })
    }

    pub(crate) fn reclaims(
        &mut self,
        epoch: Epoch,
        owner: Rank,
        connected: Connected<'_>,
    ) -> Checked {
        let reading = self.readers(epoch, connected);
        let payloads = self.payloads.entry(epoch).or_default();
        promise!(
            reading.is_empty(),
            "P4: the payload of rank {owner} in call {epoch} goes while {reading:?} read it"
        );
        promise!(
            payloads.owners.contains(&owner),
            "P4: rank {owner} left no payload in call {epoch}"
        );
        promise!(
            payloads.reclaimed.insert(owner),
            "P4: the payload of rank {owner} in call {epoch} is reclaimed twice"
        );
        self.reclaims += 1;
        Ok(())
    }

    /// A payload whose owner is gone is reclaimed by rank 0.
    pub(crate) fn reclaims_for(
        &mut self,
        epoch: Epoch,
        owner: Rank,
        connected: Connected<'_>,
    ) -> Checked {
        promise!(
            !connected(owner),
            "P4: rank 0 removes the payload of rank {owner}, which is there to do so"
        );
        self.reclaims(epoch, owner, connected)?;
        self.reclaims_for_others += 1;
        self.removes(owner, epoch)
    }

    /// A payload is removed, by its owner unless that is gone.
    pub(crate) fn removes(&mut self, owner: Rank, epoch: Epoch) -> Checked {
        let payloads = self.payloads.entry(epoch).or_default();
        promise!(
            payloads.reclaimed.contains(&owner) && payloads.removed.insert(owner),
            "P4: the payload of rank {owner} in call {epoch} is removed unasked or twice"
        );
        Ok(())
    }

    /// Payloads of decided calls that are still there.
    pub(crate) fn kept_payloads(&self) -> Vec<(Epoch, Rank)> {
        let payloads = self.payloads.iter();
        payloads
            .flat_map(|(epoch, payloads)| {
                let kept = payloads.owners.difference(&payloads.removed);
                kept.map(|owner| (*epoch, *owner))
            })
            .collect()
    }

    pub(super) fn readers(&self, epoch: Epoch, connected: Connected<'_>) -> Vec<Rank> {
        let done = self.payloads.get(&epoch).map(|payloads| &payloads.done);
        self.all()
            .filter(|rank| connected(*rank) && !done.is_some_and(|done| done.contains(rank)))
            .collect()
    }
}
