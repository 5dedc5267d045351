//! Checks a simulated world as a whole: no rank waits too long, and nothing is left at the end.

use std::time::Duration;

use super::{LATENCY, World};
use crate::{
    promises::{Checked, promise},
    rank::Health,
    script::TIME_LIMIT,
};

/// Time beyond the time-out that members wait for rank 0.
const GRACE: Duration = Duration::from_secs(10);

/// Maximum duration of a small world.
const MAX_WORLD_TIME: Duration = Duration::from_secs(3600);

/// Maximum delay between progress and the notice of it.
const NOTICE: Duration = Duration::from_secs(2);

impl World {
    pub(super) fn check_rest(&self) -> Checked {
        let coordinator = &self.coordinator;
        // A communicator that is about to fail has not had its consequences.
        if coordinator.is_gone() || coordinator.is_about_to_fail() {
            return Ok(());
        }
        let connected = |rank| coordinator.is_connected(rank);
        let (all_told, channels) = (coordinator.all_told(), coordinator.channels());
        self.ledger.check_rest(all_told, channels, &connected)
    }

    /// Checks that no rank waits longer than the time-out, and the grace that members give rank 0.
    pub(super) fn check_timeout(&self) -> Checked {
        if self.serves() && !self.coordinator.is_gone() {
            let connected = |rank| self.coordinator.is_connected(rank);
            self.ledger.check_reports(self.clock.now, &connected)?;
        }
        let limit = Duration::from_secs(TIME_LIMIT) + GRACE + NOTICE + 3 * LATENCY;
        // Members know only the last message of a rank 0 that is stopped.
        let word = self.ledger.kept_waiting;
        let word = if self.processes[0].is_running() {
            Duration::ZERO
        } else {
            word
        };
        for process in &self.processes {
            if let Some(since) = process.blocked_since.filter(|_| process.is_running()) {
                let since = since
                    .max(self.ledger.last_progress)
                    .max(self.ledger.answered)
                    .max(word);
                promise!(
                    self.clock.now <= since + limit,
                    "P6: rank {} still waits at {:?}, nothing has moved since {since:?}: {}",
                    process.rank,
                    self.clock.now,
                    process.doing()
                );
            }
        }
        Ok(())
    }

    /// Checks that the world ends in time: no world takes this long unless it never ends.
    pub(crate) fn is_in_bounds(&self) -> Checked {
        promise!(
            self.clock.now < MAX_WORLD_TIME,
            "P6: the world has not ended at {:?}",
            self.clock.now
        );
        Ok(())
    }

    /// Number of ranks.
    pub(crate) fn ranks(&self) -> usize {
        self.processes.len()
    }

    /// Checks what must hold when nothing can happen any more.
    pub(crate) fn finish(&self) -> Checked {
        for process in &self.processes {
            promise!(
                process.has_ended(),
                "P6: rank {} never ends: {}",
                process.rank,
                process.doing()
            );
        }
        // A rank that leaves without waiting for the others leaves calls undecided.
        if self.processes[0].health != Health::Dead && !self.ledger.abandoned {
            let text = format!("{:?}", self.coordinator);
            let channels = self.coordinator.channels();
            let is_empty = |field: &str| text.matches(field).count() == channels;
            promise!(
                is_empty("undecided: {}") && is_empty("reading: {}"),
                "P9: something is kept after the end: {text}"
            );
        }
        let is_well = self.ledger.failures.is_empty() && self.ledger.abort().is_none();
        for process in self.processes.iter().filter(|p| p.health != Health::Dead) {
            let text = format!("{:?}", process.member);
            let ended = process.health != Health::Dead && process.member.farewell().is_some();
            let channels = process.member.channels();
            promise!(
                channels == process.channels(),
                "P9: rank {} has {} channels and keeps {channels}",
                process.rank,
                process.channels()
            );
            promise!(
                !ended || text.matches("awaited: {}").count() == channels,
                "P9: rank {} still waits for something: {text}",
                process.rank
            );
            promise!(
                !(is_well && process.has_settled())
                    || text
                        .matches("verdicts: {}, awaited: {}, started: {}")
                        .count()
                        == channels,
                "P9: rank {} keeps calls that are over: {text}",
                process.rank
            );
        }
        Ok(())
    }
}
