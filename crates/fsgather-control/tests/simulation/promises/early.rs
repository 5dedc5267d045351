//! Checks calls whose root hears of parts as they come, and calls with a deadline: [`Early`].

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bytes::Bytes;
use fsgather_core::{Call, Contribution, Leaves, Rank, Round, Step, Verdict};

use super::{Broken, Checked, Connected, Exchange, Ledger, payloads::CallId, promise};

/// What the ledger knows of such a call.
#[derive(Clone, Debug, Default)]
pub(super) struct Early {
    /// The call that came first, with which others have to agree.
    call: Option<Call>,
    /// When the root has come, from which its deadline counts.
    root_came: Option<Duration>,
    /// Of whose parts the root has been told.
    told: BTreeSet<Rank>,
    /// Whose parts its program has been given.
    taken: BTreeSet<Rank>,
    /// Who had not come when it was decided.
    pub(super) missing: BTreeSet<Rank>,
    /// Who of these has come since.
    late: BTreeSet<Rank>,
    /// Whether it has failed, and its payloads stay for the root.
    pub(super) stays: bool,
}

impl Exchange {
    /// What those have made and handed in who have come before it was decided.
    pub(super) fn taken_part(&self) -> impl Iterator<Item = &(Call, Contribution)> {
        let came = self.arrived.iter();
        came.filter_map(|rank| self.handed_in.get(rank))
    }

    /// The call that came first, with which others have to agree.
    pub(super) fn call(&self) -> Option<&Call> {
        self.early.call.as_ref()
    }

    /// What somebody leaves who has come in time, and to the same call as the others.
    fn left_by(&self, rank: Rank) -> Leaves {
        let fits = |call: &Call| {
            self.call()
                .is_some_and(|first| first.difference(call).is_none())
        };
        let part = self.handed_in.get(&rank);
        let part = part.filter(|(call, _)| self.arrived.contains(&rank) && fits(call));
        part.map_or(Leaves::Nothing, |(_, part)| part.leaves)
    }

    /// When it is decided whoever has not come.
    fn due(&self) -> Option<Duration> {
        Some(self.early.root_came? + self.call()?.deadline?)
    }
}

impl Ledger {
    /// The root of an early call, by its rank in the world.
    fn early_root(&self, step: Step, call: &Call) -> Option<Rank> {
        let root = call.root.filter(|_| call.is_early())?;
        self.members(step.channel).get(root.index()).copied()
    }

    /// Who was missing when the call was decided, in the steps that follow and in that one.
    pub(super) fn absent(&self, step: Step) -> BTreeSet<Rank> {
        let round = Round::VERDICT;
        let decided = self.exchanges.get(&Step { round, ..step });
        decided.map_or_else(BTreeSet::new, |decided| decided.early.missing.clone())
    }

    /// What a rank has handed in arrives at rank 0.
    pub(super) fn arrives(
        &mut self,
        from: Rank,
        step: Step,
        call: &Call,
        body: &Bytes,
        now: Duration,
    ) -> Checked {
        let is_root = self.early_root(step, call) == Some(from);
        // The member of a root takes part in further rounds by itself.
        let is_unasked = self.is_abandoned(from, step) || (is_root && step.round != Round::VERDICT);
        let exchange = self.exchanges.entry(step).or_default();
        self.moved.insert(from, now);
        self.movements.insert(now);
        self.last_progress = now;
        if is_unasked && !exchange.handed_in.contains_key(&from) {
            promise!(body.is_empty(), "P2: rank {from} hands in {body:?} unasked");
            let nothing = Contribution::default();
            exchange.handed_in.insert(from, (call.clone(), nothing));
        }
        if exchange.early.missing.contains(&from) {
            promise!(
                exchange.early.late.insert(from),
                "simulation: rank {from} comes late to {step:?} twice"
            );
            return Ok(());
        }
        exchange.arrived.insert(from);
        exchange.last_progress = now;
        let first = exchange.early.call.get_or_insert_with(|| call.clone());
        let fits = first.difference(call).is_none();
        if fits && is_root && step.round == Round::VERDICT {
            exchange.early.root_came = Some(now);
        }
        Ok(())
    }

    /// Rank 0 tells a root of a part.
    pub(super) fn tells_of(
        &mut self,
        to: &[Rank],
        step: Step,
        from: Rank,
        body: &Bytes,
    ) -> Checked {
        let from = self.members(step.channel).get(from.index()).copied();
        let exchange = self.exchanges.get(&step);
        let root = exchange
            .and_then(Exchange::call)
            .and_then(|call| self.early_root(step, call));
        let (Some(from), Some(exchange), Some(root)) = (from, self.exchanges.get_mut(&step), root)
        else {
            return Err(Broken(format!("P2: {to:?} hear of a part of {step:?}")));
        };
        promise!(
            to == [root] && exchange.early.root_came.is_some(),
            "P2: {to:?} hear of a part of {step:?}, whose root is rank {root}"
        );
        promise!(
            !exchange.released && exchange.arrived.contains(&from),
            "P2: a part of rank {from} is told that has no part in {step:?}"
        );
        promise!(
            exchange.early.told.insert(from),
            "P2: the part of rank {from} in {step:?} is told twice"
        );
        is_of(exchange, step, from, body)
    }

    /// The program of a root is given a part.
    pub(crate) fn takes(&mut self, root: Rank, step: Step, from: Rank, body: &Bytes) -> Checked {
        let from = self.members(step.channel).get(from.index()).copied();
        let (Some(from), Some(exchange)) = (from, self.exchanges.get_mut(&step)) else {
            return Err(Broken(format!("P2: rank {root} gets a part of {step:?}")));
        };
        promise!(
            exchange.early.told.contains(&from) && exchange.early.taken.insert(from),
            "P2: rank {root} gets the part of rank {from} in {step:?} unsaid or twice"
        );
        is_of(exchange, step, from, body)
    }

    /// Whether a release is for one who comes after a call was decided without it.
    pub(super) fn is_told_late(
        &mut self,
        to: &[Rank],
        step: Step,
        has_bodies: bool,
        missing: &BTreeSet<Rank>,
        now: Duration,
        connected: Connected<'_>,
    ) -> Result<bool, Broken> {
        let listeners = self.lanes.get(&step.channel);
        let listeners = listeners.map_or_else(Vec::new, |lane| lane.listeners(connected));
        let Some(exchange) = self.exchanges.get_mut(&step) else {
            return Ok(false);
        };
        let [rank] = to else {
            return Ok(false);
        };
        let is_due = exchange.due().is_some_and(|due| due <= now);
        if missing.contains(rank) && !exchange.released && is_due {
            // That it was decided nobody was there to hear.
            let mut heard = exchange.arrived.difference(missing);
            promise!(
                heard.all(|rank| !listeners.contains(rank)),
                "P1: rank {rank} is late for {step:?}, of which nobody has been told"
            );
            exchange.released = true;
            exchange.arrived.remove(rank);
            exchange.early.missing.clone_from(missing);
            exchange.early.late.insert(*rank);
        }
        if !exchange.early.missing.contains(rank) {
            return Ok(false);
        }
        promise!(
            exchange.early.late.contains(rank) && exchange.told.insert(*rank),
            "P1: rank {rank}, which is late for {step:?}, is told before it comes or twice"
        );
        promise!(
            !has_bodies && *missing == exchange.early.missing,
            "P2: rank {rank}, which is late for {step:?}, is told that {missing:?} are missing"
        );
        let call = exchange.call().cloned();
        let own = exchange.handed_in.get(rank).map(|(call, _)| call);
        let fits = call.zip(own).map(|(call, own)| call.difference(own));
        promise!(
            fits == Some(None),
            "P2: rank {rank} has made another call than {step:?}, and is told that it is late"
        );
        self.lates += 1;
        Ok(true)
    }

    /// Rank 0 decides a step without these.
    pub(super) fn misses(&mut self, step: Step, missing: BTreeSet<Rank>, now: Duration) -> Checked {
        if step.round != Round::VERDICT {
            let absent = self.absent(step);
            promise!(
                missing == absent,
                "P2: {missing:?} are missing in {step:?}, {absent:?} were before"
            );
            return Ok(());
        }
        let is_disturbed = self.rank_0_was_disturbed;
        let exchange = self.exchanges.entry(step).or_default();
        if !exchange.released && !missing.is_empty() {
            promise!(
                exchange.due() == Some(now) || is_disturbed && exchange.due().is_some(),
                "P7: {step:?} is decided without {missing:?} at {now:?}, its deadline is {:?}",
                exchange.due()
            );
            exchange.early.missing = missing;
            self.partials += 1;
            self.last_progress = now;
            return Ok(());
        }
        // To its root and to the others it is said one after the other.
        promise!(
            missing == exchange.early.missing,
            "P1: {missing:?} are missing in {step:?}, others were told {:?}",
            exchange.early.missing
        );
        Ok(())
    }

    /// Whoever learns of a call learns who was missing, and its root has had all parts before.
    pub(super) fn check_learned(&self, rank: Rank, step: Step, verdict: &Verdict) -> Checked {
        let Some(exchange) = self.exchanges.get(&step) else {
            return Ok(());
        };
        let missing: BTreeSet<Rank> = verdict.missing.iter().map(|m| m.rank).collect();
        let absent = self.absent(step);
        promise!(
            missing == absent,
            "P1: rank {rank} learns that {missing:?} are missing in {step:?}, {absent:?} are"
        );
        let root = exchange.call().and_then(|call| self.early_root(step, call));
        let has_parts = exchange.early.taken == exchange.arrived;
        promise!(
            root != Some(rank) || step.round != Round::VERDICT || has_parts,
            "P2: rank {rank} learns of {step:?} and has parts of {:?} alone",
            exchange.early.taken
        );
        Ok(())
    }

    /// Of calls that fail now the payloads stay that their roots have been told of.
    pub(super) fn keep_told(&mut self, failed: &[Step], connected: Connected<'_>) {
        for step in failed.iter().filter(|step| step.round == Round::VERDICT) {
            let Some(exchange) = self.exchanges.get(step) else {
                continue;
            };
            let root = exchange
                .call()
                .and_then(|call| self.early_root(*step, call));
            let lane = self.lanes.get(&step.channel);
            let is_there =
                |root: &Rank| connected(*root) && lane.is_some_and(|lane| lane.here.contains(root));
            let has_come = exchange.early.root_came.is_some();
            let Some(root) = root.filter(|root| has_come && is_there(root)) else {
                continue;
            };
            let came = exchange.arrived.iter().copied();
            let leaves = came.map(|rank| (rank, exchange.left_by(rank)));
            let left = leaves.filter(|(_, leaves)| *leaves != Leaves::Nothing);
            let left: BTreeMap<Rank, Leaves> = left.collect();
            if left.is_empty() {
                continue;
            }
            let kept = left
                .iter()
                .filter(|(_, leaves)| **leaves == Leaves::WithOwner);
            let keepers = kept.map(|(rank, _)| *rank).collect();
            let payloads = self.payloads.entry((step.channel, step.epoch)).or_default();
            payloads.owners = left.into_keys().collect();
            payloads.keepers = keepers;
            payloads.recipients = [root].into();
            if let Some(exchange) = self.exchanges.get_mut(step) {
                exchange.early.stays = true;
            }
            self.kept_for_roots += 1;
        }
    }

    /// Whether a call has failed and payloads of it stay for its root.
    pub(super) fn stays(&self, call: CallId) -> bool {
        self.verdict_of(call).is_some_and(|call| call.early.stays)
    }

    /// Whether a payload came after its call was decided or had failed, so that nobody reads it.
    pub(super) fn is_late(&self, call: CallId, owner: Rank) -> bool {
        let is_late = |exchange: &Exchange| {
            exchange.early.missing.contains(&owner)
                || (exchange.early.stays && exchange.left_by(owner) == Leaves::Nothing)
        };
        self.verdict_of(call).is_some_and(is_late)
    }

    fn verdict_of(&self, (channel, epoch): CallId) -> Option<&Exchange> {
        let round = Round::VERDICT;
        self.exchanges.get(&Step {
            channel,
            epoch,
            round,
        })
    }

    /// Until when ranks wait for a deadline, whatever moves.
    pub(crate) fn last_deadline(&self) -> Duration {
        let undecided = self.exchanges.values().filter(|e| !e.released);
        undecided
            .filter_map(Exchange::due)
            .max()
            .unwrap_or_default()
    }
}

/// A part is what its rank has handed in.
fn is_of(exchange: &Exchange, step: Step, from: Rank, body: &Bytes) -> Checked {
    let part = exchange.handed_in.get(&from);
    promise!(
        part.is_some_and(|(_, part)| part.body == *body),
        "P2: {body:?} counts as the part of rank {from} in {step:?}"
    );
    Ok(())
}
