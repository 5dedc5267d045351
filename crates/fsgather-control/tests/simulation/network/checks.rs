//! What is asked of a world as a whole: that nobody waits too long, and that nothing is left at the end.

use std::time::Duration;

use super::{LATENCY, World};
use crate::{
    promises::{Broken, Checked, promise},
    rank::Health,
    script::PATIENCE,
};

/// How much longer than the time-out members wait for rank 0.
const GRACE: Duration = Duration::from_secs(10);

/// How much later than progress the notice of it may be sent.
const NOTICE: Duration = Duration::from_secs(2);

impl World {
    pub(super) fn check_rest(&self) -> Checked {
        let coordinator = &self.coordinator;
        if coordinator.is_gone() {
            return Ok(());
        }
        let connected = |rank| coordinator.is_connected(rank);
        self.ledger.check_rest(coordinator.all_told(), &connected)
    }

    /// Nobody waits longer than patience, and the grace that members give rank 0.
    pub(super) fn check_patience(&self) -> Checked {
        if self.serves() && !self.coordinator.is_gone() {
            let connected = |rank| self.coordinator.is_connected(rank);
            self.ledger.check_reports(self.clock.now, &connected)?;
        }
        let limit = Duration::from_secs(PATIENCE) + GRACE + NOTICE + 3 * LATENCY;
        for process in self.processes.iter().filter(|process| process.is_running()) {
            if let Some(since) = process.blocked_since {
                let since = since.max(self.ledger.last_progress);
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

    pub(super) fn finish(self) -> Result<Self, Broken> {
        for process in &self.processes {
            promise!(
                process.has_ended(),
                "P6: rank {} never ends: {}",
                process.rank,
                process.doing()
            );
        }
        // Who goes without waiting for the others leaves things undecided.
        if self.processes[0].health != Health::Dead && !self.ledger.abandoned {
            let text = format!("{:?}", self.coordinator);
            promise!(
                text.contains("undecided: {}") && text.contains("reading: {}"),
                "P9: something is kept after the end: {text}"
            );
        }
        for process in &self.processes {
            let text = format!("{:?}", process.member);
            let ended = process.health != Health::Dead && process.member.farewell().is_some();
            promise!(
                !ended || text.contains("awaited: {}"),
                "P9: rank {} still waits for something: {text}",
                process.rank
            );
        }
        Ok(self)
    }
}
