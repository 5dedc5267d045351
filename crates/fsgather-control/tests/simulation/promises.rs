//! What must hold in every run, checked as it goes: [`Ledger`].
//!
//! The ledger sees everything that is said and learned. It keeps a model of its own of what has arrived and
//! when something last moved, and compares what the machines do with it.

mod failures;
mod payloads;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use bytes::Bytes;
use fsgather_control::message::{ToCoordinator, ToMember};
use fsgather_core::{Call, Contribution, Epoch, Error, Leaves, PeerFailure, Rank, Step, Verdict};

use self::payloads::Payloads;

/// How long last words may take after the end of a process has been reported.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A promise that was not kept.
#[derive(Debug)]
pub(crate) struct Broken(pub(crate) String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The outcome of a check.
pub(crate) type Checked = Result<(), Broken>;

/// Fails with a message unless the promise is kept.
macro_rules! promise {
    ($kept:expr, $($message:tt)+) => {
        if !$kept {
            return Err($crate::promises::Broken(format!($($message)+)));
        }
    };
}
pub(crate) use promise;

/// After a failure every call ends with an error that wraps it.
pub(crate) fn is_poisoned(rank: Rank, first: &Error, again: Option<&Error>) -> Checked {
    promise!(
        again == Some(&first.poisoned()),
        "P3: rank {rank} has failed with \"{first}\", and its next call ends with {again:?}"
    );
    Ok(())
}

/// One exchange, as the ledger knows it.
#[derive(Default)]
struct Exchange {
    handed_in: BTreeMap<Rank, (Call, Contribution)>,
    arrived: BTreeSet<Rank>,
    last_progress: Duration,
    released: bool,
    /// Who has been sent the release.
    told: BTreeSet<Rank>,
}

/// How far the coordinator's view of a rank goes.
pub(crate) type Connected<'a> = &'a dyn Fn(Rank) -> bool;

/// Everything that has happened in one run.
#[derive(Default)]
pub(crate) struct Ledger {
    ranks: u32,
    exchanges: BTreeMap<Step, Exchange>,
    payloads: BTreeMap<Epoch, Payloads>,
    /// Whether something has happened after which the world must have failed.
    has_to_fail: bool,
    /// Why the world has failed.
    pub(crate) abort: Option<Error>,
    /// When anything last moved.
    pub(crate) last_progress: Duration,
    bytes: BTreeMap<Rank, u64>,
    /// Who was interrupted and has not said so.
    interrupted: BTreeSet<Rank>,
    /// Whose end another process of its host has reported, and when.
    reported: BTreeMap<Rank, Duration>,
    closing: Option<Duration>,
    came_to_close: BTreeSet<Rank>,
    /// Whom things were done to: a failure has to name one of them.
    culprits: BTreeSet<Rank>,
    /// Those that may fail by themselves or know less than the others.
    excused: BTreeSet<Rank>,
    /// Whether rank 0 was out of order at some time, so that clocks prove nothing.
    rank_0_was_disturbed: bool,
    /// Whether rank 0 went without waiting for the others.
    pub(crate) abandoned: bool,
    goodbyes: BTreeMap<Rank, bool>,
    /// Who has been sent the abort and has not answered it.
    untold: BTreeSet<Rank>,
    pub(crate) closed: BTreeSet<Rank>,
    pub(crate) failures: Vec<(Rank, Option<Step>, Error)>,
    pub(crate) releases: usize,
    reclaims: usize,
    reclaims_for_others: usize,
}

impl Ledger {
    pub(crate) fn new(ranks: u32) -> Self {
        Self {
            ranks,
            ..Self::default()
        }
    }

    fn all(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.ranks).map(Rank::new)
    }

    /// Something was done to this rank that may make the world fail.
    pub(crate) fn suspects(&mut self, rank: Rank) {
        self.culprits.insert(rank);
    }

    /// This rank may fail by itself, or not learn what the others learn.
    pub(crate) fn excuses(&mut self, rank: Rank) {
        self.excused.insert(rank);
    }

    /// Rank 0 is out of order: all are excused, and nothing happens at its time.
    pub(crate) fn disturbs_rank_0(&mut self) {
        self.rank_0_was_disturbed = true;
        self.excused.extend(self.all());
    }

    // What ranks do and learn.

    pub(crate) fn hands_in(
        &mut self,
        rank: Rank,
        step: Step,
        call: &Call,
        contribution: Contribution,
    ) -> Checked {
        let exchange = self.exchanges.entry(step).or_default();
        let before = exchange
            .handed_in
            .insert(rank, (call.clone(), contribution));
        promise!(
            before.is_none(),
            "simulation: rank {rank} repeats itself in {step:?}"
        );
        Ok(())
    }

    pub(crate) fn interrupts(&mut self, rank: Rank) {
        self.suspects(rank);
        self.excuses(rank);
        self.interrupted.insert(rank);
    }

    pub(crate) fn learns(&mut self, rank: Rank, step: Step, verdict: &Verdict) -> Checked {
        let exchange = self.exchanges.entry(step).or_default();
        promise!(
            exchange.released && exchange.told.contains(&rank),
            "P1: rank {rank} learns a release of {step:?} that rank 0 has not sent it"
        );
        self.check_table(
            step,
            &[rank],
            verdict.table.as_ref().map(|table| &table.bodies),
        )?;
        let needed = self.exchanges.get(&step).map_or(0, |exchange| {
            let contributions = exchange.handed_in.values();
            contributions
                .map(|(_, contribution)| contribution.further_rounds)
                .max()
                .unwrap_or(0)
        });
        promise!(
            verdict.further_rounds == needed,
            "P2: rank {rank} is told of {} further rounds of {step:?}, {needed} are needed",
            verdict.further_rounds
        );
        Ok(())
    }

    pub(crate) fn fails(&mut self, rank: Rank, step: Option<Step>, failure: &Error) -> Checked {
        if let Some(step) = step {
            let released = self.exchanges.get(&step).is_some_and(|e| e.released);
            promise!(
                !released || self.excused.contains(&rank),
                "P1: rank {rank} learns a failure of {step:?}, which rank 0 has released: {failure}"
            );
        }
        self.failures.push((rank, step, failure.clone()));
        if self.excused.contains(&rank) {
            return Ok(());
        }
        let agreed = self.abort.as_ref().map(Error::root_cause);
        let rank_0_left = matches!(
            failure.root_cause(),
            Error::PeerFailed { peer, failure: PeerFailure::Departed, .. } if peer.rank == Rank::ZERO
        );
        promise!(
            agreed == Some(failure.root_cause()) || (self.abandoned && rank_0_left),
            "P3: rank {rank} learns \"{failure}\", but rank 0 has decided on {agreed:?}"
        );
        Ok(())
    }

    pub(crate) fn closes(&mut self, rank: Rank) -> Checked {
        self.closed.insert(rank);
        promise!(
            self.abort.is_none(),
            "P5: rank {rank} closes in good order, but the world has failed: {:?}",
            self.abort
        );
        Ok(())
    }

    // What rank 0 hears, says and orders.

    /// The coordinator is about to be told this by a rank that is connected.
    pub(crate) fn coordinator_hears(
        &mut self,
        from: Rank,
        message: &ToCoordinator,
        now: Duration,
    ) -> Checked {
        match message {
            ToCoordinator::Contribute { step, .. } if self.abort.is_none() => {
                let exchange = self.exchanges.entry(*step).or_default();
                exchange.arrived.insert(from);
                exchange.last_progress = now;
                self.last_progress = now;
            }
            ToCoordinator::Status { bytes, .. } => {
                let before = self.bytes.entry(from).or_default();
                if *bytes > *before {
                    *before = *bytes;
                    self.moves(now);
                }
            }
            ToCoordinator::Done { epoch, .. } => {
                self.payloads.entry(*epoch).or_default().done.insert(from);
                self.last_progress = now;
            }
            ToCoordinator::SiblingExited { rank } => {
                self.reported.entry(*rank).or_insert(now);
            }
            ToCoordinator::Fail { .. } => {
                self.interrupted.remove(&from);
                self.has_to_fail = true;
            }
            ToCoordinator::Leave { cause } => {
                self.has_to_fail |= cause.is_some();
                promise!(
                    !self.interrupted.contains(&from)
                        || self.abort.is_some()
                        || self.rank_0_was_disturbed,
                    "P3: rank {from} was interrupted, and leaves without a word about it"
                );
            }
            ToCoordinator::AbortSeen { .. } => {
                self.untold.remove(&from);
            }
            ToCoordinator::Close { .. } => {
                self.came_to_close.insert(from);
                self.closing = Some(now);
                self.last_progress = now;
            }
            _ => {}
        }
        Ok(())
    }

    /// Rank 0 notices the end of a connection.
    pub(crate) fn loses(&mut self, rank: Rank, connected: Connected<'_>) {
        self.has_to_fail |= connected(rank) && !self.came_to_close.contains(&rank);
    }

    fn moves(&mut self, now: Duration) {
        self.last_progress = now;
        for exchange in self.exchanges.values_mut() {
            if !exchange.arrived.is_empty() {
                exchange.last_progress = now;
            }
        }
        if let Some(closing) = &mut self.closing {
            *closing = now;
        }
    }

    pub(crate) fn coordinator_says(
        &mut self,
        to: &[Rank],
        message: &ToMember,
        now: Duration,
        connected: Connected<'_>,
    ) -> Checked {
        for rank in to {
            promise!(
                !self.goodbyes.contains_key(rank),
                "P5: rank {rank} is told {message:?} after goodbye"
            );
        }
        match message {
            ToMember::Release {
                step,
                bodies,
                acknowledge,
                ..
            } => self.releases(to, *step, bodies.as_ref(), *acknowledge),
            ToMember::Abort { cause, .. } => self.aborts(to, cause, now, connected),
            ToMember::Reclaim { epoch, .. } => {
                for owner in to {
                    // Of several that are lost at the same time, later ones may still be asked.
                    promise!(
                        connected(*owner) || self.reported.contains_key(owner),
                        "P4: rank {owner}, which is gone, is asked to remove its payload"
                    );
                    self.reclaims(*epoch, *owner, connected)?;
                }
                Ok(())
            }
            ToMember::Bye { orderly } => {
                for rank in to {
                    self.goodbyes.insert(*rank, *orderly);
                }
                promise!(
                    !(*orderly && self.abort.is_some()),
                    "P5: an orderly goodbye in a failed world"
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn releases(
        &mut self,
        to: &[Rank],
        step: Step,
        bodies: Option<&Vec<Bytes>>,
        acknowledge: bool,
    ) -> Checked {
        promise!(
            self.abort.is_none(),
            "P3: {step:?} is released after the abort"
        );
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
            exchange.arrived.len() == self.ranks as usize,
            "P2: {step:?} is released with contributions of {:?} only",
            exchange.arrived
        );
        let calls: Vec<&Call> = exchange.handed_in.values().map(|(call, _)| call).collect();
        let different = calls.iter().any(|call| call.difference(calls[0]).is_some());
        promise!(!different, "P2: {step:?} is released for different calls");
        let owners: BTreeSet<Rank> = exchange
            .handed_in
            .iter()
            .filter(|(_, (_, contribution))| contribution.leaves == Leaves::ForOwner)
            .map(|(rank, _)| *rank)
            .collect();
        let expected = !owners.is_empty() && bodies.is_some();
        promise!(
            acknowledge == expected,
            "P4: {step:?} is released with acknowledge {acknowledge}"
        );
        // Whoever could not hear rank 0 may have failed by itself.
        let known_failed = self
            .failures
            .iter()
            .find(|(rank, failed, _)| *failed == Some(step) && !self.excused.contains(rank));
        promise!(
            known_failed.is_none(),
            "P1: {step:?} is released after it failed for {known_failed:?}"
        );
        if expected {
            self.payloads.entry(step.epoch).or_default().owners = owners;
        }
        self.check_table(step, to, bodies)
    }

    fn check_table(&self, step: Step, to: &[Rank], bodies: Option<&Vec<Bytes>>) -> Checked {
        let Some(exchange) = self.exchanges.get(&step) else {
            return Err(Broken(format!("P2: nobody has contributed to {step:?}")));
        };
        let Some((call, _)) = exchange.handed_in.values().next() else {
            return Err(Broken(format!("P2: nobody has contributed to {step:?}")));
        };
        for rank in to {
            let receives = call.recipients().include(*rank);
            promise!(
                bodies.is_some() == receives,
                "P2: rank {rank} gets {bodies:?} of {step:?}"
            );
        }
        if let Some(bodies) = bodies {
            let contributed = exchange.handed_in.values();
            let same = bodies
                .iter()
                .eq(contributed.map(|(_, contribution)| &contribution.body));
            promise!(
                same,
                "P2: {step:?} delivers {bodies:?}, contributed were {:?}",
                exchange.handed_in
            );
        }
        Ok(())
    }

    /// To be asked when time has passed: nobody whose end was reported counts as alive for long.
    pub(crate) fn check_reports(&self, now: Duration, connected: Connected<'_>) -> Checked {
        for (rank, reported) in &self.reported {
            promise!(
                now <= *reported + LAST_WORDS || !connected(*rank),
                "P6: the end of rank {rank} was reported at {reported:?}, and it counts as alive"
            );
        }
        Ok(())
    }

    /// To be asked whenever rank 0 has nothing more to do: it knows who knows, and nothing that could go
    /// is still there.
    pub(crate) fn check_rest(&self, all_told: bool, connected: Connected<'_>) -> Checked {
        promise!(
            self.abort.is_some() || !self.has_to_fail,
            "P3: a rank has failed or was lost, and the world has not failed"
        );
        let mut others = self.untold.iter().filter(|rank| **rank != Rank::ZERO);
        let untold = others.any(|rank| connected(*rank));
        promise!(
            all_told != untold,
            "P3: rank 0 believes that all know of the failure: {all_told}; not so: {:?}",
            self.untold
        );
        let undecided = |exchange: &&Exchange| !exchange.released && !exchange.arrived.is_empty();
        for exchange in self.exchanges.values().filter(undecided) {
            let mut missing = self.all().filter(|rank| !exchange.arrived.contains(rank));
            let never = missing.find(|rank| !connected(*rank) || self.came_to_close.contains(rank));
            promise!(
                self.abort.is_some() || never.is_none(),
                "P6: a call waits for rank {never:?}, which has left or come to the end"
            );
        }
        for (epoch, payloads) in &self.payloads {
            let left: Vec<_> = payloads.owners.difference(&payloads.reclaimed).collect();
            promise!(
                left.is_empty() || !self.readers(*epoch, connected).is_empty(),
                "P4: nobody reads call {epoch} any more, but the payloads of {left:?} stay"
            );
        }
        Ok(())
    }

    /// What this run was an example of.
    pub(crate) fn endings(&self) -> Vec<&'static str> {
        let mut endings = vec![match &self.abort {
            None if self.closed.is_empty() => "other",
            None => "good",
            Some(Error::Desync { .. }) => "desync",
            Some(Error::Timeout { .. }) => "time-out",
            Some(Error::PeerFailed { failure, .. }) => match failure {
                PeerFailure::Lost { .. } => "lost",
                PeerFailure::Departed => "departed",
                _ => "raised",
            },
            Some(_) => "raised",
        }];
        let unknown = self.failures.iter().any(|(_, _, failure)| {
            let failure = failure.root_cause();
            matches!(failure, Error::PeerFailed { failure, .. }
                if matches!(failure, PeerFailure::OutcomeUnknown { .. }))
        });
        let others = [
            (unknown, "unknown outcome"),
            (self.abandoned, "abandoned"),
            (self.reclaims > 0, "reclaimed"),
            (self.reclaims_for_others > 0, "gone before its payload was"),
        ];
        endings.extend(
            others
                .iter()
                .filter(|(true_of_it, _)| *true_of_it)
                .map(|(_, name)| *name),
        );
        endings
    }

    /// How many ranks have been told goodbye, and whether all in good order.
    pub(crate) fn goodbyes(&self) -> (usize, bool) {
        (
            self.goodbyes.len(),
            self.goodbyes.values().all(|orderly| *orderly),
        )
    }
}
