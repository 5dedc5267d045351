//! Schedule on which a writer touches a directory again for processes that list it: [`TouchSchedule`]. Pure.

use std::time::Duration;

/// Times after a change at which the directory is touched; later every [`EVERY`].
///
/// Some clients cannot tell two changes within one tick of a server's clock apart. They never see the second, until the
/// directory changes again a tick later. Ticks last up to two seconds.
const MOMENTS: [Duration; 5] = [
    Duration::from_millis(25),
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1100),
    Duration::from_millis(2200),
];
const EVERY: Duration = Duration::from_secs(5);

/// The touches that have been made.
#[derive(Clone, Debug, Default)]
pub(crate) struct TouchSchedule {
    made: u128,
}

impl TouchSchedule {
    /// Returns true if the directory must be touched now, `elapsed` after the last change. Missed touches count as made.
    pub(crate) fn is_due(&mut self, elapsed: Duration) -> bool {
        let early = MOMENTS.iter().filter(|&&moment| moment <= elapsed).count();
        let late = elapsed.saturating_sub(MOMENTS[4]).as_nanos() / EVERY.as_nanos();
        let due = early as u128 + late;
        let is_due = due > self.made;
        self.made = self.made.max(due);
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touches_come_at_their_moments_and_then_every_five_seconds() {
        let mut schedule = TouchSchedule::default();
        let touched: Vec<u64> = (0..20_000)
            .filter(|&ms| schedule.is_due(Duration::from_millis(ms)))
            .collect();
        assert_eq!(touched, [25, 100, 400, 1100, 2200, 7200, 12_200, 17_200]);
    }

    #[test]
    fn missed_touches_are_made_once() {
        let mut schedule = TouchSchedule::default();
        assert!(schedule.is_due(Duration::from_secs(60)));
        assert!(!schedule.is_due(Duration::from_secs(60)));
        assert!(!schedule.is_due(Duration::from_secs(1)));
    }
}
