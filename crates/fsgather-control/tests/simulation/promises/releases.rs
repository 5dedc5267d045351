//! Checks releases: their time, their recipients, and their contents.

use std::collections::BTreeSet;

use bytes::Bytes;
use fsgather_core::{Call, Leaves, Operation, Rank, Step, Table};
use fsgather_testkit::call_results::{Part, check_bodies, check_verdict};

use super::{Broken, Checked, Connected, Ledger, promise};

impl Ledger {
    pub(super) fn releases(
        &mut self,
        to: &[Rank],
        step: Step,
        table: Option<&Table>,
        connected: Connected<'_>,
    ) -> Checked {
        promise!(
            self.abort_of(step.channel).is_none(),
            "P3: {step:?} is released after the abort"
        );
        let bodies = table.map(|table| &table.bodies);
        let acknowledge = table.is_some_and(|table| table.acknowledge);
        self.late_releases += usize::from(self.abort().is_some());
        let members = self.members(step.channel).to_vec();
        let exchange = self.exchanges.entry(step).or_default();
        self.releases += usize::from(!exchange.released);
        exchange.released = true;
        for rank in to {
            promise!(
                exchange.told.insert(*rank),
                "P1: rank {rank} is told twice of {step:?}"
            );
        }
        promise!(
            !self.given_up.contains(&(step.channel, step.epoch)),
            "P3: {step:?} is released after a payload of it was given up"
        );
        promise!(
            exchange.arrived.len() == members.len(),
            "P2: {step:?} is released with contributions of {:?} only",
            exchange.arrived
        );
        let calls: Vec<&Call> = exchange.taken_part().map(|(call, _)| call).collect();
        let different = calls.iter().any(|call| call.difference(calls[0]).is_some());
        promise!(!different, "P2: {step:?} is released for different calls");
        let who_leaves = |leaves: Leaves| -> BTreeSet<Rank> {
            let left = exchange.arrived.iter().filter(|rank| {
                let part = exchange.handed_in.get(rank);
                part.is_some_and(|(_, part)| part.leaves == leaves)
            });
            left.copied().collect()
        };
        let mut owners = who_leaves(Leaves::ForOwner);
        let keepers = who_leaves(Leaves::WithOwner);
        owners.extend(&keepers);
        let expected = !owners.is_empty() && bodies.is_some();
        promise!(
            acknowledge == expected,
            "P4: {step:?} is released with acknowledge {acknowledge}"
        );
        // A rank that got no messages of rank 0 may have failed by itself.
        let failures = self.failures.iter();
        let failed = failures
            .filter(|((rank, _), failed)| failed.step == Some(step) && !self.excused.contains(rank))
            .map(|((rank, _), failed)| (*rank, &failed.error));
        check_verdict(to.iter().copied(), failed)
            .map_err(|wrong| Broken(format!("P1: {step:?}: {wrong}")))?;
        let ends = calls
            .first()
            .is_some_and(|call| call.operation == Operation::Close);
        let recipients = calls.first().map(|call| call.recipients());
        let numbered = (0..).map(Rank::new).zip(members);
        let recipients: BTreeSet<Rank> = numbered
            .filter(|(number, _)| recipients.is_some_and(|r| r.include(*number)))
            .map(|(_, rank)| rank)
            .collect();
        if !owners.is_empty() {
            let payloads = self.payloads.entry((step.channel, step.epoch)).or_default();
            payloads.owners = owners;
            payloads.keepers = keepers;
            payloads.recipients = recipients;
        }
        promise!(
            !ends || !self.is_read(step.channel, connected),
            "P4: a group ends while payloads of it are read"
        );
        self.check_table(step, to, bodies)
    }

    pub(super) fn check_table(
        &self,
        step: Step,
        to: &[Rank],
        bodies: Option<&Vec<Bytes>>,
    ) -> Checked {
        let Some(exchange) = self.exchanges.get(&step) else {
            return Err(Broken(format!("P2: nobody has contributed to {step:?}")));
        };
        let Some((call, _)) = exchange.taken_part().next() else {
            return Err(Broken(format!("P2: nobody has contributed to {step:?}")));
        };
        let members = self.members(step.channel);
        let number_of = |rank: &Rank| (0..).map(Rank::new).zip(members).find(|(_, m)| *m == rank);
        let parts = || {
            members
                .iter()
                .map(|rank| match exchange.handed_in.get(rank) {
                    Some((_, part)) if exchange.arrived.contains(rank) => {
                        Part::Contributed(&part.body)
                    }
                    _ => Part::Missing,
                })
        };
        for rank in to {
            let number = number_of(rank).map(|(number, _)| number);
            let receives = number.is_some_and(|number| call.recipients().include(number));
            check_bodies(parts(), receives, bodies.map(Vec::as_slice))
                .map_err(|wrong| Broken(format!("P2: of {step:?} {wrong} for rank {rank}")))?;
        }
        Ok(())
    }
}
