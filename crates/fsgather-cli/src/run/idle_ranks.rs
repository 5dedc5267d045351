//! Finds ranks that show no sign of work, so that ranks that wait for them to join need not wait for ever: [`IdleRanks`].

use std::time::{Duration, Instant};

use fsgather::Rank;
use fsgather_core::{Whereabouts, WorkSigns};

/// Time without a sign of work after which a rank no longer counts as one that is about to join.
pub(super) const IDLE_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Number of looks in the time after which a rank is idle.
const LOOKS_PER_LIMIT: u32 = 30;

/// The signs of work of all ranks of a run.
#[derive(Debug)]
pub(super) struct IdleRanks {
    limit: Duration,
    started: Instant,
    next_look: Instant,
    /// The time of the last look, by a clock that stands still while this process is stopped: its ranks may be stopped with it.
    awake: Instant,
    ranks: Vec<WatchedRank>,
}

#[derive(Clone, Debug, Default)]
struct WatchedRank {
    signs: WorkSigns,
    is_idle: bool,
}

impl IdleRanks {
    /// Begins to watch this number of ranks. They are idle if they show no sign of work for the time `limit`.
    pub(super) fn new(ranks: usize, limit: Duration, now: Instant) -> Self {
        Self {
            limit,
            started: now,
            next_look: now + limit / LOOKS_PER_LIMIT,
            awake: now,
            ranks: vec![WatchedRank::default(); ranks],
        }
    }

    /// Returns the time of the next look.
    pub(super) const fn next_look(&self) -> Instant {
        self.next_look
    }

    /// Looks at the processor times of all ranks, by rank, if it is time. Returns the ranks that have become idle, or work again.
    pub(super) fn look(
        &mut self,
        now: Instant,
        cpu_times: impl FnOnce() -> Vec<Option<Duration>>,
    ) -> Vec<(Rank, bool)> {
        if now < self.next_look {
            return Vec::new();
        }
        let interval = self.limit / LOOKS_PER_LIMIT;
        let late = now.saturating_duration_since(self.next_look);
        self.awake += interval + late.min(interval);
        self.next_look = now + interval;
        let mut changed = Vec::new();
        for ((rank, watched), cpu_time) in (0..).zip(&mut self.ranks).zip(cpu_times()) {
            // Processes that cannot be seen are not judged.
            let Some(cpu_time) = cpu_time else { continue };
            let mut seen = Whereabouts::silent(None);
            seen.cpu_time = Some(cpu_time);
            watched.signs.look(&seen, self.awake);
            let last = watched.signs.last_sign().unwrap_or(self.started);
            let is_idle = self.awake.saturating_duration_since(last) >= self.limit;
            if is_idle != watched.is_idle {
                watched.is_idle = is_idle;
                changed.push((Rank::new(rank), is_idle));
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_idle_after_half_an_hour_without_a_sign_of_work() {
        let start = Instant::now();
        let mut ranks = IdleRanks::new(3, IDLE_LIMIT, start);
        let mut changed = Vec::new();
        for minute in 1..=100 {
            let now = start + Duration::from_secs(minute * 60);
            // Rank 0 works, rank 1 only after 50 minutes, rank 2 is not seen.
            let cpu = |minutes: u64| Some(Duration::from_secs(minutes));
            let times = || vec![cpu(minute), cpu(minute.max(50)), None];
            let found = ranks.look(now, times).into_iter();
            changed.extend(found.map(|(rank, is_idle)| (minute, rank.get(), is_idle)));
            assert_eq!(ranks.look(now, || unreachable!()), []);
        }
        assert_eq!(changed, [(30, 1, true), (51, 1, false)]);
    }

    #[test]
    fn ranks_are_not_idle_while_run_is_stopped() {
        let start = Instant::now();
        let mut ranks = IdleRanks::new(1, IDLE_LIMIT, start);
        let mut look = |minutes: u64| {
            let now = start + Duration::from_secs(minutes * 60);
            ranks.look(now, || vec![Some(Duration::ZERO)])
        };
        assert_eq!(look(1), []);
        assert_eq!(look(100), []);
        let idle = (101..200).find(|minutes| !look(*minutes).is_empty());
        assert_eq!(idle, Some(127));
    }
}
