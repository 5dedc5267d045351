//! Asks ranks that are waited for what they are doing: [`Sighting`].
//!
//! Rank 0 asks them shortly before it warns or fails a call, so that the answers are there by then and nothing waits for them. Who
//! is stopped cannot answer; so another process of its host, where there is one, is asked what it sees of it.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use fsgather_core::{Neighbour, ProcessId, Rank, RollCall, Whereabouts};

use super::{Coordinator, roster::RosterEntry};
use crate::message::Probe;

/// Who was asked so short a time ago is not asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// An answer counts as the present activity of a rank for this time.
const FRESH: Duration = Duration::from_secs(20);

/// Of so many ranks at most others are asked.
const MOST_WITNESSED: usize = 256;

/// A rank's own answer.
#[derive(Clone, Debug)]
enum Answer {
    /// It has not come.
    None,
    /// The rank tells nothing of itself.
    Silence,
    /// What it is doing, and whether that is the call that it is in.
    Word(Arc<Whereabouts>, bool),
}

/// What came of the last question what a rank is doing.
#[derive(Clone, Debug)]
pub(super) struct Sighting {
    /// Tells the question from others.
    number: u64,
    asked: Instant,
    own: Answer,
    /// What another process sees of it.
    witnessed: Option<Whereabouts>,
}

impl Coordinator {
    /// Asks these ranks, and others about them, what they are doing.
    pub(crate) fn look_at(&mut self, ranks: &[Rank], now: Instant) {
        if self.world.lead.is_none() {
            return;
        }
        let is_due = |member: &RosterEntry| {
            let before = member.sighting.as_ref();
            before.is_none_or(|before| now.saturating_duration_since(before.asked) >= AGAIN)
        };
        let mut asked = ranks.to_vec();
        asked.retain(|rank| self.roster.get(*rank).is_some_and(is_due));
        self.ask_what_they_do(asked, now);
    }

    /// The same, also where they were asked just now: they may have gone on since. `asked` is in ascending order.
    pub(super) fn ask_what_they_do(&mut self, mut asked: Vec<Rank>, now: Instant) {
        asked.retain(|rank| self.roster.is_connected(*rank));
        self.looks += 1;
        let number = self.looks;
        let witnesses = self.witnesses(&asked);
        for rank in &asked {
            if let Some(member) = self.roster.get_mut(*rank) {
                member.sighting = Some(Sighting {
                    number,
                    asked: now,
                    own: Answer::None,
                    witnessed: None,
                });
            }
        }
        let neighbour = None;
        self.send(asked, Probe::Look { number, neighbour });
        for (witness, neighbour) in witnesses {
            let neighbour = Some(neighbour);
            self.send(vec![witness], Probe::Look { number, neighbour });
        }
    }

    /// Who can look at which of these ranks: for each host one that is connected and not asked about itself.
    fn witnesses(&self, asked: &[Rank]) -> Vec<(Rank, Neighbour)> {
        let mut by_host: BTreeMap<(&str, u64), (Rank, &ProcessId)> = BTreeMap::new();
        for rank in self.roster.connected() {
            if asked.binary_search(&rank).is_err()
                && let Some(member) = self.roster.get(rank)
            {
                let process = &member.process;
                let host = (process.boot_id.as_str(), process.pid_namespace);
                by_host.entry(host).or_insert((rank, process));
            }
        }
        let witness_of = |rank: &Rank| {
            let process = &self.roster.get(*rank)?.process;
            let host = (process.boot_id.as_str(), process.pid_namespace);
            let (witness, its) = by_host.get(&host)?;
            let can_tell = its.sees_pids_of(process) && its.shares_clock_with(process);
            let neighbour = Neighbour {
                rank: *rank,
                pid: process.pid,
                start_time: process.start_time,
            };
            (can_tell && its.pid != process.pid).then_some((*witness, neighbour))
        };
        let witnesses = asked.iter().filter_map(witness_of);
        witnesses.take(MOST_WITNESSED).collect()
    }

    /// Takes what a rank has seen, of itself or of another one.
    pub(super) fn seen(
        &mut self,
        from: Rank,
        number: u64,
        who: Rank,
        whereabouts: Option<Whereabouts>,
        now: Instant,
    ) {
        let Some(member) = self.roster.get_mut(who) else {
            return;
        };
        let sighting = member.sighting.as_mut();
        let Some(sighting) = sighting.filter(|sighting| sighting.number == number) else {
            return;
        };
        let mut whereabouts = whereabouts.map(Whereabouts::cut_to_size);
        if let Some(seen) = &mut whereabouts {
            member.work.look(seen, now);
            // A report groups ranks that do the same, however long they have done it.
            seen.cpu_time = None;
        }
        if from == who {
            sighting.own = whereabouts.map_or(Answer::Silence, |mut its| {
                // Ranks that do the same are told together, whether others of their threads are in calls or not.
                let is_only_caller = std::mem::take(&mut its.is_only_caller);
                Answer::Word(Arc::new(its), is_only_caller)
            });
        } else {
            sighting.witnessed = whereabouts;
        }
    }

    /// Whether nothing is to be heard any more of what a rank was doing since then.
    pub(super) fn has_answered(&self, rank: Rank, since: Instant) -> bool {
        let member = self.roster.get(rank);
        let sighting = member.and_then(|member| member.sighting.as_ref());
        let sighting = sighting.filter(|sighting| sighting.asked >= since);
        let is_silent = sighting.is_some_and(|its| matches!(its.own, Answer::None));
        !is_silent || !self.roster.is_connected(rank)
    }

    /// What made the call that a rank is in, as it has said itself since then. Of one with several threads in calls nobody knows
    /// which of them that was.
    pub(super) fn caller_of(&self, rank: Rank, since: Instant) -> Option<Arc<Whereabouts>> {
        let sighting = self.roster.get(rank)?.sighting.as_ref()?;
        match &sighting.own {
            Answer::Word(whereabouts, true) if sighting.asked >= since => {
                Some(Arc::clone(whereabouts))
            }
            _ => None,
        }
    }

    /// What is known of what these ranks are doing.
    pub(crate) fn roll_call(&self, ranks: &[Rank], now: Instant) -> RollCall {
        let known = |rank: &Rank| {
            let sighting = self.roster.get(*rank)?.sighting.as_ref()?;
            let is_fresh = now.saturating_duration_since(sighting.asked) < FRESH;
            let known = match &sighting.own {
                Answer::Word(whereabouts, _) => Some(Arc::clone(whereabouts)),
                Answer::Silence => None,
                Answer::None => {
                    let seen = sighting.witnessed.clone();
                    let state = seen.and_then(|seen| seen.state);
                    Some(Arc::new(Whereabouts::silent(state)))
                }
            };
            Some((*rank, known.filter(|_| is_fresh)?))
        };
        RollCall::of(ranks.iter().filter_map(known))
    }
}
