//! Decides how often to look for messages: [`PollInterval`]. Pure.

use std::time::{Duration, Instant};

/// A pause is this fraction of the time since something moved last, so that looking late adds no more
/// than that to any wait.
const FRACTION: u32 = 8;

/// Sets the pauses between two looks: short right after something has moved, then longer and longer.
#[derive(Clone, Debug)]
pub(super) struct PollInterval {
    shortest: Duration,
    longest: Duration,
    moved: Instant,
}

impl PollInterval {
    pub(super) const fn new(shortest: Duration, longest: Duration, now: Instant) -> Self {
        Self {
            shortest,
            longest,
            moved: now,
        }
    }

    /// Something was sent or has arrived: more may follow soon.
    pub(super) const fn moved(&mut self, now: Instant) {
        self.moved = now;
    }

    /// The pause to make now.
    pub(super) fn pause(&self, now: Instant) -> Duration {
        (now.saturating_duration_since(self.moved) / FRACTION).clamp(self.shortest, self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_the_wait_and_are_bounded() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut pace = PollInterval::new(ms(2), ms(1000), start);
        assert_eq!(pace.pause(start), ms(2));
        assert_eq!(pace.pause(start + ms(80)), ms(10));
        assert_eq!(pace.pause(start + ms(60_000)), ms(1000));
        pace.moved(start + ms(60_000));
        assert_eq!(pace.pause(start + ms(60_001)), ms(2));
    }

    #[test]
    fn a_long_wait_takes_few_looks() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let pace = PollInterval::new(ms(2), ms(1000), start);
        let (mut now, mut looks) = (start, 0);
        while now < start + Duration::from_secs(60) {
            now += pace.pause(now);
            looks += 1;
        }
        assert!(looks < 130, "{looks} looks in a minute");
    }
}
