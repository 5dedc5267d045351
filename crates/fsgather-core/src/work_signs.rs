//! The signs by which a process is known to work: [`WorkSigns`]. Pure.

use std::time::{Duration, Instant};

use crate::{StackFrame, Whereabouts};

/// Idle threads use less than this part of a processor: one of 100.
const IDLE_SHARE: u32 = 100;

/// The signs of work of one rank.
#[derive(Clone, Debug, Default)]
pub struct WorkSigns {
    last: Option<Look>,
    seen: Option<Instant>,
}

/// The facts of one look that the next one is compared with.
#[derive(Clone, Debug)]
struct Look {
    at: Instant,
    cpu_time: Duration,
    /// Empty if another process has looked.
    frames: Vec<StackFrame>,
}

impl WorkSigns {
    /// Compares a look at the rank's process with the one before.
    pub fn look(&mut self, seen: &Whereabouts, now: Instant) {
        let Some(cpu_time) = seen.cpu_time else {
            return;
        };
        let next = Look {
            at: now,
            cpu_time,
            frames: seen.frames.clone(),
        };
        if let Some(last) = self.last.replace(next) {
            let passed = now.saturating_duration_since(last.at);
            let used = cpu_time.saturating_sub(last.cpu_time);
            let both = !last.frames.is_empty() && !seen.frames.is_empty();
            let has_moved = both && last.frames != seen.frames;
            if has_moved || (!used.is_zero() && used >= passed / IDLE_SHARE) {
                self.seen = Some(now);
            }
        }
    }

    /// Returns the time of the last look that showed work.
    #[must_use]
    pub const fn last_sign(&self) -> Option<Instant> {
        self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(cpu_millis: u64, line: u32) -> Whereabouts {
        let frame = StackFrame {
            file: "eval.py".into(),
            line: Some(line),
            function: "main".into(),
            is_own: true,
        };
        let mut seen = Whereabouts::own(vec![frame], None);
        seen.cpu_time = Some(Duration::from_millis(cpu_millis));
        seen
    }

    #[test]
    fn a_process_works_that_uses_the_processor_or_is_elsewhere() {
        let start = Instant::now();
        let minute = Duration::from_secs(60);
        for (cpu_millis, line, works) in [
            (100, 7, false),
            (699, 7, false),
            (700, 7, true),
            (100, 8, true),
        ] {
            let mut work = WorkSigns::default();
            work.look(&seen(100, 7), start);
            assert_eq!(work.seen, None);
            work.look(&seen(cpu_millis, line), start + minute);
            let expected = works.then_some(start + minute);
            assert_eq!(work.seen, expected, "{cpu_millis} ms, line {line}");
        }
    }

    #[test]
    fn a_neighbour_sees_the_processor_time_alone() {
        let start = Instant::now();
        let mut work = WorkSigns::default();
        work.look(&seen(100, 7), start);
        let mut other = Whereabouts::silent(None);
        work.look(&other, start);
        other.cpu_time = Some(Duration::from_millis(100));
        work.look(&other, start + Duration::from_secs(10));
        assert_eq!(work.seen, None);
        other.cpu_time = Some(Duration::from_secs(5));
        work.look(&other, start + Duration::from_secs(20));
        assert_eq!(work.seen, Some(start + Duration::from_secs(20)));
    }
}
