//! Asks missing ranks what they are doing.
//!
//! Rank 0 asks them shortly before it warns or fails a call, so that the answers have arrived by then and nothing waits for them. A
//! stopped rank cannot answer; so another process of its host, if there is one, is asked for what it sees of it.

use std::{collections::BTreeMap, time::Instant};

use fsgather_core::{Neighbour, ProcessId, Rank, Whereabouts};

use super::OpenStage;
use crate::coordinator::{roster::RosterEntry, sighting::Sighting};
use crate::message::Probe;

/// Maximum number of ranks about which others are asked.
const MAX_WITNESSED: usize = 256;

impl OpenStage {
    /// Asks these ranks, and others about them, what they are doing.
    pub(in crate::coordinator) fn look_at(&mut self, ranks: &[Rank], now: Instant) {
        if self.world.lead.is_none() {
            return;
        }
        let is_due = |member: &RosterEntry| {
            let before = member.sighting.as_ref();
            before.is_none_or(|before| before.is_old(now))
        };
        let mut asked = ranks.to_vec();
        asked.retain(|rank| self.roster.get(*rank).is_some_and(is_due));
        self.ask_what_they_do(asked, now);
    }

    /// Asks even if they were asked just now: they may have moved on since. `asked` is in ascending order.
    pub(super) fn ask_what_they_do(&mut self, mut asked: Vec<Rank>, now: Instant) {
        asked.retain(|rank| self.roster.is_connected(*rank));
        self.looks += 1;
        let number = self.looks;
        let witnesses = self.witnesses(&asked);
        for rank in &asked {
            if let Some(member) = self.roster.get_mut(*rank) {
                member.sighting = Some(Sighting::asked(number, now));
            }
        }
        let look = |neighbour| Probe::Look { number, neighbour };
        self.queue.send(asked, look(None));
        for (witness, neighbour) in witnesses {
            self.queue.send(vec![witness], look(Some(neighbour)));
        }
    }

    /// For each host, one rank that can look at these ranks: it is connected and not asked about itself.
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
        witnesses.take(MAX_WITNESSED).collect()
    }

    /// Handles an answer of a rank, about itself or another one.
    pub(in crate::coordinator) fn seen(
        &mut self,
        from: Rank,
        number: u64,
        who: Rank,
        whereabouts: Option<Whereabouts>,
        now: Instant,
    ) {
        self.record_sighting(from, number, who, whereabouts, now);
        self.tell_disagreements(now);
    }

    fn record_sighting(
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
            sighting.answer(whereabouts);
        } else {
            sighting.witness(whereabouts);
        }
    }
}
