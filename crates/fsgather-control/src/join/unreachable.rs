//! Decides when a member reports that it cannot reach rank 0: [`UnreachableReports`]. Pure.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use uuid::Uuid;

/// The obstacle between a member and rank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// No address was published that means rank 0 from here.
    Unaddressed,
    /// Connections to all addresses fail.
    Unconnected,
    /// Connections succeed, but rank 0 does not answer over them: it may only be busy.
    Unanswered,
}

/// Minimum time and number of tries before it is certain that there is no way.
const NO_CONNECTION: (Duration, u32) = (Duration::from_secs(5), 3);
const NO_ANSWER: (Duration, u32) = (Duration::from_secs(15), 4);

/// Tries to reach one world.
#[derive(Debug)]
struct Tries {
    since: Instant,
    count: u32,
    is_reported: bool,
}

/// Counts failed tries for each record, so that rank 0 gets one report, and none because of an accident.
#[derive(Debug, Default)]
pub(crate) struct UnreachableReports {
    worlds: HashMap<Uuid, Tries>,
}

impl UnreachableReports {
    /// Notes a failed try, and returns true if it is time to report now.
    pub(crate) fn record(&mut self, world: Uuid, obstacle: Obstacle, now: Instant) -> bool {
        let tries = self.worlds.entry(world).or_insert(Tries {
            since: now,
            count: 0,
            is_reported: false,
        });
        tries.count += 1;
        let (timeout, least) = match obstacle {
            Obstacle::Unaddressed => (Duration::ZERO, 1),
            Obstacle::Unconnected => NO_CONNECTION,
            Obstacle::Unanswered => NO_ANSWER,
        };
        let is_clear =
            tries.count >= least && now.saturating_duration_since(tries.since) >= timeout;
        is_clear && !std::mem::replace(&mut tries.is_reported, true)
    }

    /// Returns true if this rank has tried in vain to reach this world.
    pub(crate) fn has_tried(&self, world: Uuid) -> bool {
        self.worlds.contains_key(&world)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_objected_to_once_after_tries_over_time() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let world = Uuid::from_u128(1);
        let mut reports = UnreachableReports::default();
        assert!(!reports.record(world, Obstacle::Unconnected, start));
        // Long, but only two tries: this rank may have been stopped.
        assert!(!reports.record(world, Obstacle::Unconnected, at(60)));
        assert!(reports.record(world, Obstacle::Unconnected, at(61)));
        assert!(!reports.record(world, Obstacle::Unconnected, at(62)));
        assert!(reports.has_tried(world));
        assert!(!reports.has_tried(Uuid::from_u128(2)));
    }

    #[test]
    fn a_busy_rank_0_is_given_more_time_and_no_address_needs_none() {
        let start = Instant::now();
        let mut reports = UnreachableReports::default();
        let busy = Uuid::from_u128(1);
        let objects = |reports: &mut UnreachableReports, second| {
            let now = start + Duration::from_secs(second);
            reports.record(busy, Obstacle::Unanswered, now)
        };
        assert!((0..15).all(|second| !objects(&mut reports, second)));
        assert!(objects(&mut reports, 15));
        assert!(reports.record(Uuid::from_u128(2), Obstacle::Unaddressed, start));
    }
}
